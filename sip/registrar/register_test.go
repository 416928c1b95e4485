// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/location"
	"github.com/isthmus-net/isthmus/sip/message"
)

// TestRegister takes each of RFC 3261 section 10.3's steps.
func TestRegister(t *testing.T) {
	const contact = "Contact: <sip:alice@[2001:db8::1]:5070>"
	to := func(uri string) func(*message.Message) { return func(m *message.Message) { m.Set("To", "<"+uri+">") } }
	for _, tt := range []struct {
		name   string
		fields []string
		change func(*message.Message)
		status int
		reason string   // of the counter
		want   []string // in the response
	}{
		{name: "one contact", fields: []string{contact}, status: 200, want: []string{"Contact: <sip:alice@[2001:db8::1]:5070>;expires=3600\r\n", "Date: Tue, 01 Jan 2030 00:00:00 GMT\r\n", "Supported: path, outbound\r\n"}},
		{name: "no contact", status: 200},
		{name: "another domain", change: func(m *message.Message) { m.URI = "sip:elsewhere.example.net" }, status: 404, reason: "unknown_domain 1"},
		{name: "the second domain, in capitals", change: func(m *message.Message) { m.URI = "sip:OTHER.example.com" }, fields: []string{contact}, status: 200},
		{name: "a URI of another scheme", change: func(m *message.Message) { m.URI = "tel:+1555" }, status: 404, reason: "unknown_domain 1"},
		{name: "an extension", fields: []string{"Require: path, gruu", "Require: x"}, status: 420, reason: "bad_extension 1", want: []string{"Unsupported: gruu, x\r\n"}},
		{name: "somebody else's address of record", change: to("sip:bob@example.com"), status: 403, reason: "not_allowed 1"},
		{name: "nobody's address of record", change: to("sip:nobody@example.com"), status: 404, reason: "unknown_aor 1"},
		{name: "an address of record with escapes and a port", change: to("sip:%61lice@EXAMPLE.com:5060;x=y"), fields: []string{contact}, status: 200},
		{name: "an address of record that is none", change: to("mailto:alice@example.com"), status: 400, reason: "bad_aor 1"},
		{name: "a lifetime of the contact", fields: []string{contact + ";expires=100", "Expires: 200"}, status: 200, want: []string{";expires=100\r\n"}},
		{name: "a lifetime of all contacts", fields: []string{contact, "Expires: 200"}, status: 200, want: []string{";expires=200\r\n"}},
		{name: "a lifetime above the longest", fields: []string{contact + ";expires=4294967295"}, status: 200, want: []string{";expires=86400\r\n"}},
		{name: "a lifetime beyond all numbers", fields: []string{contact + ";expires=42949672950"}, status: 200, want: []string{";expires=3600\r\n"}},
		{name: "a lifetime that is too brief", fields: []string{contact + ";expires=59"}, status: 423, reason: "too_brief 1", want: []string{"Min-Expires: 60\r\n"}},
		{name: "a preference", fields: []string{contact + ";q=0.3"}, status: 200, want: []string{";q=0.300\r\n"}},
		{name: "the order of preferences", fields: []string{"Contact: <sip:a>;q=0", "Contact: <sip:b>;q=1.0, <sip:c>;q=0.55"}, status: 200, want: []string{
			"Contact: <sip:b>;expires=3600\r\nContact: <sip:c>;expires=3600;q=0.550\r\nContact: <sip:a>;expires=3600;q=0.000\r\n"}},
		{name: "a preference above 1", fields: []string{contact + ";q=1.1"}, status: 400, reason: "bad_contact 1"},
		{name: "a preference that is none", fields: []string{contact + ";q=high"}, status: 400, reason: "bad_contact 1"},
		{name: "all with a lifetime", fields: []string{"Contact: *", "Expires: 10"}, status: 400, reason: "bad_contact 1"},
		{name: "all without a lifetime", fields: []string{"Contact: *"}, status: 400, reason: "bad_contact 1"},
		{name: "all and one more", fields: []string{"Contact: *", contact, "Expires: 0"}, status: 400, reason: "bad_contact 1"},
		{name: "all of nothing", fields: []string{"Contact: *", "Expires: 0"}, status: 200},
		{name: "one contact twice", fields: []string{contact, contact}, status: 400, reason: "bad_contact 1"},
		{name: "too many contacts", fields: []string{"Contact: <sip:a>, <sip:b>, <sip:c>, <sip:d>"}, status: 403, reason: "too_many_contacts 1"},
		{name: "more contacts than there is room", fields: []string{"Contact: <sip:a>, <sip:b>, <sip:c>"}, status: 503, reason: "table_full 1", want: []string{"Retry-After: 60\r\n"}},
		{name: "a path", fields: []string{contact, "Path: <sip:p1;lr>, <sip:p2;lr>", "Supported: path"}, status: 200, want: []string{"Path: <sip:p1;lr>\r\nPath: <sip:p2;lr>\r\n"}},
		{name: "a path that the terminal does not know", fields: []string{contact, "Path: <sip:p1;lr>"}, status: 200},
		{name: "a flow", fields: []string{contact + `;+sip.instance="<urn:uuid:1>";reg-id=1`, "Supported: path, outbound"}, status: 200, want: []string{"Require: outbound\r\n", `;+sip.instance="<urn:uuid:1>";reg-id=1;expires=3600`}},
		{name: "a flow without an instance", fields: []string{contact + `;reg-id=1`, "Supported: path, outbound"}, status: 200},
		{name: "a flow of a terminal without outbound", fields: []string{contact + `;+sip.instance="<urn:uuid:1>";reg-id=1`}, status: 200},
		{name: "a flow and a contact", fields: []string{contact + `;+sip.instance="<urn:uuid:1>";reg-id=1`, "Contact: <sip:b>"}, status: 400, reason: "bad_contact 1"},
		{name: "a flow and a contact that goes", fields: []string{contact + `;+sip.instance="<urn:uuid:1>";reg-id=1`, "Contact: <sip:b>;expires=0", "Supported: outbound"}, status: 200, want: []string{"Require: outbound\r\n", "Flow-Timer: 120\r\n"}},
		{name: "a flow of number 0", fields: []string{contact + `;+sip.instance="<urn:uuid:1>";reg-id=0`}, status: 400, reason: "bad_contact 1"},
		{name: "a flow by way of a proxy without outbound", fields: []string{contact + `;+sip.instance="<urn:uuid:1>";reg-id=1`, "Via: SIP/2.0/UDP p", "Path: <sip:p;lr>", "Supported: outbound"}, status: 439, reason: "no_outbound 1"},
		{name: "the same of a terminal without it", fields: []string{contact + `;+sip.instance="<urn:uuid:1>";reg-id=1`, "Via: SIP/2.0/UDP p"}, status: 200},
		{name: "a flow by way of a proxy with outbound", fields: []string{contact + `;+sip.instance="<urn:uuid:1>";reg-id=1`, "Via: SIP/2.0/UDP p", "Path: <sip:token@p;lr;ob>", "Supported: outbound"}, status: 200, want: []string{"Require: outbound\r\n"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := engine(t, func(s *Settings) { s.Limits = location.Limits{Bindings: 2, PerAOR: 3, BindingSize: 1000} })
			if strings.Contains(tt.name, "order") {
				e = engine(t)
			}
			p := newPhone(t, e, "alice")
			p.change = tt.change
			// These are refused before anybody is asked who he is.
			var r *message.Message
			if tt.status == 420 || strings.HasPrefix(tt.reason, "unknown_domain") || strings.HasPrefix(tt.reason, "bad_aor") {
				r = p.send(p.request(tt.fields...))
			} else {
				r = p.register(tt.fields...)
			}
			if r.Status != tt.status || refused(e) != tt.reason {
				t.Fatalf("refused as %q, want %q:\n%s", refused(e), tt.reason, r)
			}
			for _, want := range tt.want {
				if !strings.Contains(r.String(), want) {
					t.Errorf("no %q in\n%s", want, r)
				}
			}
			if tt.status != 200 && r.Has("Contact") || !strings.Contains(strings.Join(tt.want, ""), "outbound\r\n") != !r.Has("Require") && !strings.Contains(strings.Join(tt.want, ""), "Supported") {
				t.Errorf("the response is\n%s", r)
			}
		})
	}
}

