// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/digest"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

const bob = "sip:bob@example.com"

// TestDialog carries a call from its INVITE to the BYE of either side (RFC 3261 section 16).
func TestDialog(t *testing.T) {
	r := newRig(t)
	r.bind("bob", "<sip:bob@[2001:db8::2];x=y>")
	r.send(r.make("INVITE", bob, "1", "Max-Forwards: 70", "X-Other: as, it <came>;", "Contact: <sip:carol@[2001:db8::1]>"), caller)
	invite := r.got("INVITE", "2001:db8::2")
	if invite.URI != "sip:bob@[2001:db8::2];x=y" || invite.Get("Max-Forwards") != "69" || len(invite.All("Via")) != 2 || invite.Get("X-Other") != "as, it <came>;" ||
		!strings.HasPrefix(invite.Get("Via"), "SIP/2.0/UDP [2001:db8::5]:5060;branch=z9hG4bK") || len(invite.All("Record-Route")) != 1 {
		t.Fatalf("what goes on is\n%s", invite)
	}
	for _, status := range []int{100, 180, 200} {
		answer := message.Reply(invite, status, "Reason", "b")
		answer.Add("Record-Route", invite.Get("Record-Route"))
		r.send(answer, "[2001:db8::2]:5060")
	}
	if ok := r.got("200", "2001:db8::1"); len(ok.All("Via")) != 1 || ok.Get("Record-Route") != invite.Get("Record-Route") {
		t.Errorf("what comes back is\n%s", ok)
	}
	route := "Route: " + invite.Get("Record-Route")
	for i, tt := range []struct{ method, uri, from, to string }{
		{"ACK", "sip:bob@[2001:db8::2]", caller, "2001:db8::2"},
		{"INVITE", "sip:bob@[2001:db8::9]", caller, "2001:db8::9"}, // the target has moved
		{"BYE", "sip:carol@[2001:db8::1]", "[2001:db8::2]:5060", "2001:db8::1"},
		{"BYE", "sip:bob@192.0.2.2", caller, "192.0.2.2"},
	} {
		r.send(r.make(tt.method, tt.uri, fmt.Sprint("d", i), route), tt.from)
		if m := r.got(tt.method, tt.to); m.Has("Route") || m.URI != tt.uri || m.Get("Max-Forwards") != "70" {
			t.Errorf("in the dialog:\n%s", m)
		}
	}
	// The route is good for this dialog alone.
	for _, method := range []string{"ACK", "BYE"} {
		other := r.make(method, "sip:victim@[2001:db8::9]", "other"+method, route)
		other.Set("Call-ID", "another")
		r.inbox = nil
		r.send(other, caller)
		if got := r.told(); strings.Contains(got, method) {
			t.Errorf("another dialog by that route: %s", got)
		}
	}
	r.empty()
}

// TestRefused answers what is not passed on.
func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		name, method, uri string
		fields            []string
		status            int
		verdict           Verdict
	}{
		{"no more hops", "INVITE", bob, []string{"Max-Forwards: 0"}, 483, TooManyHops},
		{"an extension of proxies", "INVITE", bob, []string{"Proxy-Require: x"}, 420, ProxyExtension},
		{"an extension of the other end is not looked at", "OPTIONS", bob, []string{"Require: x"}, 480, NoBinding},
		{"an unknown scheme", "OPTIONS", "soap.beep://192.0.2.103:3002", nil, 416, UnknownScheme},
		{"an account without a contact", "INVITE", bob, nil, 480, NoBinding},
		{"no account", "INVITE", "sip:nobody@example.com", nil, 404, NoBinding},
		{"a number of no one", "INVITE", "tel:+1", nil, 403, ForeignTarget},
		{"a stranger calls a stranger", "INVITE", "sip:x@[2001:db8::9]", nil, 403, ForeignTarget},
		{"a stranger by a route", "INVITE", bob, []string{"Route: <sip:[2001:db8::9];lr>"}, 403, ForeignTarget},
		{"a route that a stranger has made up", "INVITE", "sip:x@[2001:db8::9]", []string{"Route: <sip:00@[2001:db8::5];lr>"}, 403, ForeignTarget},
		{"who gives himself out for alice", "INVITE", bob, []string{"X-From: alice"}, 407, Unproved},
		{"who gives himself out for nobody here", "INVITE", bob, []string{"X-From: nobody"}, 407, Unproved},
		{"a CANCEL of nothing", "CANCEL", bob, nil, 481, Unmatched},
		{"more branches than allowed", "INVITE", "sip:user@example.com", []string{"Max-Breadth: 1"}, 440, TooManyForks},
		{"the proxy itself, as somebody", "INVITE", "sip:x@[2001:db8::5]", nil, 404, NoBinding},
	} {
		r := newRig(t)
		r.bind("user", "<sip:[2001:db8::2]>", "<sip:[2001:db8::3]>")
		m := r.make(tt.method, tt.uri, "1", tt.fields...)
		if name := m.Get("X-From"); name != "" {
			m.Set("From", "<sip:"+name+"@example.com>;tag=1")
		}
		r.send(m, caller)
		if got := r.told(); got != fmt.Sprintf("%d :1", tt.status) {
			t.Errorf("%s: %s, want %d", tt.name, got, tt.status)
		}
		if servers, _ := r.p.layer.Len(); servers != 0 {
			t.Errorf("%s: whoever forges a source has taken room", tt.name)
		}
		if n := r.p.Verdicts(); n[tt.verdict] != 1 {
			t.Errorf("%s: counted as %v, not as %s", tt.name, n, tt.verdict)
		}
		r.empty()
		r.expect(tt.name+", later", "")
	}
	r := newRig(t)
	r.send(r.make("OPTIONS", "sip:example.com", "1"), caller)
	r.expect("the proxy is asked", "200 :1")
}

