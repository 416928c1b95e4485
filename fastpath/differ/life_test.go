// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package differ_test

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo/relay"
	"github.com/isthmus-net/isthmus/teredo/teredobpf"
)

func TestLife(t *testing.T) {
	w := newWorld(t)
	w.each(t, func(t *testing.T, r *runtest.Runner) {
		w.fast.Beat(-time.Second)
		w.expect(t, r, "to a client", to(good, udp, 64, 100), fastpath.Punt, "asleep")
		w.expect(t, r, "of a client", from(good, udp, 64, 100, native), fastpath.Punt, "asleep")
		w.expect(t, r, "of a stranger", from(unknown, udp, 64, 100, native), fastpath.Punt, "asleep")
		w.fast.Beat(time.Hour)
		w.expect(t, r, "to a client again", to(good, udp, 64, 100), fastpath.Forward, encap)
	})
}

// A device that is not served is not there; one that is no target is left to the
// engine.
func TestDevices(t *testing.T) {
	w := newWorld(t)
	w.each(t, func(t *testing.T, r *runtest.Runner) {
		in := ports[0].index
		if r.Hook == runtest.InXDP {
			in = 1
		}
		w.fast.RemoveDevice(in)
		w.expect(t, r, "in by another device", to(good, udp, 64, 100), fastpath.Punt, "")
		d := fastpath.Device{Index: in, MAC: ports[0].mac, Frames: true, Packets: true}
		if err := w.fast.SetDevice(d); err != nil {
			t.Fatal(err)
		}
		w.expect(t, r, "in by it", to(other, udp, 64, 100), fastpath.Forward, encap)
		w.fast.RemoveDevice(ports[1].index)
		w.expect(t, r, "out by another device", to(other, udp, 64, 100), fastpath.Punt, "no_next_hop")
		d = fastpath.Device{Index: ports[1].index, MAC: ports[1].mac, Frames: r.Hook == runtest.InTC, Packets: r.Hook == runtest.InXDP}
		if err := w.fast.SetDevice(d); err != nil {
			t.Fatal(err)
		}
		w.expect(t, r, "out by a device of the other hook", to(other, udp, 64, 100), fastpath.Punt, "no_next_hop")
		d.Frames, d.Packets = true, true
		if err := w.fast.SetDevice(d); err != nil {
			t.Fatal(err)
		}
		w.expect(t, r, "out by it", to(other, udp, 64, 100), fastpath.Forward, encap)
		if err := w.fast.SetDevice(fastpath.Device{Index: ports[1].index + 256, MAC: mac(9)}); err == nil {
			t.Error("two devices share a place")
		}
	})
	w.ns.Do(t, func() error {
		// What may come unfinished from a local sender is not SCTP in frames.
		if err := w.fast.SetDevice(fastpath.Device{Index: 1, MAC: ports[0].mac, Partial: true}); err != nil {
			t.Fatal(err)
		}
		r := w.runner(runtest.InXDP)
		w.expect(t, r, "SCTP to a client", to(good, protoSCTP, 64, 100), fastpath.Punt, "offload")
		w.expect(t, r, "SCTP of a client", from(good, protoSCTP, 64, 100, native), fastpath.Punt, "offload")
		w.expect(t, r, "UDP to a client", to(good, udp, 64, 100), fastpath.Forward, encap)
		// The same holds for checksums: what came by a wire is not mended.
		for _, partial := range []bool{true, false} {
			if err := w.fast.SetDevice(fastpath.Device{Index: 1, MAC: ports[0].mac, Partial: partial}); err != nil {
				t.Fatal(err)
			}
			frame := to(good, udp, 64, 100)
			halve(frame[ethLen:])
			res, err := r.Run(frame)
			if err != nil {
				t.Fatal(err)
			}
			p := packet.IPv6(res.Out[ethLen+ip4Len+udpLen:])
			if right := packet.Checksum(p.SrcBytes(), p.DstBytes(), p.NextHeader(), p.Payload()) == 0; right != partial {
				t.Errorf("from a device whose frames may be unfinished %v, the checksum is right: %v", partial, right)
			}
		}
		return nil
	})
}

