// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package differ_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
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
		for _, p := range runtest.Hooks {
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
func (w *world) expect(t *testing.T, r *runtest.Runner, what string, frame []byte, verdict fastpath.Verdict, words string) runtest.Result {
	t.Helper()
	w.counted()
	res, err := r.Run(frame)
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
	if res.Verdict != verdict {
		t.Errorf("%s: %s, want %s", what, res, verdict)
	}
	return res
}

// each runs f at both hooks, in the namespace.
func (w *world) each(t *testing.T, f func(t *testing.T, r *runtest.Runner)) {
	for _, p := range runtest.Hooks {
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

// A class answers for all its destinations, by one next hop of a core.
func TestRouteClasses(t *testing.T) {
	w := newWorld(t)
	w.each(t, func(t *testing.T, r *runtest.Runner) {
		stay(t)
		classes := w.fast.Routes4()
		at := int(good.Addr().As4()[0])<<8 | int(good.Addr().As4()[1])
		classes[at] = 7
		w.fast.Bump()
		res := w.expect(t, r, "to one of the class", to(good, udp, 64, 100), fastpath.Forward, encap)
		first := string(res.Out[:12])
		// Not the class of other: it would go where good goes.
		res = w.expect(t, r, "to another", to(other, udp, 64, 100), fastpath.Forward, encap)
		if string(res.Out[:12]) == first {
			t.Error("both went to one next hop")
		}
		o := int(other.Addr().As4()[0])<<8 | int(other.Addr().As4()[1])
		classes[o] = 7
		w.fast.Bump()
		w.expect(t, r, "to one of the class", to(good, udp, 64, 100), fastpath.Forward, encap)
		res = w.expect(t, r, "to another of the class", to(other, udp, 64, 100), fastpath.Forward, encap)
		if string(res.Out[:12]) != first {
			t.Error("the class has two next hops")
		}
		clear(classes)
		w.fast.Bump()
	})
}

// A path MTU is of one destination, and a class of many: whoever makes the host believe in one
// must not make packets to others too big.
func TestAClassSharesNoPathMTU(t *testing.T) {
	w := newWorld(t)
	beside := netip.MustParseAddrPort("198.51.100.14:40007")
	key := client(beside).As16()
	if why := w.hot.Insert(&key, beside, w.instant(), time.Hour, false); why != 0 {
		t.Fatalf("%s has no place: %d", beside, why)
	}
	w.ns.Do(t, func() error { return teachPathMTU(good.Addr(), 552) })
	w.each(t, func(t *testing.T, r *runtest.Runner) {
		stay(t)
		at := int(good.Addr().As4()[0])<<8 | int(good.Addr().As4()[1])
		w.fast.Routes4()[at] = 7
		w.fast.Bump()
		for range 2 { // asked for, and kept
			w.expect(t, r, "to the one, small", to(good, udp, 64, 100), fastpath.Forward, encap)
			w.expect(t, r, "to the one, large", to(good, udp, 64, 1000), fastpath.Punt, "too_big")
		}
		w.expect(t, r, "to another of its class, large", to(beside, udp, 64, 1000), fastpath.Forward, encap)
		w.expect(t, r, "to another of its class again", to(beside, udp, 64, 1000), fastpath.Forward, encap)
		clear(w.fast.Routes4())
		w.fast.Bump()
	})
}

// teachPathMTU has a router tell the host of what a path takes (RFC 792, RFC 1191 4).
func teachPathMTU(to netip.Addr, mtu int) error {
	socket, err := fastpathtest.PacketSocket(ports[0].name + "p")
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	quoted := udp4(netip.AddrPortFrom(relayIP, relayPort), netip.AddrPortFrom(to, 40000), 64, nil)
	quoted[9] = unix.IPPROTO_ICMP // an echo reply, which needs no socket
	clear(quoted[ip4Len:])
	seal := func(b []byte, sum int) { binary.BigEndian.PutUint16(b[sum:], ^packet.Fold(packet.Sum(0, b))) }
	clear(quoted[10:12])
	seal(quoted[:ip4Len], 10)
	message := append([]byte{3, 4, 0, 0, 0, 0, byte(mtu >> 8), byte(mtu)}, quoted...)
	seal(message, 2)
	outer := make([]byte, ip4Len)
	outer[0], outer[3], outer[8], outer[9] = 0x45, byte(ip4Len+len(message)), 64, unix.IPPROTO_ICMP
	copy(outer[12:], netip.MustParseAddr(ways[0].gateway).AsSlice())
	copy(outer[16:], relayIP.AsSlice())
	seal(outer, 10)
	if _, err := unix.Write(socket, ethernet(etherIPv4, append(outer, message...))); err != nil {
		return err
	}
	for end := time.Now().Add(testutil.Patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		routes, err := netlink.RouteGet(to.AsSlice())
		if err != nil || len(routes) == 1 && routes[0].MTU == mtu {
			return err
		}
	}
	return fmt.Errorf("the host did not learn the MTU of the path to %s", to)
}

// A next hop is as old as its generation.
func TestGenerations(t *testing.T) {
	w := newWorld(t)
	w.each(t, func(t *testing.T, r *runtest.Runner) {
		stay(t)
		before := w.expect(t, r, "to a client", to(good, udp, 64, 100), fastpath.Forward, encap)
		old := string(before.Out[:6])
		changed := ways[0]
		changed.mac = mac(150)
		if err := changed.setNeighbour(ports); err != nil {
			t.Fatal(err)
		}
		now := w.expect(t, r, "before the bump", to(good, udp, 64, 100), fastpath.Forward, encap)
		if string(now.Out[:6]) != old {
			t.Error("the next hop was not cached")
		}
		w.fast.Bump()
		now = w.expect(t, r, "after the bump", to(good, udp, 64, 100), fastpath.Forward, encap)
		if string(now.Out[:6]) != string(changed.mac) {
			t.Errorf("sent to %x", now.Out[:6])
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
	w.each(t, func(t *testing.T, r *runtest.Runner) {
		for _, frame := range [][]byte{to(good, udp, 64, 100), from(unknown, udp, 64, 90, native), to(good, udp, 1, 1000)} {
			res, err := r.Run(frame)
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
			if r.Hook == runtest.InXDP {
				place, index = fastpath.PlaceXDP, 1
			}
			age := fastpath.Monotonic() - s.Time
			if age < 0 || age > testutil.Patience || s.Verdict != res.Verdict || teredobpf.Reason(s.Reason).Verdict() != res.Verdict ||
				s.Length != len(frame) || s.Place != place || s.Ifindex != index {
				t.Errorf("sample %+v, want that of %s", s, res)
			}
			if diff := cmp.Diff(frame[:min(len(frame), 256)], s.Data); diff != "" {
				t.Errorf("the packet (-want +got):\n%s", diff)
			}
		}
	})
	w.fast.Trace(0, 0)
	w.each(t, func(t *testing.T, r *runtest.Runner) {
		w.expect(t, r, "without samples", to(good, udp, 64, 100), fastpath.Forward, encap)
		if n := reader.AvailableBytes(); n != 0 {
			t.Errorf("%d bytes of samples", n)
		}
	})
}

// Identifications differ from packet to packet.
func TestIdentification(t *testing.T) {
	w := newWorld(t)
	w.each(t, func(t *testing.T, r *runtest.Runner) {
		seen := make(map[[2]byte]bool)
		const n = 5000
		for range n {
			res, err := r.Run(to(good, udp, 64, 100))
			if err != nil {
				t.Fatal(err)
			}
			seen[[2]byte(res.Out[ethLen+4:])] = true
		}
		if len(seen) != n {
			t.Errorf("%d identifications in %d packets", len(seen), n)
		}
	})
}

// TestSumsOfEachLength sums a whole datagram, whose payload has no checksum that would make it
// shorter, of each length that goes through a tunnel, and takes one wrong octet in the last
// words of each amiss.
func TestSumsOfEachLength(t *testing.T) {
	w := newWorld(t)
	w.each(t, func(t *testing.T, r *runtest.Runner) {
		for n := ip6Len + udpLen; n <= 1280; n++ {
			right := from(good, protoSCTP, 64, n, native)
			wrong := edit(bytes.Clone(right), func(f []byte) { f[len(f)-1-n%8] ^= 0x40 })
			w.expect(t, r, fmt.Sprintf("%d octets", n), right, fastpath.Forward, decap)
			w.expect(t, r, fmt.Sprintf("%d octets, one wrong", n), wrong, fastpath.Drop, "bad_checksum")
		}
	})
}
