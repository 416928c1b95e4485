// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// TestCrossing joins IPv4 and IPv6, with a route on each side (RFC 6157 section 3.1.1).
func TestCrossing(t *testing.T) {
	r := newRig(t)
	r.bind("bob", "<sip:bob@192.0.2.2>")
	r.send(r.make("INVITE", bob, "1"), caller)
	invite := r.got("INVITE", "192.0.2.2")
	routes := invite.All("Record-Route")
	if len(routes) != 2 || !strings.Contains(routes[0], "@192.0.2.5:5060;lr") || !strings.Contains(routes[1], "@[2001:db8::5]:5060;lr") || !strings.HasPrefix(invite.Get("Via"), "SIP/2.0/UDP 192.0.2.5") {
		t.Errorf("what goes on is\n%s", invite)
	}
	r.send(message.Reply(invite, 200, "OK", "b"), "192.0.2.2:5060")
	r.expect("back", "200 :1")
	// Both sides go by both routes, each by its own first.
	r.send(r.make("BYE", "sip:bob@192.0.2.2", "2", "Route: "+routes[1]+", "+routes[0]), caller)
	r.expect("on", "BYE 192.0.2.2")
	r.send(r.make("BYE", "sip:carol@[2001:db8::1]", "3", "Route: "+routes[0]+", "+routes[1]), "192.0.2.2:5060")
	r.expect("and back", "BYE :1")
}