// Punts have a budget for each reason, in it a share for each network, and in that one for
// each host.
func TestPuntBudget(t *testing.T) {
	sentBy := func(network, host byte) []byte {
		src := native.As16()
		src[7] += network
		src[14] = host
		return ethernet(etherIPv6, whole(udp, 64, 100, netip.AddrFrom16(src), client(unknown)))
	}
	one, two := sentBy(0, 0), sentBy(1, 0)
	var crowd [][]byte
	for host := range byte(3) {
		crowd = append(crowd, sentBy(0, host))
	}
	for _, tt := range []struct {
		name        string
		rate, share int
		times       int
		frames      [][]byte
		want        int // in a window
	}{
		{"one host leaves a quarter to others", 3000, 300, 100, [][]byte{one}, 15},
		{"each other host of its network is sure of an eighth", 3000, 300, 30, [][]byte{one, sentBy(0, 1), sentBy(0, 2)}, 15 + 2 + 2},
		{"share of a network", 3000, 150, 30, crowd, 10},
		{"another network beside it", 3000, 150, 30, append(crowd, two), 10 + 8},
		{"shares of two networks", 3000, 300, 100, [][]byte{one, two}, 2 * 15},
		{"budget of two networks", 3000, 2500, 120, [][]byte{one, two}, 201},
		{"a share of one packet", 3000, 1, 100, [][]byte{one}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(s *teredobpf.Settings, _ *relay.Config) { s.PuntRate, s.PuntShare = tt.rate, tt.share })
			w.each(t, func(t *testing.T, r *runtest.Runner) {
				if n := w.punted(t, r, tt.times, tt.frames...); n != tt.want {
					t.Errorf("%d punts, want %d", n, tt.want)
				}
				w.expect(t, r, "a client beside it", to(good, udp, 64, 100), fastpath.Forward, encap)
				w.expect(t, r, "another reason", to(busy, udp, 64, 100), fastpath.Punt, "busy_peer")
				// Of peers that are known, as many as without a fast path.
				for range 300 {
					w.expect(t, r, "fragments", to(good, packet.ProtoFragment, 64, 100), fastpath.Punt, "next_header")
					w.expect(t, r, "no route", to(nowhere, udp, 64, 100), fastpath.Punt, "no_next_hop")
				}
			})
		})
	}
}

// window is that of the budgets that an instant is in.
func window(at time.Duration) time.Duration { return at >> 26 }

// inWindow calls run at the start of a window, until it has ended in the same one: what a busy
// machine spreads over two is not counted. prepare comes before each call. The thread, which
// ends with its task, goes before all others: peers would expire while it waits for its turn.
func inWindow(t *testing.T, prepare, run func()) {
	t.Helper()
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, -20); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * testutil.Patience); time.Now().Before(end); {
		last := window(fastpath.Monotonic())
		for window(coarse()) == last || window(coarse()) != window(fastpath.Monotonic()) {
			time.Sleep(time.Millisecond)
		}
		prepare()
		start := window(coarse())
		run()
		if window(fastpath.Monotonic()) == start {
			return
		}
	}
	t.Fatal("the machine is too slow for two calls of the kernel in a window")
}

// repeatEach gives each frame so often to the program. The kernel's own repetition waits for a
// grace period at XDP, which may outlast a window.
func repeatEach(t *testing.T, r *runtest.Runner, times int, frames [][]byte) {
	t.Helper()
	for _, frame := range frames {
		for range times {
			if _, err := r.Run(frame); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// punted gives each frame of strangers so often to the program, all in one window from
// its start, and returns how many were punted.
func (w *world) punted(t *testing.T, r *runtest.Runner, times int, frames ...[]byte) int {
	t.Helper()
	inWindow(t, func() { w.counted() }, func() { repeatEach(t, r, times, frames) })
	got := w.counted()
	reason, _ := counted(t, "unknown_peer")
	if n := int(got[teredobpf.PuntLimit] + got[reason]); n != times*len(frames) {
		t.Errorf("%v counted of %d", got, times*len(frames))
	}
	return int(got[reason])
}
