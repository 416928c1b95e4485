// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"fmt"
	"testing"
)

// TestReplySizes holds what an ICMP error takes against the packet that it is about:
// SECURITY.md has the same figures.
func TestReplySizes(t *testing.T) {
	b := engine(t, nil)
	port := b.openUDP(clientA, 1500, server6)
	for _, tt := range []struct {
		name string
		p    pkt
		want string // octets sent / octets received
	}{
		{"mere header from IPv6", pkt{src: clientA, dst: server6, hop: 1, proto: udpProto}, "2.20"},
		{"mere header from IPv4", pkt{src: server4, dst: poolIP, hop: 1, proto: udpProto}, "2.40"},
		{"smallest from IPv6", pkt{src: clientA, dst: server6, hop: 1, proto: udpProto, payload: udpMsg(1500, 53, 0)}, "2.00"},
		{"large from IPv6", pkt{src: clientA, dst: server6, hop: 1, proto: udpProto, payload: udpMsg(1500, 53, 1200)}, "1.03"},
		{"smallest from IPv4", pkt{src: server4, dst: poolIP, hop: 1, proto: udpProto, payload: udpMsg(53, port, 0)}, "2.00"},
		{"large from IPv4", pkt{src: server4, dst: poolIP, hop: 1, proto: udpProto, payload: udpMsg(53, port, 1200)}, "0.47"},
	} {
		in := tt.p.bytes()
		out := b.one(b.raw(in))
		if got := fmt.Sprintf("%.2f", float64(len(out))/float64(len(in))); got != tt.want {
			t.Errorf("%s: %d octets for %d: %s times, want %s", tt.name, len(out), len(in), got, tt.want)
		}
	}
}
