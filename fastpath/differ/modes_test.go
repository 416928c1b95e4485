// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package differ_test

import (
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/relay"
	"github.com/isthmus-net/isthmus/teredo/teredobpf"
)

// mode is a table of rows for one configuration.
type mode struct {
	name   string
	change func(*teredobpf.Settings, *relay.Config)
	rows   []row
}

func modes() []mode {
	return []mode{
		{"a host's own relay", func(s *teredobpf.Settings, c *relay.Config) { s.Host, c.Host = true, true }, []row{
			{name: "to a client", frame: to(good, udp, 64, 100), words: encap},
			{name: "to a client, hop limit 1", frame: to(good, udp, 1, 100), words: encap},
			{name: "to a client, hop limit 0", frame: to(good, udp, 0, 100), words: encap},
			{name: "of a client", frame: from(good, udp, 64, 100, native), words: decap},
			{name: "of a client, hop limit 1", frame: from(good, tcp, 1, 100, native), words: decap},
			{name: "of a stranger", frame: from(unknown, udp, 64, 100, native), words: "unknown_peer"},
			{name: "of a stranger from elsewhere", frame: fromClient(good, whole(udp, 64, 100, client(unknown), native)), words: "mapping_mismatch"},
		}},
		{"carrying between clients", func(s *teredobpf.Settings, c *relay.Config) { s.Carry, c.CarryClients = true, true }, []row{
			{name: "to a client", frame: to(good, udp, 64, 100), words: encap},
			{name: "of a client", frame: from(good, udp, 64, 100, native), words: decap},
			{name: "from client to client", frame: from(good, udp, 64, 100, client(other)), words: "carried"},
			{name: "a request", frame: fromClient(good, teredo.AppendBubble(nil, client(good), teredo.AllRouters)), words: "carried"},
			{name: "an answer to a challenge", frame: fromClient(good, teredo.AppendBubble(nil, client(good), teredo.BindingAddress(teredo.BindingChallenge, 7))), words: "carried"},
			{name: "to a destination not served", frame: from(good, udp, 64, 100, unserved), words: "not_served"},
		}},
		{"bound to no address", func(s *teredobpf.Settings, c *relay.Config) { s.Source = netip.Addr{} }, []row{
			{name: "to a client", frame: to(good, udp, 64, 100), words: encap},
			{name: "of a client", frame: from(good, udp, 64, 100, native), words: decap},
		}},
		{"more served ranges than fit", func(s *teredobpf.Settings, c *relay.Config) {
			s.Serve = nil
			for range 64 {
				s.Serve = append(s.Serve, served[0])
			}
			s.Serve = append(s.Serve, served[1])
		}, []row{
			{name: "the first range", frame: from(good, udp, 64, 100, native), words: decap},
			{name: "the last range", frame: from(good, udp, 64, 100, native3), words: "serve_list"},
			{name: "none of them", frame: from(good, udp, 64, 100, unserved), words: "serve_list"},
		}},
		{"a short peer timeout", func(s *teredobpf.Settings, c *relay.Config) { c.PeerTimeout = time.Second }, []row{
			{name: "to a client", frame: to(good, udp, 64, 100), words: "expired_peer"},
			{name: "of a client", frame: from(good, udp, 64, 100, native), words: decap},
		}},
	}
}

// TestModes gives rows to relays of other configurations.
func TestModes(t *testing.T) {
	for _, m := range modes() {
		for _, p := range places {
			t.Run(m.name+", "+string(p), func(t *testing.T) {
				w := newWorld(t, m.change)
				w.ns.Do(t, func() error {
					w.runRows(t, p, m.name, m.rows)
					return nil
				})
			})
		}
	}
}

// TestEveryReasonHasARow holds the list of reasons against the rows. Those left out
// have tests of their own: other programs count them, or no test run can cause them.
func TestEveryReasonHasARow(t *testing.T) {
	seen := map[string]bool{
		"asleep": true, "punt_limit": true, "offload": true, // below
		"no_room":              true,                                                    // needs a machine without memory
		"host_encap_forwarded": true, "host_decap_forwarded": true, "host_direct": true, // see host_test.go
	}
	for _, rows := range [][]row{encapRows(), decapRows()} {
		for _, r := range rows {
			seen[r.words] = true
		}
	}
	for _, m := range modes() {
		for _, r := range m.rows {
			seen[r.words] = true
		}
	}
	for r := teredobpf.Reason(0); r.String() != "unknown"; r++ {
		if !seen[r.String()] {
			t.Errorf("no row shows %s", r)
		}
	}
}

