// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// TestOtherFamily: what no socket of its family can send is refused, and what follows leaves.
func TestOtherFamily(t *testing.T) {
	a, b := listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
	if err := a.WriteBatch([]packet.Datagram{
		{To: netip.MustParseAddrPort("[2001:db8::1]:9"), Payload: []byte{1}},
		{To: netip.AddrPort{}, Payload: []byte{2}},
		{To: netip.AddrPortFrom(netip.MustParseAddr("::ffff:127.0.0.1"), b.LocalAddr().Port()), Payload: []byte{3}},
	}); err != nil {
		t.Fatal(err)
	}
	if got, _ := receive(t, b, 1, 4); len(got) != 1 || got[0][0] != 3 {
		t.Errorf("received %x", got)
	}
}
