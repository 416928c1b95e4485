// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"fmt"
	"net/netip"
	"slices"
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
		{"who gives himself out for a number here", "INVITE", bob, []string{"X-From: tel"}, 407, Unproved},
		{"a CANCEL of nothing", "CANCEL", bob, nil, 481, Unmatched},
		{"more branches than allowed", "INVITE", "sip:user@example.com", []string{"Max-Breadth: 1"}, 440, TooManyForks},
		{"the proxy itself, as somebody", "INVITE", "sip:x@[2001:db8::5]", nil, 404, NoBinding},
	} {
		r := newRig(t)
		r.bind("user", "<sip:[2001:db8::2]>", "<sip:[2001:db8::3]>")
		m := r.make(tt.method, tt.uri, "1", tt.fields...)
		switch name := m.Get("X-From"); name {
		case "":
		case "tel":
			m.Set("From", "<tel:+1-555-0100>;tag=1")
		default:
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

// TestTakenOver has a stranger who knows Call-ID and tags of a call send requests in it to an address of
// record: without the route of the call they are of no dialog here.
func TestTakenOver(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*ProxySettings)
		to     string // the parameters of To
		route  bool   // that of the call
		want   string // behind what has happened
	}{
		{"by the tags alone", func(*ProxySettings) {}, ";tag=b", false, "481 :1"},
		{"with an empty tag", func(*ProxySettings) {}, ";tag", false, "481 :1"},
		{"by the route of the call", func(*ProxySettings) {}, ";tag=b", true, "passes"},
		{"a new call", func(*ProxySettings) {}, "", false, "passes"},
		{"by a proxy that is trusted", func(p *ProxySettings) { p.Trusted = []netip.Prefix{netip.MustParsePrefix("2001:db8::1/128")} }, ";tag=b", false, "passes"},
		{"of calls that this proxy has not stayed with", func(p *ProxySettings) { p.RecordRoute = false }, ";tag=b", false, "passes"},
		{"redirected", func(p *ProxySettings) { p.Redirect = true }, ";tag=b", false, "302 :1"},
	} {
		for _, method := range []string{"INVITE", "UPDATE", "BYE", "INFO", "REFER", "PRACK", "NOTIFY"} {
			r := newRig(t, func(_ *Settings, p *ProxySettings) { tt.change(p) })
			r.bind("bob", "<sip:bob@[2001:db8::2]>")
			m := r.make(method, bob, "1")
			m.Set("To", "<"+bob+">"+tt.to)
			if tt.route {
				m.Add("Route", "<sip:"+r.p.token(forDialog, "call", nil)+"@[2001:db8::5];lr>")
			}
			r.send(m, caller)
			want := tt.want
			if want == "passes" {
				want = method + " :2"
				if method == "INVITE" {
					want = "100 :1, " + want
				}
			}
			r.expect(tt.name+", "+method, want)
			if n := r.p.Verdicts()[Unmatched]; (n == 1) != (tt.want == "481 :1") {
				t.Errorf("%s, %s: %d are counted", tt.name, method, n)
			}
		}
	}
}

// TestMaddr goes where the maddr of a Request-URI leads, and nowhere else, unless that is this proxy
// (sections 16.4 and 16.5).
func TestMaddr(t *testing.T) {
	for _, tt := range []struct{ name, method, uri, from, want string }{
		{"of another, by a stranger", "INVITE", "sip:bob@example.com;maddr=2001:db8::9", "sip:carol@elsewhere.example.net", "403 :1"},
		{"of another, by a stranger who registers", "REGISTER", "sip:example.com;maddr=[2001:db8::9]", "sip:carol@elsewhere.example.net", "403 :1"},
		{"of another, as alice", "INVITE", "sip:bob@example.com;maddr=[2001:db8::9]", "sip:alice@example.com", "407 :1"},
		{"this proxy", "OPTIONS", "sip:bob@example.com;maddr=[2001:db8::5]", "sip:carol@elsewhere.example.net", "OPTIONS :2"},
		{"this proxy by its name", "OPTIONS", "sip:bob@example.com:5070;transport=udp;maddr=EXAMPLE.com", "sip:carol@elsewhere.example.net", "OPTIONS :2"},
		{"this proxy, for others", "OPTIONS", "sip:x@elsewhere.example.net;maddr=[2001:db8::5]", "sip:carol@elsewhere.example.net", "403 :1"},
		{"a port that is not this proxy's", "OPTIONS", "sip:bob@example.com:5070;maddr=[2001:db8::5]", "sip:carol@elsewhere.example.net", "403 :1"},
	} {
		r := newRig(t)
		r.bind("bob", "<sip:bob@[2001:db8::2]>")
		m := r.make(tt.method, tt.uri, "1")
		m.Set("From", "<"+tt.from+">;tag=c")
		r.send(m, caller)
		r.expect(tt.name, tt.want)
	}
	r := newRig(t, func(_ *Settings, p *ProxySettings) {
		p.Trusted = []netip.Prefix{netip.MustParsePrefix("2001:db8::1/128")}
	})
	r.bind("bob", "<sip:bob@[2001:db8::2]>")
	const uri = "sip:bob@example.com;maddr=[2001:db8::9]"
	r.send(r.make("OPTIONS", uri, "1"), caller)
	if m := r.got("OPTIONS", "2001:db8::9"); m.URI != uri {
		t.Errorf("what goes on is\n%s", m)
	}
	r.bind("user", "<sip:user@phone.example.net;maddr=[2001:db8::8]>")
	r.send(r.make("OPTIONS", "sip:user@example.com", "2"), caller)
	r.expect("of a contact", "OPTIONS :8")
}