// expect runs a frame and checks what was counted.
func (w *world) expect(t *testing.T, r *runner, what string, frame []byte, verdict fastpath.Verdict, words string) result {
	t.Helper()
	w.counted()
	res, err := r.run(frame)
	if err != nil {
		t.Fatal(err)
	}
	want := map[teredobpf.Reason]uint64{}
	if reason, ok := counted(t, words); ok {
		want[reason] = 1
	}
	if diff := cmp.Diff(want, w.counted()); diff != "" {
		t.Errorf("%s: counters (-want +got):\n%s", what, diff)
	}
	if res.verdict != verdict {
		t.Errorf("%s: %s, want %s", what, res, verdict)
	}
	return res
}

// each runs f at both hooks, in the namespace.
func (w *world) each(t *testing.T, f func(t *testing.T, r *runner)) {
	for _, p := range places {
		t.Run(string(p), func(t *testing.T) {
			w.ns.Do(t, func() error {
				f(t, w.runner(p))
				return nil
			})
		})
	}
}

// stay keeps the thread, which ends with its task, on the core that it is on: next hops
// are kept for each.
func stay(t *testing.T) {
	t.Helper()
	var core uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&core)), 0, 0); errno != 0 {
		t.Fatal(errno)
	}
	var only unix.CPUSet
	only.Set(int(core))
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		t.Fatal(err)
	}
}

