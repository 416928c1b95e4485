// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/teredo"
)

// TestReplySizes holds what one packet makes the relay send, repeats included, against its
// size with all headers: SECURITY.md has the same figures.
func TestReplySizes(t *testing.T) {
	const outer = 20 + 8
	carries := func(c *Config) { c.CarryClients = true }
	request := func() []byte {
		tr := teredo.Trailers{HasNonce: true, Nonce: 7}
		return tr.AppendTo(teredo.AppendBubble(nil, client, teredo.AllRouters))
	}
	for _, tt := range []struct {
		name   string
		change func(*Config)
		from   netip.AddrPort // not valid: IPv6
		in     []byte
		out4   string // octets sent by IPv4 / octets received
		out6   string // likewise, errors
	}{
		{"mere header to an unknown client", nil, netip.AddrPort{}, data(host, client, ""), "6.80", "2.20"},
		{"the same behind a NAT", func(c *Config) { c.BehindNAT = true }, netip.AddrPort{}, data(host, client, ""), "13.60", "2.20"},
		{"smallest packet with a transport header to an unknown client", nil, netip.AddrPort{}, data(host, client, "12345678"), "5.67", "2.00"},
		{"answer to a connectivity test", nil, netip.AddrPort{}, echoReply(host, client, 0), "5.69", "1.75"},
		{"largest packet to an unknown client", nil, netip.AddrPort{}, data(host, client, strings.Repeat("x", 1240)), "0.21", "1.00"},
		{"smallest packet at its last hop", nil, netip.AddrPort{}, hop(1, data(host, client, "12345678")), "0.00", "2.00"},
		{"request to be carried for", carries, mapped, request(), "1.00", "0.00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, func(c *Config) {
				if tt.change != nil {
					tt.change(c)
				}
			})
			received, out4, out6 := len(tt.in), 0, 0
			count := func() {
				for _, d := range b.out.UDP {
					out4 += len(d.Payload) + outer
				}
				for _, p := range b.out.IP {
					out6 += len(p)
				}
			}
			if tt.from.IsValid() {
				received += outer
				b.udp(tt.from, tt.in)
			} else {
				b.ip(tt.in)
			}
			count()
			for !b.r.Next().IsZero() {
				b.tick()
				count()
			}
			ratio := func(n int) string { return fmt.Sprintf("%.2f", float64(n)/float64(received)) }
			if ratio(out4) != tt.out4 || ratio(out6) != tt.out6 {
				t.Errorf("%d octets by IPv4 and %d by IPv6 for %d: %s and %s times, want %s and %s",
					out4, out6, received, ratio(out4), ratio(out6), tt.out4, tt.out6)
			}
		})
	}
}