// TestLoop finds a request that goes round, and lets one spiral (RFC 5393).
func TestLoop(t *testing.T) {
	r := newRig(t)
	r.bind("bob", "<sip:bob@[2001:db8::2]>")
	r.bind("user", "<sip:bob@[2001:db8::2]>")
	r.send(r.make("INVITE", bob, "1"), caller)
	spiral := r.got("INVITE", "2001:db8::2")
	spiral.URI = "sip:user@example.com"
	spiral.Prepend("Via", "SIP/2.0/UDP [2001:db8::2];branch=z9hG4bKspiral")
	r.send(spiral, "[2001:db8::2]:5060")
	loop := r.got("INVITE", "2001:db8::2")
	loop.URI = bob
	loop.Prepend("Via", "SIP/2.0/UDP [2001:db8::2];branch=z9hG4bKloop")
	r.send(loop, "[2001:db8::2]:5060")
	r.expect("the third time", "482 :2")
}

// TestForks tries contacts by preference, and sends the best answer back (sections 16.6 and 16.7).
func TestForks(t *testing.T) {
	type step struct {
		from, status int
		want         string
	}
	for _, tt := range []struct {
		name     string
		contacts []string
		steps    []step
	}{
		{"one by one", []string{"<sip:[2001:db8::2]>;q=0.9", "<sip:[2001:db8::3]>;q=0.5"}, []step{
			{0, 0, "100 :1, INVITE :2"}, {2, 486, "ACK :2, INVITE :3"}, {3, 180, "180 :1"}, {3, 200, "200 :1"},
		}},
		{"at once; the first to answer ends the other", []string{"<sip:[2001:db8::2]>", "<sip:[2001:db8::3]>"}, []step{
			{0, 0, "100 :1, INVITE :2, INVITE :3"}, {2, 180, "180 :1"}, {3, 180, "180 :1"}, {3, 200, "200 :1, CANCEL :2"}, {2, 487, "ACK :2"},
		}},
		{"one that has not answered at all is cancelled when it does", []string{"<sip:[2001:db8::2]>", "<sip:[2001:db8::3]>"}, []step{
			{0, 0, "100 :1, INVITE :2, INVITE :3"}, {3, 200, "200 :1"}, {2, 180, "CANCEL :2"}, {2, 487, "ACK :2"},
		}},
		{"two that answer", []string{"<sip:[2001:db8::2]>", "<sip:[2001:db8::3]>"}, []step{
			{0, 0, "100 :1, INVITE :2, INVITE :3"}, {3, 200, "200 :1"}, {2, 200, "200 :1"}, {2, 200, "200 :1"},
		}},
		{"the lowest class is the best", []string{"<sip:[2001:db8::2]>", "<sip:[2001:db8::3]>"}, []step{
			{0, 0, "100 :1, INVITE :2, INVITE :3"}, {2, 500, "ACK :2"}, {3, 486, "ACK :3, 486 :1"},
		}},
		{"what tells how to go on is the best of a class", []string{"<sip:[2001:db8::2]>", "<sip:[2001:db8::3]>"}, []step{
			{0, 0, "100 :1, INVITE :2, INVITE :3"}, {2, 404, "ACK :2"}, {3, 484, "ACK :3, 484 :1"},
		}},
		{"one that refuses for all ends the call", []string{"<sip:[2001:db8::2]>", "<sip:[2001:db8::3]>", "<sip:[2001:db8::4]>;q=0.1"}, []step{
			{0, 0, "100 :1, INVITE :2, INVITE :3"}, {3, 180, "180 :1"}, {2, 603, "ACK :2, CANCEL :3"}, {3, 487, "ACK :3, 603 :1"},
		}},
		{"503 is not the proxy's own", []string{"<sip:[2001:db8::2]>"}, []step{{0, 0, "100 :1, INVITE :2"}, {2, 503, "ACK :2, 500 :1"}}},
		{"redirections go back", []string{"<sip:[2001:db8::2]>"}, []step{{0, 0, "100 :1, INVITE :2"}, {2, 302, "ACK :2, 302 :1"}}},
		{"one contact twice", []string{"<sip:[2001:db8::2]>", "<sip:[2001:db8::2]>;+sip.instance=\"<a>\";reg-id=1"}, []step{{0, 0, "100 :1, INVITE :2"}}},
		{"one terminal by one flow", []string{"<sip:[2001:db8::2]>;+sip.instance=\"<a>\";reg-id=1", "<sip:[2001:db8::3]>;+sip.instance=\"<a>\";reg-id=2"}, []step{{0, 0, "100 :1, INVITE :2"}}},
		{"no way to one", []string{"<sip:[2001:db8::2];transport=sctp>", "<sip:[2001:db8::3]>;q=0.1"}, []step{{0, 0, "100 :1, INVITE :3"}, {3, 200, "200 :1"}}},
		{"no way to any", []string{"<sip:[ff02::1]>"}, []step{{0, 0, "100 :1, 500 :1"}}},
	} {
		r := newRig(t)
		r.bind("bob", tt.contacts...)
		asked := map[int]*message.Message{}
		for i, s := range tt.steps {
			if s.status == 0 {
				r.send(r.make("INVITE", bob, "1"), caller)
			} else {
				r.send(message.Reply(asked[s.from], s.status, "Reason", fmt.Sprint(s.from)), fmt.Sprintf("[2001:db8::%d]:5060", s.from))
			}
			for _, one := range r.inbox {
				if one.Message.Method == "INVITE" {
					asked[int(one.To.Remote.Addr().As16()[15])] = one.Message
				}
			}
			r.expect(fmt.Sprintf("%s, step %d", tt.name, i), s.want)
		}
		r.empty()
	}
}

