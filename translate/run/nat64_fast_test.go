// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// inModes runs a test with each.
func inModes(t *testing.T, f func(t *testing.T, w *world, c NAT64Settings)) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			w, c := newWorld(t), nat64Config(t)
			c.FastPath, c.Name = mode, "nat64."+string(mode)
			f(t, w, c)
		})
	}
}

// attached waits until packets take the way that a mode means.
func (n *NAT64) attached(t *testing.T, mode fastpath.Mode) {
	t.Helper()
	want := string(mode)
	if mode == fastpath.ModeOff {
		want = "engine"
	}
	for deadline := time.Now().Add(testutil.Patience); ; time.Sleep(10 * time.Millisecond) {
		f := n.fast.Status()
		if f.Path == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the path is %s, want %s: %s", f.Path, want, f.Why)
		}
	}
}

// forwarded is how many packets the programs have translated.
func (n *NAT64) forwarded() (sum uint64) {
	for _, count := range n.fast.Status().Packets["forward"] {
		sum += count
	}
	return sum
}

func TestNAT64InModes(t *testing.T) {
	inModes(t, func(t *testing.T, w *world, c NAT64Settings) {
		inside, outside := netip.AddrPortFrom(sixAddr, 8080), netip.AddrPortFrom(poolAddr, 8080)
		c.Static = []StaticBinding{{Transport: TCP, Inside: inside, Outside: outside}}
		n := startNAT64(t, w, c)
		n.attached(t, c.FastPath)
		f := newFlow(t, w, 7000)
		for range 20 {
			f.passes(t)
		}
		const size = 4 << 20
		if peer := transfer(t, w.six, w.four, netip.AddrPortFrom(fourAddr, 8080), netip.AddrPortFrom(poolFour6, 8080), size); peer.Addr() != poolAddr {
			t.Errorf("four saw %s", peer)
		}
		if peer := transfer(t, w.four, w.six, inside, outside, size); peer.Addr() != poolFour6 {
			t.Errorf("six saw %s", peer)
		}
		if got := n.forwarded(); (got > 30) != (c.FastPath != fastpath.ModeOff) {
			t.Errorf("the programs have translated %d packets: %+v", got, n.fast.Status().Packets)
		}
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		w.clean(t)
	})
}