// TestSecureRoutes keeps to TLS what is sips, on each side that has TLS, in the dialog as well (section 16.6, number 4).
func TestSecureRoutes(t *testing.T) {
	const udp, tls, secure = "sip: 5060 ", "sip: 5061 tls", "sips: 5061 "
	for _, tt := range []struct {
		name, uri, contact, transport string
		want                          []string
	}{
		{"sips by TLS", "sips:bob@[2001:db8::2]", "sips:bob@[2001:db8::2]", "TLS", []string{secure}},
		{"sips by UDP", "sips:bob@[2001:db8::2]", "sips:bob@[2001:db8::2]", "UDP", []string{secure, udp}},
		{"sip by TLS", bob, "sip:bob@[2001:db8::2];transport=tls", "TLS", []string{tls}},
		{"sip by TLS to a contact of sips", bob, "sips:bob@[2001:db8::2]", "TLS", []string{tls}},
		{"sip by UDP", bob, "sip:bob@[2001:db8::2]", "UDP", []string{udp}},
	} {
		r := newRig(t, func(_ *Settings, p *ProxySettings) {
			p.Listeners = append(p.Listeners, Listener{"TLS", netip.MustParseAddrPort("[2001:db8::5]:5061")})
			p.Trusted = []netip.Prefix{netip.MustParsePrefix("2001:db8::1/128")}
		})
		r.bind("bob", "<"+tt.contact+">")
		from := target(caller)
		if tt.transport == "TLS" {
			from.Transport, from.Local = "TLS", netip.MustParseAddrPort("[2001:db8::5]:5061")
		}
		r.p.Handle(r.make("INVITE", tt.uri, "1"), from, r.now, &r.out)
		r.take()
		var got []string
		invite := r.got("INVITE", "2001:db8::2")
		for _, value := range invite.All("Record-Route") {
			a, err := message.ParseAddress(value)
			transport, _ := a.URI.Params.Get("transport")
			if got = append(got, fmt.Sprintf("%s: %d %s", a.URI.Scheme, a.URI.Port, transport)); err != nil || !r.p.own(&a.URI) {
				t.Errorf("%s: %s is not of this proxy, %v", tt.name, value, err)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		r.told()
		bye := r.make("BYE", tt.contact, "2")
		for _, value := range slices.Backward(invite.All("Record-Route")) {
			bye.Add("Route", value)
		}
		r.p.Handle(bye, from, r.now, &r.out)
		r.take()
		r.expect(tt.name+", in the dialog", "BYE :2")
	}
}

// TestStrictRouters gives and takes routes as they do (sections 16.4 and 16.6, number 6).
func TestStrictRouters(t *testing.T) {
	r := newRig(t)
	r.bind("bob", "<sip:bob@[2001:db8::2]>")
	r.send(r.make("INVITE", bob, "1"), caller)
	route := r.got("INVITE", "2001:db8::2").Get("Record-Route")
	us, _ := message.ParseAddress(route)
	// One before us has put us into the Request-URI, and the target behind the routes.
	r.send(r.make("BYE", us.URI.String(), "2", "Route: <sip:bob@[2001:db8::2]>"), caller)
	if m := r.got("BYE", "2001:db8::2"); m.URI != "sip:bob@[2001:db8::2]" || m.Has("Route") {
		t.Errorf("from a strict router:\n%s", m)
	}
	// One behind us wants to be there itself.
	r.send(r.make("BYE", "sip:bob@[2001:db8::2]", "3", "Route: "+route+", <sip:[2001:db8::7]>"), caller)
	if m := r.got("BYE", "2001:db8::7"); m.URI != "sip:[2001:db8::7]" || m.Get("Route") != "<sip:bob@[2001:db8::2]>" {
		t.Errorf("to a strict router:\n%s", m)
	}
}

// TestTransports goes by TCP with what is large, and by what the URI names (section 18.1.1).
func TestTransports(t *testing.T) {
	for _, tt := range []struct {
		name, contact string
		size, mtu     int
		want          string
	}{
		{"small", "<sip:[2001:db8::2]>", 100, 0, "UDP [2001:db8::2]:5060"},
		{"large", "<sip:[2001:db8::2]>", 1300, 0, "TCP [2001:db8::2]:5060"},
		{"large for Teredo", "<sip:[2001:db8::2]>", 700, 1280, "TCP [2001:db8::2]:5060"},
		{"UDP by name", "<sip:[2001:db8::2];transport=udp>", 1300, 0, "UDP [2001:db8::2]:5060"},
		{"TCP by name", "<sip:[2001:db8::2]:5070;transport=tcp>", 100, 0, "TCP [2001:db8::2]:5070"},
	} {
		r := newRig(t, func(_ *Settings, p *ProxySettings) { p.MTU = tt.mtu })
		r.bind("bob", tt.contact)
		r.send(r.make("OPTIONS", bob, "1", "X: "+strings.Repeat("x", tt.size)), caller)
		if len(r.inbox) != 1 || r.inbox[0].To.Transport+" "+r.inbox[0].To.Remote.String() != tt.want {
			t.Errorf("%s: %+v, want %s", tt.name, r.inbox, tt.want)
		}
	}
}

// TestFlows reaches terminals by the way on which they have registered: behind a NAT, and by a
// connection.
func TestFlows(t *testing.T) {
	connection := transaction.Target{Transport: "TCP", Local: netip.MustParseAddrPort("[2001:db8::5]:5060"), Remote: netip.MustParseAddrPort("[2001:db8::2]:40000"), Connection: 7}
	for _, tt := range []struct {
		name, contact string
		from, want    transaction.Target
	}{
		{"as the contact says", "<sip:[2001:db8::2]:5070>", target("[2001:db8::2]:40000"), target("[2001:db8::2]:5070")},
		{"behind a NAT", "<sip:10.0.0.2:5070>", target("192.0.2.9:40000"), target("192.0.2.9:40000")},
		{"behind a NAT, without rport", "<sip:10.0.0.2:5071>", target("192.0.2.9:40001"), target("192.0.2.9:40001")},
		{"behind a carrier's NAT", "<sip:100.64.0.2:5070>", target("192.0.2.9:40000"), target("192.0.2.9:40000")},
		{"for another host", "<sip:[2001:db8::4]:5070>", target("[2001:db8::2]:40000"), target("[2001:db8::4]:5070")},
		{"for another host, by a connection", "<sip:[2001:db8::4]:5070>", connection, target("[2001:db8::4]:5070")},
		{"by a connection, under a name", "<sip:bob@df7jal23ls0d.invalid;transport=tcp>", connection, connection},
		{"by a connection", "<sip:[2001:db8::2]:5070;transport=tcp>", connection, connection},
		{"with a flow of its own", `<sip:[2001:db8::2]:5070>;+sip.instance="<a>";reg-id=1`, target("[2001:db8::2]:40000"), target("[2001:db8::2]:40000")},
	} {
		r := newRig(t)
		p := newPhone(t, r.p.Engine, "bob")
		register := p.request("Contact: " + tt.contact)
		c := p.challenged()
		a := c.Answer("bob", c.Algorithm.HA1("bob", realm, "bob"), "REGISTER", register.URI, "cnonce", 1)
		register.Add("Authorization", a.String())
		if strings.Contains(tt.name, "without rport") {
			register.Set("Via", "SIP/2.0/UDP 10.0.0.2:5071;branch=z9hG4bKn")
		}
		r.p.Handle(register, tt.from, r.now, &r.out)
		r.take()
		if got := r.told(); !strings.HasPrefix(got, "200") {
			t.Fatal(got)
		}
		r.send(r.make("OPTIONS", bob, "1"), caller)
		if len(r.inbox) != 1 || r.inbox[0].To != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, r.inbox, tt.want)
		}
		// When that is gone, so is what was to go there.
		r.inbox = nil
		r.p.Unreachable(tt.want, r.now, &r.out)
		r.take()
		want := "500 :1"
		if strings.Contains(tt.contact, "reg-id") {
			want = "480 :1"
		}
		r.expect(tt.name+", unreachable", want)
	}
}

