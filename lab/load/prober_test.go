// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// Frames of a prober must be those that it was given, each with its own number, and
// none may spoil a checksum.
func TestProbedFramesAreSound(t *testing.T) {
	p := Packet(here, there, 512)
	for name, frame := range map[string][]byte{
		"plain":  Frame6(mac1, mac2, p),
		"tunnel": inUDP(p),
		"G-PDU":  gpdu(p),
	} {
		t.Run(name, func(t *testing.T) {
			cable(t, func() error {
				fd := hearing(t)
				r := prober(t)
				if err := r.Target(0, "v1"); err != nil {
					return err
				}
				const first, n = 0xfffe, 5
				if err := r.Probe(0, frame, first, n, time.Microsecond); err != nil {
					return err
				}
				for i := range n {
					got, err := receive(fd, large)
					if err != nil {
						return err
					}
					inner := packet.IPv6(got[len(got)-512:])
					if len(got) != len(frame) || packet.Checksum(inner.SrcBytes(), inner.DstBytes(), packet.ProtoUDP, inner.Payload()) != 0 {
						t.Errorf("frame %d of %d bytes, want %d, or a wrong checksum", i, len(got), len(frame))
					}
					if number := binary.BigEndian.Uint16(got[tagEnd(got)-2:]); number != uint16(first+i) {
						t.Errorf("frame %d has number %d", i, number)
					}
				}
				return nil
			})
		})
	}
}

// A meter times what a prober has stamped.
func TestProberIsTimed(t *testing.T) {
	testutil.NeedRoot(t)
	cable(t, func() error {
		r := prober(t)
		m := arriving(t, HookXDP)
		if err := r.Target(0, "v1"); err != nil {
			return err
		}
		m.DepartBy(r)
		const first, n = MaxStamps - 3, 10 // round the end of the record
		m.Forget(first, n)
		if err := r.Probe(0, Frame6(mac1, mac2, Packet(here, there, 64)), first, n, 10*time.Microsecond); err != nil {
			return err
		}
		if came := m.Await(context.Background(), first, n, patience); came != n {
			t.Errorf("%d of %d frames came", came, n)
		}
		if times := m.Latencies(first, n); len(times) != n {
			t.Errorf("%d of %d frames were timed: %v", len(times), n, times)
		}
		if err := r.Probe(0, Frame6(mac1, mac2, Packet(here, there, MinSize)), 0, 1, 0); err == nil {
			t.Error("a frame without room for a number was sent")
		}
		return nil
	})
}