// TestNAT64Survives has a process come back after each kind of end: the sessions go on.
func TestNAT64Survives(t *testing.T) {
	inModes(t, func(t *testing.T, w *world, c NAT64Settings) {
		n := startNAT64(t, w, c)
		n.attached(t, c.FastPath)
		f := newFlow(t, w, 7000)
		for _, leaves := range []bool{true, false, true} {
			end := w.stop
			if leaves {
				end = w.leave
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			if leaves && c.FastPath != fastpath.ModeOff {
				f.passes(t) // by the programs alone
			}
			n = startNAT64(t, w, c)
			if n.adopted != 1 {
				t.Errorf("after leaving %t: %d sessions taken over, want 1", leaves, n.adopted)
			}
			f.four.send(t, f.pool, "back")
			f.six.wants(t, "back", 63)
			f.passes(t)
		}
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		w.clean(t)
	})
}

// TestNAT64TablesNeedNoFile starts a translator whose sessions lie in the tables of its
// programs: it makes no file, of hundreds of megabytes, only to remove it.
func TestNAT64TablesNeedNoFile(t *testing.T) {
	inModes(t, func(t *testing.T, w *world, c NAT64Settings) {
		folder := filepath.Join(t.TempDir(), "made")
		c.StateFile = filepath.Join(folder, "state")
		startNAT64(t, w, c)
		if _, err := os.Stat(folder); (err == nil) != (c.FastPath == fastpath.ModeOff) {
			t.Errorf("there is a place for the file: %t", err == nil)
		}
	})
}

// TestNAT64SurvivesWithoutFastPath has a process leave, as if it were killed, and the next ones
// come without the fast path, and with it again: the sessions go on.
func TestNAT64SurvivesWithoutFastPath(t *testing.T) {
	for _, mode := range hooks {
		t.Run(string(mode), func(t *testing.T) {
			w, c := newWorld(t), nat64Config(t)
			c.FastPath, c.Name = mode, "nat64.left"
			startNAT64(t, w, c).attached(t, mode)
			f := newFlow(t, w, 7000)
			for _, c.FastPath = range []fastpath.Mode{fastpath.ModeOff, fastpath.ModeOff, mode} {
				if err := w.leave(); err != nil {
					t.Fatal(err)
				}
				n := startNAT64(t, w, c)
				n.attached(t, c.FastPath)
				if n.adopted != 1 {
					t.Errorf("%s: %d sessions taken over, want 1", c.FastPath, n.adopted)
				}
				before := n.forwarded()
				f.four.send(t, f.pool, "back")
				f.six.wants(t, "back", 63)
				f.passes(t)
				if c.FastPath == fastpath.ModeOff && n.forwarded() != before {
					t.Error("programs carry packets though the fast path is off")
				}
			}
			if err := w.stop(); err != nil {
				t.Error(err)
			}
			w.clean(t)
		})
	}
}

// TestNAT64RestartWithOtherPool6: sessions keep their prefix when a process comes back with
// pool6 in another order, and without that prefix.
func TestNAT64RestartWithOtherPool6(t *testing.T) {
	inModes(t, func(t *testing.T, w *world, c NAT64Settings) {
		first, other := c.Pool6[0], netip.MustParsePrefix("2001:db8:65::/96")
		n := startNAT64(t, w, c)
		n.attached(t, c.FastPath)
		f := newFlow(t, w, 7000)
		comesBack := func(leaves bool, pool6 ...netip.Prefix) {
			end := w.stop
			if leaves {
				end = w.leave
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			c.Pool6 = pool6
			n = startNAT64(t, w, c)
			n.attached(t, c.FastPath)
			f.four.send(t, f.pool, "back")
			if from := f.six.wants(t, "back", 63); from != f.to {
				t.Errorf("pool6 %s: six saw %s, want %s", pool6, from, f.to)
			}
		}
		for _, leaves := range []bool{false, true} {
			comesBack(leaves, other, first)
			f.passes(t)
			comesBack(leaves, other)
			comesBack(leaves, first)
			f.passes(t)
		}
	})
}

// TestNAT64OwnAddress shares the only address of the gateway with its clients: a range of
// ports is theirs, all else is the gateway's own.
func TestNAT64OwnAddress(t *testing.T) {
	inModes(t, func(t *testing.T, w *world, c NAT64Settings) {
		c.Pool4 = []PoolRange{{Prefix: netip.PrefixFrom(gateway4, 32), Transports: AllTransports, First: 20000, Last: 29999}}
		n := startNAT64(t, w, c)
		n.attached(t, c.FastPath)
		f := newFlow(t, w, 7000)
		if f.pool.Addr() != gateway4 || f.pool.Port() < 20000 || f.pool.Port() > 29999 {
			t.Errorf("four saw %s", f.pool)
		}
		for range 5 {
			f.passes(t)
		}
		const size = 1 << 20
		if peer := transfer(t, w.six, w.four, netip.AddrPortFrom(fourAddr, 8080), netip.AddrPortFrom(poolFour6, 8080), size); peer.Addr() != gateway4 {
			t.Errorf("four saw %s", peer)
		}
		// The gateway's own: a service, a client, and a datagram to another port.
		if peer := transfer(t, w.four, w.gateway, netip.AddrPortFrom(gateway4, 22), netip.AddrPortFrom(gateway4, 22), size); peer.Addr() != fourAddr {
			t.Errorf("the gateway saw %s", peer)
		}
		if peer := transfer(t, w.gateway, w.four, netip.AddrPortFrom(fourAddr, 8081), netip.AddrPortFrom(fourAddr, 8081), size); peer.Addr() != gateway4 {
			t.Errorf("four saw %s", peer)
		}
		if got := n.forwarded(); (got > 15) != (c.FastPath != fastpath.ModeOff) {
			t.Errorf("the programs have translated %d packets: %+v", got, n.fast.Status().Packets)
		}
		own := open(t, w.gateway, netip.AddrPortFrom(gateway4, 5353))
		f.four.send(t, netip.AddrPortFrom(gateway4, 5353), "to the host")
		own.wants(t, "to the host", 64)
		f.passes(t)
		next := c
		next.Pool4 = []PoolRange{{Prefix: netip.MustParsePrefix("192.0.2.72/29"), Transports: AllTransports, First: 1024, Last: 65535}}
		if _, err := reload(NAT64Role, n, n.cfg, next); err != nil {
			t.Error(err)
		}
		for range 5 {
			f.passes(t) // although its address is no longer named
		}
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		w.clean(t)
		f.four.send(t, netip.AddrPortFrom(gateway4, 5353), "still")
		own.wants(t, "still", 64)
	})
}

// The status counts what the programs have made, too.
func TestNAT64StatusOfPaths(t *testing.T) {
	inModes(t, func(t *testing.T, w *world, c NAT64Settings) {
		n := startNAT64(t, w, c)
		n.attached(t, c.FastPath)
		newFlow(t, w, 7000).passes(t)
		st := n.Status().(NAT64Status)
		if st.FastPath.Mode != c.FastPath || st.Sessions != 1 || fmt.Sprint(st.Addresses) != "[{192.0.2.64 1 1 1}]" {
			t.Errorf("status %+v", st)
		}
	})
}

// TestNAT64AutoWithOwnAddress chooses a fast path although a program of our own leads
// packets for the address to the engine.
func TestNAT64AutoWithOwnAddress(t *testing.T) {
	w, c := newWorld(t), nat64Config(t)
	c.FastPath, c.Name = fastpath.ModeAuto, "nat64.auto"
	c.Pool4 = []PoolRange{{Prefix: netip.PrefixFrom(gateway4, 32), Transports: AllTransports, First: 20000, Last: 29999}}
	n := startNAT64(t, w, c)
	if f := n.fast.Status(); f.Path == "engine" || len(f.Bypassed) > 0 {
		t.Errorf("the path is %s: %s, %+v", f.Path, f.Why, f.Bypassed)
	}
	// Something that wakes the driver must not find the program to be a stranger's.
	n.fast.LinksChanged()
	f := newFlow(t, w, 7000)
	for range 10 {
		f.passes(t)
	}
	if f := n.fast.Status(); f.Path == "engine" || n.forwarded() < 15 {
		t.Errorf("the path is %s: %s, %d packets by the programs", f.Path, f.Why, n.forwarded())
	}
}

// TestXDPThatCarriesNothing: packets pass where XDP is demanded and cannot redirect.
func TestXDPThatCarriesNothing(t *testing.T) {
	w, c := newWorld(t), nat64Config(t)
	c.FastPath = fastpath.ModeXDP
	n, err := NewNAT64(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	flow := sync.OnceValue(func() *flow { return newFlow(t, w, 7000) })
	w.xdpThatCarriesNothing(t, n, n.fast.Driver, func() driver.Forecast { return PlanNAT64(c) }, func() { flow().passes(t) })
}
