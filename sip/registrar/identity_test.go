// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// TestIdentities passes on what a trusted proxy says of a caller or callee, and of nobody else (RFC 3325 section 5).
func TestIdentities(t *testing.T) {
	said := []string{"P-Asserted-Identity: <sip:boss@example.com>", "p-preferred-identity: <sip:boss@example.com>", "Remote-Party-ID: <sip:boss@example.com>"}
	left := func(m *message.Message) (n int) {
		for _, name := range identities {
			n += len(m.All(name))
		}
		return n
	}
	for _, tt := range []struct {
		name, caller, callee string
		request, response    int // fields that are left
	}{
		{"strangers", "2001:db8::1", "2001:db8::2", 0, 0},
		{"a caller from a proxy", "2001:db8::8", "2001:db8::2", 3, 0},
		{"a callee behind a proxy", "2001:db8::1", "2001:db8::9", 0, 3},
	} {
		r := newRig(t, func(_ *Settings, p *ProxySettings) {
			p.Trusted = []netip.Prefix{netip.MustParsePrefix("2001:db8::8/127")}
		})
		r.bind("bob", "<sip:["+tt.callee+"]>")
		r.send(r.make("INVITE", bob, "1", said...), "["+tt.caller+"]:5060")
		invite := r.got("INVITE", tt.callee)
		if n := left(invite); n != tt.request {
			t.Errorf("%s: %d fields are left in\n%s", tt.name, n, invite)
		}
		for _, status := range []int{180, 200} {
			answer := message.Reply(invite, status, "Reason", "b")
			for _, name := range identities {
				answer.Add(name, "<sip:boss@example.com>")
			}
			r.send(answer, "["+tt.callee+"]:5060")
			at := slices.IndexFunc(r.inbox, func(s transaction.Send) bool { return s.Message.Status == status })
			if n := left(r.inbox[at].Message); n != tt.response {
				t.Errorf("%s: %d fields are left in\n%s", tt.name, n, r.inbox[at].Message)
			}
		}
		r.told()
		r.send(r.make("ACK", "sip:["+tt.callee+"]", "2", append(said, "Route: "+invite.Get("Record-Route"))...), "["+tt.caller+"]:5060")
		if n := left(r.got("ACK", tt.callee)); n != tt.request {
			t.Errorf("%s: %d fields are left in the ACK", tt.name, n)
		}
	}
	r := edge(t)
	for from, want := range map[string]bool{"2001:db8::7": true, "2001:db8::8": true, "2001:db8::1": false} {
		if got := r.p.believes(netip.MustParseAddr(from)); got != want {
			t.Errorf("before a next hop, %s is believed: %v", from, got)
		}
	}
}
