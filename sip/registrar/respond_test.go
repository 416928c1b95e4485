// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"testing"

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