// TestChallengesAreCollected sends those of all branches back (section 16.7, number 7).
func TestChallengesAreCollected(t *testing.T) {
	r := newRig(t)
	r.bind("bob", "<sip:[2001:db8::2]>", "<sip:[2001:db8::3]>")
	r.send(r.make("OPTIONS", bob, "1"), caller)
	for _, one := range append([]transaction.Send{}, r.inbox...) {
		answer := message.Reply(one.Message, 401, "Unauthorized", "x")
		answer.Add("WWW-Authenticate", "Digest of "+one.To.Remote.String())
		r.send(answer, one.To.Remote.String())
	}
	if got := r.got("401", "2001:db8::1").All("WWW-Authenticate"); len(got) != 2 {
		t.Errorf("challenges: %q", got)
	}
}

// TestCancel ends a call at the caller's wish (sections 9.2 and 16.10).
func TestCancel(t *testing.T) {
	r := newRig(t)
	r.bind("bob", "<sip:[2001:db8::2]>;q=1", "<sip:[2001:db8::3]>;q=0.5")
	r.send(r.make("INVITE", bob, "1"), caller)
	invite := r.got("INVITE", "2001:db8::2")
	cancel := r.make("CANCEL", bob, "1")
	r.send(cancel, caller)
	r.expect("before there is an answer", "200 :1")
	r.send(message.Reply(invite, 180, "Ringing", "b"), "[2001:db8::2]:5060")
	r.expect("then", "CANCEL :2, 180 :1")
	r.send(message.Reply(invite, 487, "Request Terminated", "b"), "[2001:db8::2]:5060")
	r.expect("no further contact is tried", "ACK :2, 487 :1")
	r.empty()
}

