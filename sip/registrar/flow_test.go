// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/sip/location"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// called makes a call of a caller behind a NAT to a callee by a connection, and returns what the
// callee gets.
func called(t *testing.T, r *rig, callee transaction.Target) *message.Message {
	t.Helper()
	registration := location.Registration{CallID: "bob", Flow: writeFlow(callee), Contacts: []location.Contact{{URI: uri(t, "sip:bob@[2001:db8::2]:5070"), Q: 1000, Lifetime: 1e12}}}
	if err := r.p.Table().Register(bob, &registration, r.now); err != nil {
		t.Fatal(err)
	}
	r.send(r.make("INVITE", bob, "1", "Contact: <sip:carol@10.0.0.1>"), "192.0.2.9:40000")
	invite := r.got("INVITE", callee.Remote.Addr().String())
	if n := len(invite.All("Record-Route")); n != 2 {
		t.Fatalf("%d routes:\n%s", n, invite)
	}
	answer := message.Reply(invite, 200, "OK", "b")
	r.send(answer, "[2001:db8::2]:40000")
	r.inbox = nil
	return invite
}

func uri(t *testing.T, text string) message.URI {
	t.Helper()
	u, err := message.ParseURI(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestFlowsInDialogs reaches both ends of a call by the ways that their routes carry: a NAT's address
// and a connection (RFC 5626 section 5.1). Who has moved to another contact is reached there.
func TestFlowsInDialogs(t *testing.T) {
	connection := transaction.Target{Transport: "TCP", Local: netip.MustParseAddrPort("[2001:db8::5]:5060"), Remote: netip.MustParseAddrPort("[2001:db8::2]:40000"), Connection: 7}
	for _, tt := range []struct {
		name, uri string
		reverse   bool // of the callee
		gone      bool // the connection
		want      transaction.Target
	}{
		{"to the callee", "sip:bob@[2001:db8::2]:5070", false, false, connection},
		{"to the callee at another port", "sip:bob@[2001:db8::2]:40000", false, false, connection},
		{"to the callee, whose connection is gone", "sip:bob@[2001:db8::2]:5070", false, true, target("[2001:db8::2]:5070")},
		{"to the callee, who has moved", "sip:bob@[2001:db8::3]:5070", false, false, target("[2001:db8::3]:5070")},
		{"to the caller", "sip:carol@10.0.0.1", true, false, target("192.0.2.9:40000")},
		{"to the caller, who has moved", "sip:carol@[2001:db8::3]", true, false, target("[2001:db8::3]:5060")},
	} {
		r := newRig(t)
		invite := called(t, r, connection)
		r.p.Connected = func(transaction.Target) bool { return !tt.gone }
		routes := invite.All("Record-Route")
		if !tt.reverse {
			routes = []string{routes[1], routes[0]}
		}
		for i, method := range []string{"BYE", "ACK"} {
			r.inbox = nil
			r.send(r.make(method, tt.uri, fmt.Sprint("d", i), "Route: "+routes[0], "Route: "+routes[1]), caller)
			if len(r.inbox) != 1 || r.inbox[0].To != tt.want || r.inbox[0].Message.Has("Route") {
				t.Errorf("%s, %s: %+v, want %+v", tt.name, method, r.inbox, tt.want)
			}
		}
	}
}

// TestForgedFlows has no one send to a connection by a route of his own making.
func TestForgedFlows(t *testing.T) {
	r := newRig(t)
	contact := uri(t, "sip:x@[2001:db8::9]")
	flow := r.p.packFlow(target("[2001:db8::9]:5060"), &contact)
	other := newRig(t)
	other.p.routes.key[0]++
	_, text, _ := strings.Cut(r.p.token(forDialog, "", flow), "-")
	for i, tt := range []struct{ name, user string }{
		{"another key", other.p.token(forTerminal, "", flow)},
		{"another dialog", r.p.token(forDialog, "another", flow)},
		{"a flow that was put there", r.p.token(forDialog, "call", nil) + "-" + text},
		{"no code", "-" + text},
	} {
		for _, method := range []string{"OPTIONS", "ACK"} {
			r.inbox = nil
			r.send(r.make(method, "sip:x@[2001:db8::9]", fmt.Sprint(method, i), "Route: <sip:"+tt.user+"@[2001:db8::5];lr>"), caller)
			if got := r.told(); strings.Contains(got, method) {
				t.Errorf("%s: %s", tt.name, got)
			}
		}
	}
	r.inbox = nil
	r.send(r.make("OPTIONS", "sip:x@[2001:db8::9]", "own", "Route: <sip:"+r.p.token(forDialog, "call", flow)+"@[2001:db8::5];lr>"), caller)
	r.expect("its own", "OPTIONS :9")
}

// edge is a proxy with a next hop.
func edge(t *testing.T) *rig {
	return newRig(t, func(_ *Settings, p *ProxySettings) {
		p.NextHop = "sip:[2001:db8::7]"
		p.Trusted = []netip.Prefix{netip.MustParsePrefix("2001:db8::8/128")}
	})
}

// TestPath has a proxy with a next hop pass registrations on with the way to the terminal, and
// requests from there by that way, and by no other (RFC 3327, RFC 5626 sections 5.1 and 5.3.1).
func TestPath(t *testing.T) {
	r := edge(t)
	r.send(r.make("REGISTER", "sip:example.com", "1", "Contact: <sip:carol@10.0.0.1>", "Route: <sip:[2001:db8::9];lr>"), "192.0.2.9:40000")
	register := r.got("REGISTER", "2001:db8::7")
	path := register.Get("Path")
	if !strings.Contains(path, "@[2001:db8::5]:5060;lr;ob>") || register.Get("Route") != "<sip:[2001:db8::7];lr>" || register.Has("Record-Route") {
		t.Fatalf("what goes on is\n%s", register)
	}
	r.inbox = nil
	r.send(r.make("INVITE", "sip:carol@10.0.0.1", "2", "Route: "+path), "[2001:db8::7]:5060")
	if len(r.inbox) < 1 || r.inbox[len(r.inbox)-1].To != target("192.0.2.9:40000") {
		t.Errorf("to the terminal: %+v", r.inbox)
	}
	for i, tt := range []struct{ name, uri, more, want string }{
		{"another target", "sip:victim@[2001:db8::9]", "", "430 :1"},
		{"another route", "sip:carol@10.0.0.1", "<sip:[2001:db8::9];lr>", "430 :1"},
	} {
		fields := []string{"Route: " + path}
		if tt.more != "" {
			fields = append(fields, "Route: "+tt.more)
		}
		r.inbox = nil
		r.send(r.make("OPTIONS", tt.uri, fmt.Sprint("x", i), fields...), caller)
		r.expect(tt.name, tt.want)
		r.send(r.make("ACK", tt.uri, fmt.Sprint("y", i), fields...), caller)
		r.expect(tt.name+", ACK", "")
	}
}

// TestPathOfLarge has what is too large for UDP go by TCP to a terminal that has registered by UDP, and by
// UDP where that takes no connection; behind a NAT the flow is all that there is.
func TestPathOfLarge(t *testing.T) {
	for _, tt := range []struct{ name, contact, from, first, second string }{
		{"no NAT", "sip:carol@[2001:db8::2]:5070", "[2001:db8::2]:5070", "TCP [2001:db8::2]:5070", "UDP [2001:db8::2]:5070"},
		{"a NAT", "sip:carol@10.0.0.1", "192.0.2.9:40000", "UDP 192.0.2.9:40000", ""},
		{"a contact elsewhere", "sip:carol@[2001:db8::9]", "[2001:db8::2]:5070", "UDP [2001:db8::2]:5070", ""},
		{"UDP by name", "sip:carol@[2001:db8::2]:5070;transport=udp", "[2001:db8::2]:5070", "UDP [2001:db8::2]:5070", ""},
	} {
		r := edge(t)
		r.send(r.make("REGISTER", "sip:example.com", "1", "Contact: <"+tt.contact+">"), tt.from)
		path := r.got("REGISTER", "2001:db8::7").Get("Path")
		sent := func() string {
			t.Helper()
			to := r.inbox[len(r.inbox)-1].To
			return to.Transport + " " + to.Remote.String()
		}
		r.send(r.make("INVITE", tt.contact, "2", "Route: "+path, "X: "+strings.Repeat("x", 1300)), "[2001:db8::7]:5060")
		if got := sent(); got != tt.first {
			t.Errorf("%s: it goes to %s, want %s", tt.name, got, tt.first)
		}
		if tt.second == "" {
			continue
		}
		r.p.Unreachable(r.inbox[len(r.inbox)-1].To, r.now, &r.out)
		r.take()
		if got := sent(); got != tt.second {
			t.Errorf("%s: then it goes to %s, want %s", tt.name, got, tt.second)
		}
	}
}

// TestEdge passes to its network what comes from terminals, and nothing elsewhere.
func TestEdge(t *testing.T) {
	for _, tt := range []struct{ name, method, uri, route, from, want string }{
		{"a call", "OPTIONS", bob, "", caller, "OPTIONS :7"},
		{"a call to another network", "OPTIONS", "sip:x@elsewhere.example.net", "", caller, "OPTIONS :7"},
		{"by the next hop", "OPTIONS", bob, "<sip:[2001:db8::7];lr>", caller, "OPTIONS :7"},
		{"by a proxy beside it", "OPTIONS", bob, "<sip:[2001:db8::8];lr>", caller, "OPTIONS :8"},
		{"by a stranger", "OPTIONS", bob, "<sip:[2001:db8::9];lr>", caller, "403 :1"},
		{"a registrar of others", "REGISTER", "sip:elsewhere.example.net", "", caller, "403 :1"},
		{"from its network, for nobody", "OPTIONS", bob, "", "[2001:db8::8]:5060", "403 :8"},
	} {
		r := edge(t)
		m := r.make(tt.method, tt.uri, "1")
		if tt.route != "" {
			m.Add("Route", tt.route)
		}
		r.send(m, tt.from)
		r.expect(tt.name, tt.want)
	}
}

// TestServedElsewhere passes what is for an account on to the registrar that serves it.
func TestServedElsewhere(t *testing.T) {
	r := newRig(t, func(s *Settings, p *ProxySettings) {
		s.Accounts[0].Server = "sip:[2001:db8::7]:5080"
		s.Accounts[1].Server = "sip:[2001:db8::5]:5060" // this one
		p.Prove = false
	})
	r.bind("bob", "<sip:[2001:db8::2]>")
	for i, tt := range []struct{ method, uri, to, want string }{
		{"REGISTER", "sip:example.com", "sip:alice@example.com", "REGISTER :7"},
		{"REGISTER", "sip:example.com", "sip:bob@example.com", "401 :1"},
		{"OPTIONS", "sip:alice@example.com", "sip:alice@example.com", "OPTIONS :7"},
		{"OPTIONS", bob, bob, "OPTIONS :2"},
	} {
		m := r.make(tt.method, tt.uri, fmt.Sprint(i))
		m.Set("To", "<"+tt.to+">")
		r.send(m, caller)
		r.expect(tt.method+" "+tt.to, tt.want)
	}
}

// TestTrusted takes the word of a proxy beside this one, and of nobody else.
func TestTrusted(t *testing.T) {
	for from, want := range map[string]string{"[2001:db8::8]:5060": "OPTIONS :2", caller: "407 :1"} {
		r := newRig(t, func(_ *Settings, p *ProxySettings) {
			p.Trusted = []netip.Prefix{netip.MustParsePrefix("2001:db8::8/128")}
		})
		r.bind("bob", "<sip:[2001:db8::2]>")
		m := r.make("OPTIONS", bob, "1")
		m.Set("From", "<sip:alice@example.com>;tag=1")
		r.send(m, from)
		r.expect(from, want)
	}
}

// TestOtherFlow takes another flow of a terminal when one fails, and forgets that one; 480 is said
// when there is none left (RFC 5626 section 7).
func TestOtherFlow(t *testing.T) {
	r := newRig(t)
	r.bind("bob", `<sip:[2001:db8::2]>;+sip.instance="<a>";reg-id=1`)
	r.now = r.now.Add(1)
	r.bind("bob", `<sip:[2001:db8::3]>;+sip.instance="<a>";reg-id=2`)
	r.send(r.make("INVITE", bob, "1"), caller)
	first := r.got("INVITE", "2001:db8::3")
	r.send(message.Reply(first, 430, "Flow Failed", "x"), "[2001:db8::3]:5060")
	second := r.got("INVITE", "2001:db8::2")
	if n := len(r.p.Table().Lookup(bob, r.now)); n != 1 {
		t.Errorf("%d bindings", n)
	}
	r.p.Unreachable(target("[2001:db8::2]:5060"), r.now, &r.out)
	r.take()
	r.expect("both have failed", "480 :1")
	if n := len(r.p.Table().Lookup(bob, r.now)); n != 0 || second.Has("Route") {
		t.Errorf("%d bindings", n)
	}
	r.send(r.make("ACK", bob, "1"), caller)
	r.empty()
}

// TestLargeFallsBack sends by UDP what was too large for it, where nobody listens on TCP (RFC 3261
// section 18.1.1), and tries all addresses of a name (RFC 3263 section 4.3).
func TestLargeFallsBack(t *testing.T) {
	r := newRig(t)
	r.bind("bob", "<sip:[2001:db8::2]>")
	r.send(r.make("OPTIONS", bob, "1", "X: "+strings.Repeat("x", 1300)), caller)
	tcp := target("[2001:db8::2]:5060")
	tcp.Transport = "TCP"
	if len(r.inbox) != 1 || r.inbox[0].To != tcp {
		t.Fatalf("%+v", r.inbox)
	}
	r.inbox = nil
	r.p.Unreachable(tcp, r.now, &r.out)
	r.take()
	m := r.got("OPTIONS", "2001:db8::2")
	if v, _ := m.Via(); v.Transport != "UDP" || len(m.All("Via")) != 2 || len(m.All("Record-Route")) != 1 {
		t.Errorf("then\n%s", m)
	}
	r.send(message.Reply(m, 200, "OK", "x"), "[2001:db8::2]:5060")
	r.expect("answered", "200 :1")

	r.bind("user", "<sip:user@host.example.net>")
	r.send(r.make("OPTIONS", "sip:user@example.com", "2"), caller)
	found := []transaction.Target{{Transport: "UDP", Remote: netip.MustParseAddrPort("[2001:db8::2]:5060")}, {Transport: "UDP", Remote: netip.MustParseAddrPort("[2001:db8::3]:5060")}}
	r.p.Resolved(r.named[0].ID, found, r.now, &r.out)
	r.take()
	r.got("OPTIONS", "2001:db8::2")
	r.p.Unreachable(target("[2001:db8::2]:5060"), r.now, &r.out)
	r.take()
	r.got("OPTIONS", "2001:db8::3")
	r.p.Unreachable(target("[2001:db8::3]:5060"), r.now, &r.out)
	r.take()
	r.expect("none is left", "500 :1")
	r.empty()
}

// TestListeners takes the address that is nearest to the other end (RFC 6724 section 5).
func TestListeners(t *testing.T) {
	r := newRig(t, func(_ *Settings, p *ProxySettings) {
		p.Listeners = nil
		for _, at := range []string{"[2001:db8:1::5]:5060", "[2001:db8:2::5]:5060", "192.0.2.5:5060", "198.51.100.5:5060"} {
			p.Listeners = append(p.Listeners, Listener{"UDP", netip.MustParseAddrPort(at)})
		}
	})
	for to, want := range map[string]string{
		"[2001:db8:1::9]:1": "[2001:db8:1::5]:5060", "[2001:db8:2::9]:1": "[2001:db8:2::5]:5060", "192.0.2.9:1": "192.0.2.5:5060", "198.51.100.9:1": "198.51.100.5:5060",
	} {
		if way, ok := r.p.via("UDP", netip.MustParseAddrPort(to)); !ok || way.Local.String() != want {
			t.Errorf("%s from %s, want %s", to, way.Local, want)
		}
	}
	for _, to := range []string{"[::]:1", "[ff02::1]:1", "0.0.0.0:1"} {
		if _, ok := r.p.via("UDP", netip.MustParseAddrPort(to)); ok {
			t.Errorf("a way to %s", to)
		}
	}
}
