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
	var out packet.Batch
	in := packet.AppendICMPv6(nil, host6, mapped6, 1, packet.ICMPv6EchoRequest, 0, make([]byte, 4))
	received := len(in)
	e.Handle(in, start, &out)
	if len(out.IP) != 1 {
		t.Fatalf("%d packets", len(out.IP))
	}
	if got := fmt.Sprintf("%.2f", float64(len(out.IP[0]))/float64(received)); got != "2.00" {
		t.Errorf("%d octets for %d: %s times, want 2.00", len(out.IP[0]), received, got)
	}
}
