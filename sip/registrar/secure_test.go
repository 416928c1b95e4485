// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/sip/location"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

func withTLS(_ *Settings, p *ProxySettings) {
	p.Listeners = append(p.Listeners, Listener{"TLS", netip.MustParseAddrPort("[2001:db8::5]:5061")})
}

// byTLSFrom is a host as the proxy sees it by TLS.
func byTLSFrom(remote string) transaction.Target {
	return transaction.Target{Transport: "TLS", Local: netip.MustParseAddrPort("[2001:db8::5]:5061"), Remote: netip.MustParseAddrPort(remote)}
}

// TestSecureAndNot has one user under sip and sips, a request for sips go to contacts of sips by TLS alone, and one for
// sip to these as well, by TLS but under sip (RFC 5630 sections 5.2 to 5.4).
func TestSecureAndNot(t *testing.T) {
	const sips, sip = "sips:bob@[2001:db8::2]", "sip:bob@[2001:db8::2]"
	for _, tt := range []struct {
		name, contact, uri string
		redirect           bool
		want               string
	}{
		{"neither", sip, "sip:bob@example.com", false, "UDP " + sip},
		{"both", sips, "sips:bob@example.com", false, "TLS " + sips},
		{"both, with the usual port", sips, "sips:bob@example.com:5061", false, "TLS " + sips},
		{"the contact", sips, "sip:bob@example.com", false, "TLS " + sip},
		{"the caller", sip, "sips:bob@example.com", false, `480 380 example.com "SIPS Not Allowed"`},
		{"the caller, and TLS by chance", sip + ";transport=tls", "sips:bob@example.com", false, `480 380 example.com "SIPS Not Allowed"`},
		{"nobody", "", "sips:bob@example.com", false, "480 "},
		{"neither, redirected", sip, "sip:bob@example.com", true, "302 <" + sip + ">"},
		{"the contact, redirected", sips, "sip:bob@example.com", true, "302 <" + sips + ">"},
		{"the caller, redirected", sip, "sips:bob@example.com", true, `480 380 example.com "SIPS Not Allowed"`},
	} {
		r := newRig(t, withTLS, func(_ *Settings, p *ProxySettings) { p.Redirect = tt.redirect })
		if tt.contact != "" {
			r.bind("bob", "<"+tt.contact+">")
		}
		r.send(r.make("OPTIONS", tt.uri, "1"), caller)
		last := r.inbox[len(r.inbox)-1]
		got := last.To.Transport + " " + last.Message.URI
		if m := last.Message; m.Status != 0 {
			got = fmt.Sprintf("%d %s", m.Status, m.Get("Warning")+m.Get("Contact"))
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestNoWayButTLS sends what is of sips by TLS or not at all, whatever the route or the flow (RFC 3261 section 16.6,
// number 7).
func TestNoWayButTLS(t *testing.T) {
	for _, tt := range []struct {
		name, uri, route, flow string
		want                   string
	}{
		{"a route of sip", "sips:x@elsewhere.example", "<sip:[2001:db8::7]:5070;lr>", "", "TLS [2001:db8::7]:5070"},
		{"a route of sip by UDP", "sips:x@elsewhere.example", "<sip:[2001:db8::7];transport=udp;lr>", "", "TLS [2001:db8::7]:5061"},
		{"no TLS there", "sips:x@elsewhere.example", "<sip:192.0.2.7;lr>", "", "500"},
		{"a flow by TLS", "sips:bob@example.com", "", "TLS", "TLS [2001:db8::3]:40000"},
		{"a flow by UDP", "sips:bob@example.com", "", "UDP", "TLS [2001:db8::2]:5061"},
		{"a flow by UDP to a contact of sips", "sip:bob@example.com", "", "UDP", "TLS [2001:db8::2]:5061"},
	} {
		r := newRig(t, withTLS, func(_ *Settings, p *ProxySettings) {
			p.Trusted = []netip.Prefix{netip.MustParsePrefix("2001:db8::1/128")}
		})
		from := target("[2001:db8::3]:40000")
		if tt.flow == "TLS" {
			from = byTLSFrom("[2001:db8::3]:40000")
		}
		if tt.flow != "" {
			r.bindBy(from, "sips:bob@[2001:db8::2]")
		}
		m := r.make("OPTIONS", tt.uri, "1")
		if tt.route != "" {
			m.Add("Route", tt.route)
		}
		r.send(m, caller)
		last := r.inbox[len(r.inbox)-1]
		got := fmt.Sprint(last.To.Transport, " ", last.To.Remote)
		if last.Message.Status != 0 {
			got = fmt.Sprint(last.Message.Status)
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// bindBy binds bob to a contact that is reached by a flow.
func (r *rig) bindBy(from transaction.Target, contact string) {
	r.t.Helper()
	u, err := message.ParseURI(contact)
	if err != nil {
		r.t.Fatal(err)
	}
	one := location.Contact{URI: u, Lifetime: r.p.settings.TimerC}
	if err := r.p.Table().Register("sip:bob@"+realm, &location.Registration{CallID: "1", Contacts: []location.Contact{one}, Flow: writeFlow(from)}, r.now); err != nil {
		r.t.Fatal(err)
	}
}

// TestSecureTerminals reach the next hop, and are reached, by TLS if their requests are of sips. Of a terminal whose
// flow is none nothing of sips goes there.
func TestSecureTerminals(t *testing.T) {
	for _, secure := range []bool{true, false} {
		r := newRig(t, withTLS, func(_ *Settings, p *ProxySettings) { p.NextHop = "sip:[2001:db8::7]:5061" })
		from, next := target("[2001:db8::3]:40000"), byTLSFrom("[2001:db8::7]:5061")
		if secure {
			from = byTLSFrom("[2001:db8::3]:40000")
		}
		r.p.Handle(r.make("REGISTER", "sips:example.com", "1", "Contact: <sips:carol@10.0.0.1>"), from, r.now, &r.out)
		r.take()
		if r.inbox[0].To != next {
			t.Fatalf("registers by %+v", r.inbox[0])
		}
		path := r.got("REGISTER", "2001:db8::7").Get("Path")
		if !strings.HasPrefix(path, "<sips:") || !strings.Contains(path, "@[2001:db8::5]:5061;lr;ob>") {
			t.Errorf("Path: %s", path)
		}
		for _, method := range []string{"INVITE", "ACK"} {
			r.told()
			r.p.Handle(r.make(method, "sips:carol@10.0.0.1", "2"+method, "Route: "+path), next, r.now, &r.out)
			r.take()
			there := slices.ContainsFunc(r.inbox, func(s transaction.Send) bool { return s.To == from })
			if there != secure {
				t.Errorf("%s goes to a terminal by %s: %t", method, from.Transport, there)
			}
		}
	}
}

// TestSecureAckWithoutTLS has an ACK of sips name a terminal that is reached by a flow of UDP: there is no way for it, and
// no name is asked for.
func TestSecureAckWithoutTLS(t *testing.T) {
	r := newRig(t, withTLS, func(_ *Settings, p *ProxySettings) { p.NextHop = "sip:[2001:db8::7]:5061" })
	from, next := target("[2001:db8::3]:40000"), byTLSFrom("[2001:db8::7]:5061")
	r.p.Handle(r.make("REGISTER", "sips:example.com", "1", "Contact: <sips:carol@phone.example.net>"), from, r.now, &r.out)
	r.take()
	path := r.got("REGISTER", "2001:db8::7").Get("Path")
	r.named = nil
	r.p.Handle(r.make("ACK", "sips:carol@phone.example.net", "2", "Route: "+path), next, r.now, &r.out)
	r.take()
	if r.expect("the ACK", ""); len(r.named) != 0 || r.p.relayed[NoWay] != 1 {
		t.Errorf("asked for: %+v, %d without a way", r.named, r.p.relayed[NoWay])
	}
}

// TestSecureRegistrations take an address of record under either scheme, and a contact of sips where all is of sips
// (RFC 5630 section 5.2).
func TestSecureRegistrations(t *testing.T) {
	const sip, sips = "Contact: <sip:alice@[2001:db8::1]>", "Contact: <sips:alice@[2001:db8::1]>"
	for _, tt := range []struct {
		name, uri, to string
		fields        []string
		status        int
	}{
		{"neither", "sip:example.com", "sip:alice@example.com", []string{sip}, 200},
		{"the address of record", "sip:example.com", "sips:alice@example.com", []string{sip}, 200},
		{"the request", "sips:example.com", "sip:alice@example.com", []string{sip}, 200},
		{"the contact", "sip:example.com", "sips:alice@example.com", []string{sips}, 400},
		{"the contact, which goes", "sip:example.com", "sip:alice@example.com", []string{sips + ";expires=0"}, 200},
		{"request and contact", "sips:example.com", "sip:alice@example.com", []string{sips}, 200},
		{"one of two contacts", "sips:example.com", "sips:alice@example.com", []string{sips, "Contact: <sip:b>"}, 400},
		{"one of two contacts, the other goes", "sips:example.com", "sips:alice@example.com", []string{sips, "Contact: <sip:b>;expires=0"}, 200},
		{"all but the path", "sips:example.com", "sips:alice@example.com", []string{sips, "Path: <sips:p1;lr>, <sip:p2;lr>"}, 400},
		{"all", "sips:example.com", "sips:alice@example.com", []string{sips, "Path: <sips:p1;lr>"}, 200},
	} {
		alice := newPhone(t, engine(t), "alice")
		alice.change = func(m *message.Message) { m.URI = tt.uri; m.Set("To", "<"+tt.to+">") }
		if r := alice.register(tt.fields...); r.Status != tt.status {
			t.Errorf("%s: %d, want %d\n%s", tt.name, r.Status, tt.status, r)
		}
		aors, bindings := alice.e.Table().Len()
		if want := strings.Contains(tt.name, "goes") && len(tt.fields) == 1 || tt.status != 200; (aors == 0) != want || (len(alice.e.Table().Bindings("sip:alice@example.com")) == 0) != want {
			t.Errorf("%s: %d addresses, %d bindings", tt.name, aors, bindings)
		}
	}
}

// TestSecureAddresses of an account are one, also those that an earlier version has kept.
func TestSecureAddresses(t *testing.T) {
	both := func(s *Settings) { s.Accounts[0].Public = []string{"sip:alice@example.com", "sips:alice@example.com"} }
	first := engine(t, both)
	newPhone(t, first, "alice").register("Contact: <sip:a>")
	second := engine(t, both)
	first.Changed(func(key string, record []byte) {
		if key == "bindings sip:alice@example.com" {
			if _, err := second.Restore("bindings sips:alice@example.com", record, func(string) bool { return true }, start); err != nil {
				t.Fatal(err)
			}
		}
	})
	kept := map[string]bool{}
	second.Changed(func(key string, record []byte) { kept[key] = record != nil })
	if is, was := kept["bindings sip:alice@example.com"], kept["bindings sips:alice@example.com"]; !is || was || len(kept) < 2 {
		t.Errorf("kept: %v", kept)
	}
	if n := len(second.Table().Bindings("sip:alice@example.com")); n != 1 {
		t.Errorf("%d bindings", n)
	}
	for name, public := range map[string][]string{"twice": {"sip:alice@example.com", "sip:alice@example.com"}, "of another": {"sip:alice@example.com", "sips:bob@example.com"}} {
		s := settings(t)
		s.Accounts[0].Public = public
		if _, err := New(s, source(1)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestBindingsKeptApart by an earlier version, under sip and under sips, are those of one address, whichever is read
// first.
func TestBindingsKeptApart(t *testing.T) {
	recordOf := func(contact string) (record []byte) {
		e := engine(t)
		newPhone(t, e, "alice").register("Contact: " + contact)
		e.Changed(func(key string, r []byte) {
			if key == "bindings sip:alice@example.com" {
				record = slices.Clone(r)
			}
		})
		return record
	}
	records := map[string][]byte{"bindings sip:alice@example.com": recordOf("<sip:a>"), "bindings sips:alice@example.com": recordOf("<sip:b>")}
	for first, second := range map[string]string{"bindings sip:alice@example.com": "bindings sips:alice@example.com", "bindings sips:alice@example.com": "bindings sip:alice@example.com"} {
		e := engine(t)
		for _, key := range []string{first, second} {
			if lost, err := e.Restore(key, records[key], func(string) bool { return true }, start); lost != 0 || err != nil {
				t.Errorf("%s: %d lost, %v", key, lost, err)
			}
		}
		if n := len(e.Table().Bindings("sip:alice@example.com")); n != 2 {
			t.Errorf("%s first: %d bindings", first, n)
		}
	}
}