// TestTimerC ends what rings for too long (section 16.8), and what does not end when cancelled.
func TestTimerC(t *testing.T) {
	r := newRig(t)
	r.bind("bob", "<sip:[2001:db8::2]>;expires=3600")
	r.send(r.make("INVITE", bob, "1"), caller)
	invite := r.got("INVITE", "2001:db8::2")
	ring := message.Reply(invite, 180, "Ringing", "b")
	r.send(ring, "[2001:db8::2]:5060")
	r.until(100 * time.Second)
	r.send(ring, "[2001:db8::2]:5060")
	r.expect("rings", "180 :1, 180 :1")
	r.until(284 * time.Second)
	r.expect("each provisional response gives it more time", "")
	r.until(285 * time.Second)
	r.expect("too long", "CANCEL :2")
	r.send(ring, "[2001:db8::2]:5060") // gives no more time
	r.send(message.Reply(transaction.Cancel(invite), 200, "OK", "b"), "[2001:db8::2]:5060")
	r.told()
	r.until(318 * time.Second)
	if got := r.told(); !strings.HasPrefix(got, "408 :1") {
		t.Errorf("what does not end: %s", got)
	}
	r.empty()
}

// TestNoAnswer gives up what does not answer: INVITE with 408, others without a word (RFC 4320).
func TestNoAnswer(t *testing.T) {
	for method, want := range map[string]bool{"INVITE": true, "OPTIONS": false} {
		r := newRig(t)
		r.bind("bob", "<sip:[2001:db8::2]>;expires=3600")
		r.send(r.make(method, bob, "1"), caller)
		r.until(40 * time.Second)
		if got := r.told(); strings.Contains(got, "408 :1") != want {
			t.Errorf("%s: %s", method, got)
		}
		r.empty()
	}
}

// TestRedirect answers with the contacts (section 8.3), and with none that is where the request was.
func TestRedirect(t *testing.T) {
	r := newRig(t, func(_ *Settings, p *ProxySettings) { p.Redirect = true })
	r.bind("bob", "<sip:bob@[2001:db8::2]>;q=0.5", "<sip:bob@[2001:db8::3]>")
	r.bind("user", "<sip:user@example.com>")
	r.send(r.make("INVITE", bob, "1"), caller)
	if got := r.got("302", "2001:db8::1").All("Contact"); fmt.Sprint(got) != "[<sip:bob@[2001:db8::3]> <sip:bob@[2001:db8::2]>;q=0.500]" {
		t.Errorf("contacts: %s", got)
	}
	r.send(r.make("INVITE", "sip:user@example.com", "2"), caller)
	r.expect("to where it was", "480 :1")
	r.send(r.make("ACK", bob, "1"), caller)
	r.expect("the ACK ends here", "")
	r.empty()
}

// TestProof passes on for who has an account, in his own name (section 22.3).
func TestProof(t *testing.T) {
	for _, tt := range []struct {
		name, from, as, uri string
		status              int
	}{
		{"alice calls bob", "alice", "alice", bob, 0},
		{"alice calls a stranger", "alice", "alice", "sip:x@[2001:db8::9]", 0},
		{"bob in the name of alice", "alice", "bob", bob, 403},
	} {
		r := newRig(t)
		r.bind("bob", "<sip:bob@[2001:db8::2]>")
		ask := func(branch string, fields ...string) {
			m := r.make("INVITE", tt.uri, branch, fields...)
			m.Set("From", "<sip:"+tt.from+"@example.com>;tag=1")
			r.send(m, caller)
		}
		ask("1")
		c, ok := digest.Choose(r.got("407", "2001:db8::1").All("Proxy-Authenticate"), false)
		if !ok {
			t.Fatal("no challenge")
		}
		a := c.Answer(tt.as, c.Algorithm.HA1(tt.as, realm, tt.as), "INVITE", tt.uri, "cnonce", 1)
		ask("2", "Proxy-Authorization: "+a.String())
		if tt.status != 0 {
			r.expect(tt.name, fmt.Sprintf("%d :1", tt.status))
			continue
		}
		for _, one := range r.inbox {
			if one.Message.Method == "INVITE" && one.Message.Has("Proxy-Authorization") {
				t.Errorf("%s: the proof is passed on", tt.name)
			}
		}
		if got := r.told(); !strings.Contains(got, "INVITE :") {
			t.Errorf("%s: %s", tt.name, got)
		}
	}
}

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