// TestMove replaces the contact of a terminal that has moved, in one request.
func TestMove(t *testing.T) {
	e := engine(t)
	p := newPhone(t, e, "alice")
	p.register("Contact: <sip:alice@[2001:db8::1]>")
	r := p.register("Contact: <sip:alice@[2001:db8:2::1]>", "Contact: <sip:alice@[2001:db8::1]>;expires=0")
	if got := r.All("Contact"); r.Status != 200 || len(got) != 1 || !strings.HasPrefix(got[0], "<sip:alice@[2001:db8:2::1]>") {
		t.Errorf("after the move:\n%s", r)
	}
	// A request that comes late undoes nothing.
	p.cseq = 0
	if r := p.register("Contact: <sip:alice@[2001:db8:2::1]>;expires=0"); r.Status != 500 || refused(e) != "out_of_order 1" {
		t.Errorf("a late request, refused as %q:\n%s", refused(e), r)
	}
	if got := e.Table().Lookup("sip:alice@example.com", start); len(got) != 1 {
		t.Errorf("%d bindings", len(got))
	}
}

// TestExpiry ends bindings in time.
func TestExpiry(t *testing.T) {
	e := engine(t)
	p := newPhone(t, e, "alice")
	p.register("Contact: <sip:a>;expires=100")
	if next := e.Next(); !next.Equal(start.Add(100 * time.Second)) {
		t.Errorf("the next thing to do is at %v", next)
	}
	p.now = start.Add(99500 * time.Millisecond)
	if r := p.register(); r.Get("Contact") != "<sip:a>;expires=1" {
		t.Errorf("half a second before the end:\n%s", r)
	}
	e.Tick(e.Next())
	p.now = start.Add(101 * time.Second)
	if r := p.register(); r.Has("Contact") || e.Stats().Expired != 1 || e.Stats().Registered != 1 || e.Stats().Queried != 2 {
		t.Errorf("after the end, %+v:\n%s", e.Stats(), r)
	}
}

