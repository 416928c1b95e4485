// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siit

import (
	"fmt"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// TestReplySizes holds what an ICMP error takes against the packet that it is about:
// SECURITY.md has the same figure.
func TestReplySizes(t *testing.T) {
	e := engine(t, settings(t))
	for _, tt := range []struct {
		name string
		in   []byte
		want string // octets sent / octets received
	}{
		{"echo request", packet.AppendICMPv6(nil, host6, mapped6, 1, packet.ICMPv6EchoRequest, 0, make([]byte, 4)), "2.00"},
		{"mere header", packet.AppendIPv6Header(nil, packet.ProtoUDP, 1, 0, host6, mapped6), "2.20"},
	} {
		var out packet.Batch
		received := len(tt.in)
		e.Handle(tt.in, start, &out)
		if len(out.IP) != 1 {
			t.Fatalf("%s: %d packets", tt.name, len(out.IP))
		}
		if got := fmt.Sprintf("%.2f", float64(len(out.IP[0]))/float64(received)); got != tt.want {
			t.Errorf("%s: %d octets for %d: %s times, want %s", tt.name, len(out.IP[0]), received, got, tt.want)
		}
	}
}