// TestRepetitions answers a REGISTER that comes again as before, if it has changed something, and
// keeps nothing of one that was refused.
func TestRepetitions(t *testing.T) {
	r := newRig(t)
	p := newPhone(t, r.p.Engine, "bob")
	c := p.challenged()
	register := p.request("Contact: <sip:bob@[2001:db8::1]>")
	r.send(register.Clone(), caller)
	if servers, _ := r.p.layer.Len(); servers != 0 {
		t.Error("what was refused is remembered")
	}
	r.expect("without credentials", "401 :1")
	a := c.Answer("bob", c.Algorithm.HA1("bob", realm, "bob"), "REGISTER", register.URI, "cnonce", 1)
	register.Add("Authorization", a.String())
	r.send(register.Clone(), caller)
	first := r.got("200", "2001:db8::1")
	r.send(register.Clone(), caller)
	if again := r.got("200", "2001:db8::1"); again.String() != first.String() {
		t.Errorf("the second answer is\n%s\nwant\n%s", again, first)
	}
	r.empty()
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

// TestOverload answers what there is no room for, without remembering it.
func TestOverload(t *testing.T) {
	r := newRig(t, func(_ *Settings, p *ProxySettings) { p.Transactions.Servers = 1 })
	r.bind("bob", "<sip:[2001:db8::2]>")
	for i := range 3 {
		r.send(r.make("OPTIONS", bob, fmt.Sprint(i)), caller)
	}
	r.expect("three", "OPTIONS :2, 503 :1, 503 :1")
}

// FuzzProxy sends requests to nobody but those that are registered here.
func FuzzProxy(f *testing.F) {
	f.Add([]byte("INVITE sip:bob@example.com SIP/2.0\r\nVia: SIP/2.0/UDP x;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:c@d>\r\nCall-ID: 1\r\nCSeq: 1 INVITE\r\nRoute: <sip:x@[2001:db8::5];lr>\r\n\r\n"))
	f.Add([]byte("SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP [2001:db8::5];branch=z9hG4bK1, SIP/2.0/UDP 255.255.255.255\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:c@d>\r\nCall-ID: 1\r\nCSeq: 1 INVITE\r\n\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, fault := message.Parse(text)
		if fault != nil {
			return
		}
		r := newRig(t)
		r.bind("bob", "<sip:[2001:db8::2]>")
		r.p.Handle(m, target(caller), r.now, &r.out)
		for _, s := range r.out.Sends {
			if to := s.To.Remote.Addr().String(); s.Message.IsRequest() && to != "2001:db8::2" || !s.Message.IsRequest() && to != "2001:db8::1" {
				t.Errorf("%q\nsends to %s\n%s", text, to, s.Message)
			}
		}
	})
}

// TestAmplification bounds what an answer to a forged source has more than the request.
func TestAmplification(t *testing.T) {
	for _, tt := range []struct {
		name, request string
		want          string // the status
		most          float64
	}{
		{"a challenge", "REGISTER sip:example.com SIP/2.0\r\nv:SIP/2.0/UDP a;branch=z9hG4bKx\r\nf:<sip:bob@example.com>\r\nt:<sip:bob@example.com>\r\ni:1\r\nCSeq:1 REGISTER\r\n\r\n", "401", 5},
		{"a refusal", "BYE sip:a@b SIP/2.0\r\nv:SIP/2.0/UDP a;branch=z9hG4bKx\r\nf:<sip:a@b>\r\nt:<sip:a@b>\r\ni:1\r\nCSeq:1 BYE\r\n\r\n", "403", 1.9},
	} {
		m, f := message.Parse([]byte(tt.request))
		if f != nil {
			t.Fatal(f)
		}
		r := newRig(t)
		r.send(m, caller)
		if len(r.inbox) != 1 || fmt.Sprint(r.inbox[0].Message.Status) != tt.want {
			t.Fatalf("%s: %+v", tt.name, r.inbox)
		}
		if ratio := float64(len(r.inbox[0].Message.Append(nil))) / float64(len(tt.request)); ratio > tt.most {
			t.Errorf("%s: %.2f of the request, want %.2f at most", tt.name, ratio, tt.most)
		}
		r.until(60e9)
		if len(r.inbox) != 1 {
			t.Errorf("%s: sent again", tt.name)
		}
	}
}
