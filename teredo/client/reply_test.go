// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/teredo"
)

// TestReplySizes holds what one datagram makes the client send, against its size with all
// headers: SECURITY.md has the same figures.
func TestReplySizes(t *testing.T) {
	const outer = 20 + 8
	stranger := callFrom(1, attackerPort)
	for _, tt := range []struct {
		name string
		from netip.AddrPort
		in   func(own netip.Addr) []byte
		want string // octets sent / octets received
	}{
		{"first bubble of a stranger by the server", primaryPort, func(own netip.Addr) []byte {
			return throughServer(attackerPort, bubble(stranger, own, 0))
		}, "2.00"},
		{"first bubble of a stranger by the server, with a nonce", primaryPort, func(own netip.Addr) []byte {
			return throughServer(attackerPort, bubble(stranger, own, 7))
		}, "1.93"},
		{"with a port of its own", primaryPort, func(own netip.Addr) []byte {
			tr := teredo.Trailers{HasNonce: true, Nonce: 7, RandomPort: 7777}
			return throughServer(attackerPort, tr.AppendTo(teredo.AppendBubble(nil, stranger, own)))
		}, "2.70"},
		{"with a port of its own, without a nonce", primaryPort, func(own netip.Addr) []byte {
			tr := teredo.Trailers{RandomPort: 7777}
			return throughServer(attackerPort, tr.AppendTo(teredo.AppendBubble(nil, stranger, own)))
		}, "2.75"},
		{"with the port of a service", primaryPort, func(own netip.Addr) []byte {
			tr := teredo.Trailers{HasNonce: true, Nonce: 7, RandomPort: 777}
			return throughServer(attackerPort, tr.AppendTo(teredo.AppendBubble(nil, stranger, own)))
		}, "1.84"},
		{"bubble of a relay by the server", primaryPort, func(own netip.Addr) []byte {
			return throughServer(relayAddr, bubble(hostAddr, own, 0))
		}, "0.89"},
		{"direct bubble", attackerPort, func(own netip.Addr) []byte { return bubble(stranger, own, 0) }, "0.00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newQualified(t)
			in := tt.in(b.address())
			b.udp(tt.from, in)
			sent := 0
			for _, d := range b.out.UDP {
				sent += len(d.Payload) + outer
			}
			if got := fmt.Sprintf("%.2f", float64(sent)/float64(len(in)+outer)); got != tt.want {
				t.Errorf("%d octets in %d datagrams for %d: %s times, want %s", sent, len(b.out.UDP), len(in)+outer, got, tt.want)
			}
		})
	}
}