// TestForwardedHere follows contacts in the proxy's own domain to the contacts of these, without a name
// server, and finds those that lead round (482).
func TestForwardedHere(t *testing.T) {
	for _, tt := range []struct {
		name     string
		contacts map[string][]string
		want     string
	}{
		{"to somebody else", map[string][]string{"bob": {"<sip:user@example.com>"}, "user": {"<sip:[2001:db8::2]>"}}, "OPTIONS :2"},
		{"to another domain here", map[string][]string{"bob": {"<sip:user@other.example.com>"}}, "480 :1"},
		{"to somebody without a contact", map[string][]string{"bob": {"<sip:user@example.com>"}}, "480 :1"},
		{"to himself", map[string][]string{"bob": {"<sip:bob@example.com>"}}, "482 :1"},
		{"to each other", map[string][]string{"bob": {"<sip:alice@example.com>"}, "alice": {"<sip:bob@example.com;x=y>"}}, "482 :1"},
		{"to himself, and a telephone", map[string][]string{"bob": {"<sip:bob@example.com>", "<sip:[2001:db8::2]>"}}, "OPTIONS :2"},
		{"first to each other, then to a telephone", map[string][]string{"bob": {"<sip:alice@example.com>", "<sip:user@example.com>;q=0.2"}, "alice": {"<sip:bob@example.com>"}, "user": {"<sip:[2001:db8::2]>"}}, "OPTIONS :2"},
		{"by two ways to one", map[string][]string{"bob": {"<sip:alice@example.com>", "<sip:user@example.com>"}, "alice": {"<sip:user@example.com>"}, "user": {"<sip:[2001:db8::2]>"}}, "OPTIONS :2"},
		{"with the preference of the first contact", map[string][]string{"bob": {"<sip:[2001:db8::2]>;q=0.5", "<sip:user@example.com>;q=0.4"}, "user": {"<sip:[2001:db8::3]>"}}, "OPTIONS :2"},
	} {
		r := newRig(t)
		for aor, contacts := range tt.contacts {
			r.bind(aor, contacts...)
		}
		r.send(r.make("OPTIONS", bob, "1"), caller)
		r.expect(tt.name, tt.want)
		if len(r.named) > 0 {
			t.Errorf("%s: a name server is asked for %v", tt.name, r.named)
		}
		r.empty()
	}
	// More of them than a call may have targets end like a loop.
	r := newRig(t, func(s *Settings, p *ProxySettings) {
		p.MaxForks = 2
		s.Accounts[0].Public = append(s.Accounts[0].Public, "sip:a1@example.com", "sip:a2@example.com")
	})
	r.bind("bob", "<sip:a1@example.com>")
	r.bind("a1", "<sip:a2@example.com>")
	r.bind("a2", "<sip:[2001:db8::2]>")
	r.send(r.make("OPTIONS", bob, "1"), caller)
	r.expect("too far", "482 :1")
	// A port of its own is that of another program; and the ACK of a call goes as its INVITE does.
	r = newRig(t)
	r.bind("bob", "<sip:bob@example.com:5070>")
	r.send(r.make("OPTIONS", bob, "1"), caller)
	if len(r.named) != 1 {
		t.Errorf("looked up: %v", r.named)
	}
	r.bind("user", "<sip:[2001:db8::2]>")
	r.inbox = nil
	r.send(r.make("ACK", "sip:user@example.com", "2", "Route: <sip:"+r.p.token(forDialog, "call", nil)+"@[2001:db8::5];lr>"), caller)
	r.expect("the ACK", "ACK :2")
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

// TestTimerCEnds with its branch: of calls that are refused at once nothing is left but what their transactions keep.
func TestTimerCEnds(t *testing.T) {
	r := newRig(t)
	r.bind("bob", "<sip:[2001:db8::2]>;expires=3600")
	r.send(r.make("INVITE", bob, "1"), caller)
	r.send(message.Reply(r.got("INVITE", "2001:db8::2"), 486, "Busy Here", "b"), "[2001:db8::2]:5060")
	r.until(64 * time.Second)
	if at := r.p.layer.Next(); !at.IsZero() {
		t.Errorf("there is something to do at %v", at.Sub(start))
	}
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
		const other = `Digest username="a", realm="other.example", nonce="n", uri="sip:x", response="r"`
		ask("2", "Proxy-Authorization: "+a.String(), "Proxy-Authorization: "+other)
		if tt.status != 0 {
			r.expect(tt.name, fmt.Sprintf("%d :1", tt.status))
			continue
		}
		for _, one := range r.inbox {
			if got := one.Message.All("Proxy-Authorization"); one.Message.Method == "INVITE" && !slices.Equal(got, []string{other}) {
				t.Errorf("%s: passed on is %q, and another proxy wants its own", tt.name, got)
			}
		}
		if got := r.told(); !strings.Contains(got, "INVITE :") {
			t.Errorf("%s: %s", tt.name, got)
		}
	}
}
