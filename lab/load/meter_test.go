// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// A meter knows test packets as they are, in tunnels, and in G-PDUs with and without the
// octets that a sequence number brings; nothing else is taken for one.
func TestMeterKnowsTestPackets(t *testing.T) {
	testutil.NeedRoot(t)
	p := Packet(here, there, MinTaggedSize)
	numbered := append([]byte{0x32, 0xff, 0, byte(4 + len(p)), 0, 0, 0, 1, 0, 7, 0, 0}, p...)
	echo := append([]byte{0x30, 0x01, 0, byte(len(p)), 0, 0, 0, 0}, p...)
	for _, tt := range []struct {
		name  string
		frame []byte
		known bool
	}{
		{"as it is", Frame6(mac1, mac2, p), true},
		{"in a tunnel", inUDP(p), true},
		{"in a G-PDU", gpdu(p), true},
		{"in a G-PDU with a sequence number", inUDP(numbered), true},
		{"in another message of GTP", inUDP(echo), false},
	} {
		for _, hook := range []Hook{HookXDP, HookTC} {
			t.Run(tt.name+" by "+string(hook), func(t *testing.T) {
				cable(t, func() error {
					m := arriving(t, hook)
					s, err := OpenSender("v1")
					opened(t, s, err)
					// What is known for sure comes last: then all have been seen.
					for i, f := range [][]byte{tt.frame, Frame6(mac1, mac2, p)} {
						m.Forget(uint64(i), 1)
						if _, err := s.Stream(f, uint64(i), 1, 0); err != nil {
							return err
						}
					}
					if m.Await(t.Context(), 1, 1, patience) != 1 {
						t.Error("a plain packet did not come")
					}
					if came := m.Await(t.Context(), 0, 1, 0) == 1; came != tt.known {
						t.Errorf("stamped: %v, want %v", came, tt.known)
					}
					return nil
				})
			})
		}
	}
}

// gpdu is a frame with a G-PDU (TS 29.281 section 5.1).
func gpdu(p packet.IPv6) []byte {
	b := binary.BigEndian.AppendUint16([]byte{0x30, 0xff}, uint16(len(p)))
	return inUDP(append(binary.BigEndian.AppendUint32(b, 0x12345678), p...))
}

// inUDP is a frame of a tunnel.
func inUDP(payload []byte) []byte {
	return Frame4(mac1, mac2, netip.MustParseAddrPort("192.0.2.9:2152"), netip.MustParseAddrPort("198.51.100.1:2152"), payload)
}