// TestTorture registers what RFC 4475 and RFC 5118 have for registrars.
func TestTorture(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		want   string // the contact
	}{
		{"rfc4475/cparam01", 200, "<sip:+19725552222@gw1.example.net>;unknownparam;expires=3600"},
		{"rfc4475/cparam02", 200, "<sip:+19725552222@gw1.example.net;unknownparam>;expires=3600"},
		{"rfc4475/regescrt", 200, "<sip:user@example.com?Route=%3Csip:sip.example.com%3E>;expires=3600"},
		{"rfc4475/unksm2", 400, ""},
	} {
		text, err := os.ReadFile(filepath.Join("..", "message", "testdata", tt.name+".sip"))
		if err != nil {
			t.Fatal(err)
		}
		m, f := message.Parse(text)
		if f != nil {
			t.Fatal(f)
		}
		e := engine(t, func(s *Settings) { s.Accounts[2].Public = append(s.Accounts[2].Public, "sip:watson@example.com") })
		p := newPhone(t, e, "user")
		c := p.challenged()
		a := c.Answer("user", c.Algorithm.HA1("user", realm, "user"), "REGISTER", m.URI, "cnonce", 1)
		m.Add("Authorization", a.String())
		r := p.send(m)
		if r.Status != tt.status || r.Get("Contact") != tt.want {
			t.Errorf("%s:\n%s", tt.name, r)
		}
	}
	// An authorization of another scheme is none (RFC 4475 section 3.3.7).
	p := newPhone(t, engine(t), "alice")
	if r := p.send(p.request("Authorization: NoOneKnowsThisScheme opaque-data=here")); r.Status != 401 || len(r.All("WWW-Authenticate")) != 2 {
		t.Errorf("the answer to another scheme:\n%s", r)
	}
}

// TestServiceRoute tells terminals how to route, and their other addresses of record.
func TestServiceRoute(t *testing.T) {
	e := engine(t, func(s *Settings) {
		s.ServiceRoute = []string{"<sip:orig@s.example.com;lr>"}
		s.Accounts[0].Public = append(s.Accounts[0].Public, "tel:+1555")
	})
	r := newPhone(t, e, "alice").register("Contact: <sip:a>")
	if r.Get("Service-Route") != "<sip:orig@s.example.com;lr>" || strings.Join(r.All("P-Associated-URI"), " ") != "<sip:alice@example.com> <tel:+1555>" {
		t.Errorf("the response is\n%s", r)
	}
}

// TestSettings refuses what could not work, and keeps what there was.
func TestSettings(t *testing.T) {
	e := engine(t)
	for name, change := range map[string]func(*Settings){
		"no domain":               func(s *Settings) { s.Domains = nil },
		"a name twice":            func(s *Settings) { s.Accounts = append(s.Accounts, s.Accounts[0]) },
		"an address twice":        func(s *Settings) { s.Accounts[0].Public = []string{"sip:bob@EXAMPLE.com"} },
		"an address that is none": func(s *Settings) { s.Accounts[0].Public = []string{"alice"} },
		"an account without name": func(s *Settings) { s.Accounts[0].Username = "" },
		"lifetimes":               func(s *Settings) { s.DefaultExpires = time.Second },
		"an algorithm":            func(s *Settings) { s.Algorithms = append(s.Algorithms, "SHA-1") },
		"AKA as one of passwords": func(s *Settings) { s.Algorithms = append(s.Algorithms, "AKAv1-MD5") },
		"no nonces":               func(s *Settings) { s.MaxNonces = 0 },
	} {
		s := settings(t)
		change(&s)
		if err := e.Reconfigure(s); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if r := newPhone(t, e, "alice").register("Contact: <sip:a>"); r.Status != 200 {
		t.Errorf("after refused settings:\n%s", r)
	}
}

// FuzzRegister answers whatever can be read, and says so in a response that can be read.
func FuzzRegister(f *testing.F) {
	e := engine(f)
	p := newPhone(f, e, "alice")
	f.Add(p.request("Contact: <sip:a>;q=0.5;expires=7;reg-id=1;+sip.instance=x", `Authorization: Digest username="alice", realm="example.com", nonce="", uri="sip:example.com", response=""`).Append(nil))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, fault := message.Parse(text)
		if fault != nil || !m.IsRequest() {
			return
		}
		r := e.Register(m, Source{}, start)
		if _, fault := message.Parse(r.Append(nil)); fault != nil && len(r.Headers) < message.MaxHeaders {
			t.Errorf("%q\nis answered by\n%s\nwhich is refused as %v", text, r, fault)
		}
		// Who has it registered directly can do no harm either.
		_ = e.bind(m, "sip:alice@example.com", e.directory.byName["alice"], Source{}, start)
	})
}
