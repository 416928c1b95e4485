// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"fmt"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
)

// TestResponseForNobody takes a response that names nobody before this proxy for 502, so that whoever answers like
// that leaves no call open (section 16.7, number 3).
func TestResponseForNobody(t *testing.T) {
	for _, tt := range []struct {
		method string
		status int
		want   string
	}{
		{"INVITE", 180, ""},
		{"INVITE", 200, "INVITE :3"},
		{"INVITE", 486, "ACK :2, INVITE :3"},
		{"INVITE", 603, "ACK :2, INVITE :3"},
		{"OPTIONS", 200, "OPTIONS :3"},
	} {
		r := newRig(t)
		r.bind("bob", "<sip:[2001:db8::2]>;q=1;expires=3600", "<sip:[2001:db8::3]>;q=0.5;expires=3600")
		r.send(r.make(tt.method, bob, "1"), caller)
		answer := message.Reply(r.got(tt.method, "2001:db8::2"), tt.status, "Reason", "b")
		top := answer.Get("Via")
		answer.Remove("Via")
		answer.Prepend("Via", top)
		r.send(answer.Clone(), "[2001:db8::2]:5060")
		r.expect(tt.method, tt.want)
		if tt.status == 200 {
			r.send(answer, "[2001:db8::2]:5060")
			r.expect("once more", "")
		}
		if tt.status != 180 {
			r.send(r.make("CANCEL", bob, "1"), caller)
		}
		r.empty()
	}
}

// TestRepeatedAccepts brings a stranger every 2xx that a callee repeats until there is an ACK, so that one who was
// without a network for some seconds still has his call (sections 13.3.1.4 and 16.7, number 5).
func TestRepeatedAccepts(t *testing.T) {
	r := newRig(t)
	r.bind("bob", "<sip:[2001:db8::2]>;expires=3600")
	r.send(r.make("INVITE", bob, "1"), caller)
	invite := r.got("INVITE", "2001:db8::2")
	for _, after := range repeats {
		r.until(after)
		r.send(message.Reply(invite, 200, "OK", "b"), "[2001:db8::2]:5060")
		r.expect(after.String(), "200 :1")
	}
	r.empty()
}

// repeats are when a 2xx is sent for which no ACK comes (section 13.3.1.4).
var repeats = []time.Duration{
	0, 500 * time.Millisecond, 1500 * time.Millisecond, 3500 * time.Millisecond, 7500 * time.Millisecond, 11500 * time.Millisecond,
	15500 * time.Millisecond, 19500 * time.Millisecond, 23500 * time.Millisecond, 27500 * time.Millisecond, 31500 * time.Millisecond,
}

// TestCalleesBehindAProxy has each callee of a branch that forks further on heard, whatever the others repeat
// (section 16.7, number 5), and bounds what many of them bring a stranger.
func TestCalleesBehindAProxy(t *testing.T) {
	r := newRig(t)
	r.bind("bob", "<sip:[2001:db8::2]>;expires=3600")
	r.send(r.make("INVITE", bob, "1"), caller)
	invite := r.got("INVITE", "2001:db8::2")
	answer := func(tag string, status int, fields ...string) {
		m := message.Reply(invite, status, "Reason", tag)
		for _, number := range fields {
			m.Add("RSeq", number)
		}
		r.send(m, "[2001:db8::2]:5060")
	}
	for range 100 {
		answer("a", 180)
	}
	r.told()
	answer("b", 180)
	r.expect("another rings", "180 :1")
	answer("a", 183, "1")
	r.told()
	answer("b", 183, "1")
	r.expect("another rings reliably", "183 :1")
	answer("a", 183, "1")
	r.expect("the first again", "")
	for range 10 {
		answer("a", 200)
	}
	r.told()
	for _, after := range repeats {
		r.until(after)
		answer("a", 200)
		r.told()
		answer("b", 200)
		r.expect("another answers "+after.String(), "200 :1")
	}
	for i := range 1000 {
		answer(fmt.Sprint(i), 200)
	}
	if most, n := sparedCallees*sparedAccepts, len(r.inbox); n > most {
		t.Errorf("%d answers of as many callees, want %d at most", n, most)
	}
	r.told()
	r.empty()
}

// TestRings brings a stranger what rings later, however much has rung before: by another branch, reliably, or after
// some time. 100, which goes no further, counts for nothing.
func TestRings(t *testing.T) {
	r := newRig(t)
	r.bind("bob", "<sip:[2001:db8::2]>;expires=3600", "<sip:[2001:db8::3]>;expires=3600")
	r.send(r.make("INVITE", bob, "1"), caller)
	var invites []*message.Message
	for _, one := range r.inbox {
		if one.Message.Method == "INVITE" {
			invites = append(invites, one.Message)
		}
	}
	r.told()
	ring := func(branch, status int, fields ...string) {
		m := message.Reply(invites[branch], status, "Reason", "b")
		for _, number := range fields {
			m.Add("RSeq", number)
		}
		r.send(m, "[2001:db8::2]:5060")
	}
	for range 100 {
		ring(0, 100)
	}
	r.expect("100", "")
	ring(0, 180)
	r.expect("the first", "180 :1")
	for range 100 {
		ring(0, 180)
	}
	r.told()
	ring(0, 180)
	r.expect("too many", "")
	ring(0, 183, "1")
	r.expect("reliably", "183 :1")
	ring(0, 183, "1")
	r.expect("the same again", "")
	ring(0, 183, "2")
	r.expect("reliably, the next", "183 :1")
	ring(1, 180)
	r.expect("another branch", "180 :1")
	r.until(5 * time.Second)
	ring(0, 180)
	r.expect("later", "180 :1")
	ring(0, 486)
	ring(1, 486)
	r.empty()
}
