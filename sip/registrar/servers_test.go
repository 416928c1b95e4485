// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// found answers the last question for a name by hosts, the best first.
func (r *rig) found(hosts ...string) {
	r.t.Helper()
	var to []transaction.Target
	for _, host := range hosts {
		to = append(to, transaction.Target{Transport: "UDP", Remote: netip.MustParseAddrPort("[2001:db8::" + host + "]:5060")})
	}
	r.p.Resolved(r.named[len(r.named)-1].ID, to, r.now, &r.out)
	r.take()
}

// TestNextServer goes to the next server of a name where one fails, with another branch (RFC 3263
// section 4.3, RFC 3261 section 16.6, number 7).
func TestNextServer(t *testing.T) {
	type step struct {
		from, status int // 0: the caller gives up
		want         string
	}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"unavailable", []step{{2, 503, "ACK :2, INVITE :3"}, {3, 180, "180 :1"}, {3, 200, "200 :1"}}},
		{"unavailable after 100", []step{{2, 100, ""}, {2, 503, "ACK :2, INVITE :3"}, {3, 486, "ACK :3, 486 :1"}}},
		{"all of them", []step{{2, 503, "ACK :2, INVITE :3"}, {3, 503, "ACK :3, INVITE :4"}, {4, 503, "ACK :4, 500 :1"}}},
		{"it rang there", []step{{2, 180, "180 :1"}, {2, 503, "ACK :2, 500 :1"}}},
		{"another refusal", []step{{2, 500, "ACK :2, 500 :1"}}},
		{"for a caller who has gone", []step{{2, 100, ""}, {0, 0, "200 :1, CANCEL :2"}, {2, 503, "ACK :2, 500 :1"}}},
	} {
		r := newRig(t)
		r.bind("bob", "<sip:bob@example.net>")
		r.send(r.make("INVITE", bob, "1"), caller)
		r.found("2", "3", "4")
		asked, branches := map[int]*message.Message{}, map[string]bool{}
		note := func() {
			for _, one := range r.inbox {
				if v, _ := one.Message.Via(); one.Message.Method == "INVITE" {
					asked[int(one.To.Remote.Addr().As16()[15])], branches[v.Branch()] = one.Message, true
				}
			}
		}
		note()
		r.expect(tt.name, "100 :1, INVITE :2")
		for i, s := range tt.steps {
			if s.from == 0 {
				r.send(r.make("CANCEL", bob, "1"), caller)
			} else {
				r.send(message.Reply(asked[s.from], s.status, "Reason", fmt.Sprint(s.from)), fmt.Sprintf("[2001:db8::%d]:5060", s.from))
			}
			note()
			r.expect(fmt.Sprintf("%s, step %d", tt.name, i), s.want)
		}
		if len(branches) != len(asked) {
			t.Errorf("%s: %d branches for %d servers", tt.name, len(branches), len(asked))
		}
		r.empty()
	}
}

// TestSilentServer goes on after Timer B, and has other requests go to the next server at once for a
// while; who waits for the answer to another request has given up by then.
func TestSilentServer(t *testing.T) {
	for _, method := range []string{"INVITE", "OPTIONS"} {
		r := newRig(t)
		r.bind("bob", "<sip:bob@example.net>;expires=3600")
		r.send(r.make(method, bob, "1"), caller)
		r.found("2", "3")
		r.until(31 * time.Second)
		if got := r.told(); !strings.Contains(got, method+" :2") || strings.Contains(got, ":3") {
			t.Errorf("%s at first: %s", method, got)
		}
		r.until(33 * time.Second)
		if got, want := r.told(), method == "INVITE"; strings.Contains(got, "INVITE :3") != want || strings.Contains(got, "OPTIONS :3") {
			t.Errorf("%s then: %s", method, got)
		}
		r.send(r.make("OPTIONS", bob, "2"), caller)
		r.found("2", "3")
		r.expect("another request", "OPTIONS :3")
		r.until(3 * time.Minute)
		r.told()
		r.send(r.make("OPTIONS", bob, "3"), caller)
		r.found("2", "3")
		r.expect("much later", "OPTIONS :2")
		r.empty()
	}
}

// TestAcknowledgedByName looks the name up that the ACK of a 2xx goes to, and goes to no server that
// has just failed.
func TestAcknowledgedByName(t *testing.T) {
	r := newRig(t)
	r.bind("bob", "<sip:bob@example.net>")
	r.send(r.make("INVITE", bob, "1"), caller)
	r.found("2", "3")
	invite := r.got("INVITE", "2001:db8::2")
	r.send(message.Reply(invite, 503, "Service Unavailable", "b"), "[2001:db8::2]:5060")
	invite = r.got("INVITE", "2001:db8::3")
	r.send(message.Reply(invite, 200, "OK", "b"), "[2001:db8::3]:5060")
	r.told()
	ack := r.make("ACK", "sip:bob@example.net", "2", "Route: "+invite.Get("Record-Route"))
	r.send(ack, caller)
	r.expect("before the name is known", "")
	r.found("2", "3")
	r.expect("then", "ACK :3")
	r.send(ack.Clone(), caller)
	r.found()
	r.expect("nobody knows it", "")
	if n := r.p.Verdicts()[NoWay]; n != 1 {
		t.Errorf("%d had no way", n)
	}
	r.empty()
}

// TestLargeAcknowledged goes by TCP, and when its sender repeats it by UDP, if nobody takes a connection (RFC 3261
// section 18.1.1).
func TestLargeAcknowledged(t *testing.T) {
	for _, contact := range []string{"sip:bob@[2001:db8::2]", "sip:bob@example.net"} {
		r := newRig(t)
		r.bind("bob", "<sip:[2001:db8::2]>;expires=3600")
		r.send(r.make("INVITE", bob, "1"), caller)
		invite := r.got("INVITE", "2001:db8::2")
		r.send(message.Reply(invite, 200, "OK", "b"), "[2001:db8::2]:5060")
		r.told()
		for _, want := range []string{"TCP", "TCP", "UDP", "TCP"} {
			r.send(r.make("ACK", contact, "2", "X: "+strings.Repeat("x", 1300), "Route: "+invite.Get("Record-Route")), caller)
			if len(r.named) > 0 {
				r.p.Resolved(r.named[0].ID, []transaction.Target{{Transport: "TCP", Remote: netip.MustParseAddrPort("[2001:db8::2]:5060")}}, r.now, &r.out)
				r.take()
				r.named = nil
			}
			if len(r.inbox) != 1 || r.inbox[0].To.Transport != want {
				t.Fatalf("%s by %s: %+v", contact, want, r.inbox)
			}
			to := r.inbox[0].To
			v, _ := r.inbox[0].Message.Via()
			if r.inbox = nil; v.Transport != want {
				t.Errorf("%s in Via, want %s", v.Transport, want)
			}
			switch r.now.Sub(start) {
			case 0: // the connection was good, and is gone
				r.p.Unreachable(to, r.now, &r.out)
				r.until(time.Second)
			case time.Second:
				r.p.Unopened(to, r.now)
				r.until(2 * time.Second)
			default:
				r.until(2 * time.Minute)
			}
			r.told()
		}
	}
}