func TestLife(t *testing.T) {
	w := newWorld(t)
	w.each(t, func(t *testing.T, r *runner) {
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
	w.each(t, func(t *testing.T, r *runner) {
		in := ports[0].index
		if r.place == atXDP {
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
		d = fastpath.Device{Index: ports[1].index, MAC: ports[1].mac, Frames: r.place == atTC, Packets: r.place == atXDP}
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
		r := w.runner(atXDP)
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
			res, err := r.run(frame)
			if err != nil {
				t.Fatal(err)
			}
			p := packet.IPv6(res.out[ethLen+ip4Len+udpLen:])
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
			w.each(t, func(t *testing.T, r *runner) {
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
func (r *runner) repeatEach(t *testing.T, times int, frames [][]byte) {
	t.Helper()
	for _, frame := range frames {
		for range times {
			if _, err := r.run(frame); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// punted gives each frame of strangers so often to the program, all in one window from
// its start, and returns how many were punted.
func (w *world) punted(t *testing.T, r *runner, times int, frames ...[]byte) int {
	t.Helper()
	inWindow(t, func() { w.counted() }, func() { r.repeatEach(t, times, frames) })
	got := w.counted()
	reason, _ := counted(t, "unknown_peer")
	if n := int(got[teredobpf.PuntLimit] + got[reason]); n != times*len(frames) {
		t.Errorf("%v counted of %d", got, times*len(frames))
	}
	return int(got[reason])
}

// A class answers for all its destinations, by one next hop of a core.
func TestRouteClasses(t *testing.T) {
	w := newWorld(t)
	w.each(t, func(t *testing.T, r *runner) {
		stay(t)
		classes := w.fast.Routes4()
		at := int(good.Addr().As4()[0])<<8 | int(good.Addr().As4()[1])
		classes[at] = 7
		w.fast.Bump()
		res := w.expect(t, r, "to one of the class", to(good, udp, 64, 100), fastpath.Forward, encap)
		first := string(res.out[:12])
		// Not the class of other: it would go where good goes.
		res = w.expect(t, r, "to another", to(other, udp, 64, 100), fastpath.Forward, encap)
		if string(res.out[:12]) == first {
			t.Error("both went to one next hop")
		}
		o := int(other.Addr().As4()[0])<<8 | int(other.Addr().As4()[1])
		classes[o] = 7
		w.fast.Bump()
		w.expect(t, r, "to one of the class", to(good, udp, 64, 100), fastpath.Forward, encap)
		res = w.expect(t, r, "to another of the class", to(other, udp, 64, 100), fastpath.Forward, encap)
		if string(res.out[:12]) != first {
			t.Error("the class has two next hops")
		}
		clear(classes)
		w.fast.Bump()
	})
}

// A next hop is as old as its generation.
func TestGenerations(t *testing.T) {
	w := newWorld(t)
	w.each(t, func(t *testing.T, r *runner) {
		stay(t)
		before := w.expect(t, r, "to a client", to(good, udp, 64, 100), fastpath.Forward, encap)
		old := string(before.out[:6])
		changed := ways[0]
		changed.mac = mac(150)
		if err := changed.setNeighbour(ports); err != nil {
			t.Fatal(err)
		}
		now := w.expect(t, r, "before the bump", to(good, udp, 64, 100), fastpath.Forward, encap)
		if string(now.out[:6]) != old {
			t.Error("the next hop was not cached")
		}
		w.fast.Bump()
		now = w.expect(t, r, "after the bump", to(good, udp, 64, 100), fastpath.Forward, encap)
		if string(now.out[:6]) != string(changed.mac) {
			t.Errorf("sent to %x", now.out[:6])
		}
		if err := ways[0].setNeighbour(ports); err != nil {
			t.Fatal(err)
		}
		w.fast.Bump()
	})
	hops, err := w.fast.Neighbours()
	if err != nil {
		t.Fatal(err)
	}
	want := fastpath.NextHop{Family: 4, Ifindex: ports[0].index, Addr: netip.MustParseAddr("192.0.2.1")}
	found := false
	for _, h := range hops {
		found = found || h == want
	}
	if !found {
		t.Errorf("%v are noted, and not %v", hops, want)
	}
}

// Samples tell what came and what became of it.
func TestSamples(t *testing.T) {
	w := newWorld(t)
	w.fast.Trace(1, 0)
	reader, err := w.fast.Samples()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	w.each(t, func(t *testing.T, r *runner) {
		for _, frame := range [][]byte{to(good, udp, 64, 100), from(unknown, udp, 64, 90, native), to(good, udp, 1, 1000)} {
			res, err := r.run(frame)
			if err != nil {
				t.Fatal(err)
			}
			reader.SetDeadline(time.Now().Add(testutil.Patience))
			record, err := reader.Read()
			if err != nil {
				t.Fatal(err)
			}
			s, err := fastpath.ParseSample(record.RawSample)
			if err != nil {
				t.Fatal(err)
			}
			place, index := fastpath.PlaceIngress, ports[0].index
			if r.place == atXDP {
				place, index = fastpath.PlaceXDP, 1
			}
			age := fastpath.Monotonic() - s.Time
			if age < 0 || age > testutil.Patience || s.Verdict != res.verdict || teredobpf.Reason(s.Reason).Verdict() != res.verdict ||
				s.Length != len(frame) || s.Place != place || s.Ifindex != index {
				t.Errorf("sample %+v, want that of %s", s, res)
			}
			if diff := cmp.Diff(frame[:min(len(frame), 256)], s.Data); diff != "" {
				t.Errorf("the packet (-want +got):\n%s", diff)
			}
		}
	})
	w.fast.Trace(0, 0)
	w.each(t, func(t *testing.T, r *runner) {
		w.expect(t, r, "without samples", to(good, udp, 64, 100), fastpath.Forward, encap)
		if n := reader.AvailableBytes(); n != 0 {
			t.Errorf("%d bytes of samples", n)
		}
	})
}

// Identifications differ from packet to packet.
func TestIdentification(t *testing.T) {
	w := newWorld(t)
	w.each(t, func(t *testing.T, r *runner) {
		seen := make(map[[2]byte]bool)
		const n = 5000
		for range n {
			res, err := r.run(to(good, udp, 64, 100))
			if err != nil {
				t.Fatal(err)
			}
			seen[[2]byte(res.out[ethLen+4:])] = true
		}
		if len(seen) != n {
			t.Errorf("%d identifications in %d packets", len(seen), n)
		}
	})
}