// TestContactsOfOneRegister are reached each by its own way, though one REGISTER has brought them: calls are forwarded also for who
// registers by TCP.
func TestContactsOfOneRegister(t *testing.T) {
	connection := transaction.Target{Transport: "TCP", Local: netip.MustParseAddrPort("[2001:db8::5]:5060"), Remote: netip.MustParseAddrPort("[2001:db8::2]:40000"), Connection: 7}
	r := newRig(t)
	p := newPhone(t, r.p.Engine, "bob")
	contacts := map[string]bool{ // whether by the connection
		"sip:bob@[2001:db8::2]:40000": true, "sip:bob@[2001:db8::4]": false, "sip:bob@host.invalid": true,
		"sip:alice@example.com": false, "sip:alice@example.org": false, bob: true,
	}
	var fields []string
	for one := range contacts {
		fields = append(fields, "Contact: <"+one+">")
	}
	register := p.request(fields...)
	c := p.challenged()
	a := c.Answer("bob", c.Algorithm.HA1("bob", realm, "bob"), "REGISTER", register.URI, "cnonce", 1)
	register.Add("Authorization", a.String())
	r.p.Handle(register, connection, r.now, &r.out)
	list := r.p.Table().Lookup(bob, r.now)
	if len(list) != len(contacts) {
		t.Fatalf("%d contacts are bound", len(list))
	}
	for _, b := range list {
		if got, want := b.Flow != "", contacts[b.URI.String()]; got != want {
			t.Errorf("%v by the connection: %t", b.URI, got)
		}
	}
}

// TestReplies go to the port that a request asks for, and never to another host (RFC 3261 section
// 18.2.2, RFC 3581).
func TestReplies(t *testing.T) {
	for via, want := range map[string]string{
		"[2001:db8::1]": "[2001:db8::1]:5060", "[2001:db8::1]:5070": "[2001:db8::1]:5070", "[2001:db8::9]:5070;rport": "[2001:db8::1]:40000",
		"[2001:db8::9]:5070;received=2001:db8::9;maddr=2001:db8::9": "[2001:db8::1]:5070",
	} {
		r := newRig(t)
		m := r.make("OPTIONS", "sip:example.com", "1")
		m.Set("Via", "SIP/2.0/UDP "+via+";branch=z9hG4bK1")
		r.send(m, "[2001:db8::1]:40000")
		if len(r.inbox) != 1 || r.inbox[0].To.Remote.String() != want {
			t.Errorf("%s: %+v, want %s", via, r.inbox, want)
		}
	}
}

// TestAddressesOfOneAccount reaches who has registered one of them by all of them.
func TestAddressesOfOneAccount(t *testing.T) {
	r := newRig(t, func(s *Settings, _ *ProxySettings) {
		s.Accounts[1].Public = append(s.Accounts[1].Public, "sip:robert@example.com", "tel:+15550101")
	})
	r.bind("bob", "<sip:bob@[2001:db8::2]>")
	for i, uri := range []string{"sip:robert@example.com", "tel:+1-555-0101", bob} {
		r.send(r.make("OPTIONS", uri, fmt.Sprint(i)), caller)
		r.expect(uri, "OPTIONS :2")
	}
	r.bind("robert", "<sip:bob@[2001:db8::3]>")
	r.send(r.make("OPTIONS", "sip:robert@example.com", "own"), caller)
	r.expect("one of its own comes first", "OPTIONS :3")
}

// TestNames has names looked up, and goes where they lead.
func TestNames(t *testing.T) {
	r := newRig(t)
	r.bind("bob", "<sip:bob@phone.example.net;transport=tcp>;q=0.5", "<sip:bob@gone.example.net>;q=0.9")
	r.send(r.make("OPTIONS", bob, "1"), caller)
	if len(r.named) != 1 || r.named[0].URI.Host != "gone.example.net" || r.named[0].Transport != "UDP" {
		t.Fatalf("looked up: %+v", r.named)
	}
	r.p.Resolved(r.named[0].ID, nil, r.now, &r.out)
	r.take()
	if len(r.named) != 2 || r.named[1].Transport != "TCP" {
		t.Fatalf("then looked up: %+v", r.named)
	}
	found := transaction.Target{Transport: "TCP", Remote: netip.MustParseAddrPort("[2001:db8::2]:5070")}
	r.p.Resolved(r.named[1].ID, []transaction.Target{{Transport: "TLS", Remote: found.Remote}, found}, r.now, &r.out)
	r.p.Resolved(r.named[1].ID, []transaction.Target{found}, r.now, &r.out) // once is enough
	r.take()
	r.expect("found", "OPTIONS :2")
	r.empty()
}

// TestNamesOfServers go with a request to where a certificate is looked at (RFC 5922).
func TestNamesOfServers(t *testing.T) {
	r := newRig(t, func(_ *Settings, p *ProxySettings) {
		p.Listeners = append(p.Listeners, Listener{"TLS", netip.MustParseAddrPort("[2001:db8::5]:5061")})
	})
	r.bind("bob", "<sips:bob@phone.example.net>")
	r.send(r.make("OPTIONS", bob, "1"), caller)
	found := transaction.Target{Transport: "TLS", Remote: netip.MustParseAddrPort("[2001:db8::2]:5061"), Name: "phone.example.net"}
	r.p.Resolved(r.named[0].ID, []transaction.Target{found}, r.now, &r.out)
	r.take()
	if len(r.inbox) != 1 || r.inbox[0].To.Name != found.Name {
		t.Errorf("sent: %+v", r.inbox)
	}
}
