// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

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
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
)

// inModes runs a test with each.
func inModes(t *testing.T, f func(t *testing.T, w *gatewaytest.World, c Settings)) {
	for _, mode := range gatewaytest.Modes {
		t.Run(string(mode), func(t *testing.T) {
			w, c := gatewaytest.NewWorld(t), testSettings(t)
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

func TestInModes(t *testing.T) {
	inModes(t, func(t *testing.T, w *gatewaytest.World, c Settings) {
		inside, outside := netip.AddrPortFrom(gatewaytest.SixAddr, 8080), netip.AddrPortFrom(poolAddr, 8080)
		c.Static = []StaticBinding{{Transport: TCP, Inside: inside, Outside: outside}}
		n := start(t, w, c)
		n.attached(t, c.FastPath)
		f := newFlow(t, w, 7000)
		for range 20 {
			f.passes(t)
		}
		const size = 4 << 20
		if peer := gatewaytest.Transfer(t, w.Six, w.Four, netip.AddrPortFrom(gatewaytest.FourAddr, 8080), netip.AddrPortFrom(poolFour6, 8080), size); peer.Addr() != poolAddr {
			t.Errorf("four saw %s", peer)
		}
		if peer := gatewaytest.Transfer(t, w.Four, w.Six, inside, outside, size); peer.Addr() != poolFour6 {
			t.Errorf("six saw %s", peer)
		}
		if got := n.forwarded(); (got > 30) != (c.FastPath != fastpath.ModeOff) {
			t.Errorf("the programs have translated %d packets: %+v", got, n.fast.Status().Packets)
		}
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
		w.Clean(t)
	})
}

// TestSurvives has a process come back after each kind of end: the sessions go on.
func TestSurvives(t *testing.T) {
	configtest.InEffect(t, "nat64", "fast_path")
	inModes(t, func(t *testing.T, w *gatewaytest.World, c Settings) {
		n := start(t, w, c)
		n.attached(t, c.FastPath)
		f := newFlow(t, w, 7000)
		for _, leaves := range []bool{true, false, true} {
			end := w.Stop
			if leaves {
				end = w.Leave
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			if leaves && c.FastPath != fastpath.ModeOff {
				f.passes(t) // by the programs alone
			}
			n = start(t, w, c)
			if n.adopted != 1 {
				t.Errorf("after leaving %t: %d sessions taken over, want 1", leaves, n.adopted)
			}
			f.four.Send(t, f.pool, "back")
			f.six.Wants(t, "back", 63)
			f.passes(t)
		}
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
		w.Clean(t)
	})
}

// TestTablesNeedNoFile starts a translator whose sessions lie in the tables of its
// programs: it makes no file, of hundreds of megabytes, only to remove it.
func TestTablesNeedNoFile(t *testing.T) {
	configtest.InEffect(t, "nat64", "state_file")
	inModes(t, func(t *testing.T, w *gatewaytest.World, c Settings) {
		folder := filepath.Join(t.TempDir(), "made")
		c.StateFile = filepath.Join(folder, "state")
		start(t, w, c)
		if _, err := os.Stat(folder); (err == nil) != (c.FastPath == fastpath.ModeOff) {
			t.Errorf("there is a place for the file: %t", err == nil)
		}
	})
}

// TestSurvivesWithoutFastPath has a process leave, as if it were killed, and the next ones
// come without the fast path, and with it again: the sessions go on, also when it is long since
// anything was pinned.
func TestSurvivesWithoutFastPath(t *testing.T) {
	for _, mode := range gatewaytest.Hooks {
		t.Run(string(mode), func(t *testing.T) {
			w, c := gatewaytest.NewWorld(t), testSettings(t)
			c.FastPath, c.Name = mode, "nat64.left"
			start(t, w, c).attached(t, mode)
			f := newFlow(t, w, 7000)
			for _, c.FastPath = range []fastpath.Mode{fastpath.ModeOff, fastpath.ModeOff, mode} {
				if err := w.Leave(); err != nil {
					t.Fatal(err)
				}
				agePins(t, w, c.Name)
				n := start(t, w, c)
				n.attached(t, c.FastPath)
				if n.adopted != 1 {
					t.Errorf("%s: %d sessions taken over, want 1", c.FastPath, n.adopted)
				}
				before := n.forwarded()
				f.four.Send(t, f.pool, "back")
				f.six.Wants(t, "back", 63)
				f.passes(t)
				if c.FastPath == fastpath.ModeOff && n.forwarded() != before {
					t.Error("programs carry packets though the fast path is off")
				}
			}
			if err := w.Stop(); err != nil {
				t.Error(err)
			}
			w.Clean(t)
		})
	}
}

// agePins makes what an instance has pinned two hours old.
func agePins(t *testing.T, w *gatewaytest.World, instance string) {
	t.Helper()
	old, aged := time.Now().Add(-2*time.Hour), 0
	w.Gateway.Do(t, func() error {
		for _, left := range pinned.Peek(driver.PinName(instance)) {
			if os.Chtimes(left.Dir(), old, old) == nil {
				aged++
			}
		}
		return nil
	})
	if aged != 1 {
		t.Fatalf("%d folders of pins, want 1", aged)
	}
}

// TestRestartWithOtherPool6: sessions keep their prefix when a process comes back with
// pool6 in another order, and without that prefix.
func TestRestartWithOtherPool6(t *testing.T) {
	inModes(t, func(t *testing.T, w *gatewaytest.World, c Settings) {
		first, other := c.Pool6[0], netip.MustParsePrefix("2001:db8:65::/96")
		n := start(t, w, c)
		n.attached(t, c.FastPath)
		f := newFlow(t, w, 7000)
		comesBack := func(leaves bool, pool6 ...netip.Prefix) {
			end := w.Stop
			if leaves {
				end = w.Leave
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			c.Pool6 = pool6
			n = start(t, w, c)
			n.attached(t, c.FastPath)
			f.four.Send(t, f.pool, "back")
			if from := f.six.Wants(t, "back", 63); from != f.to {
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

// TestOwnAddress shares the only address of the gateway with its clients: a range of
// ports is theirs, all else is the gateway's own.
func TestOwnAddress(t *testing.T) {
	inModes(t, func(t *testing.T, w *gatewaytest.World, c Settings) {
		c.Pool4 = []PoolRange{{Prefix: netip.PrefixFrom(gatewaytest.Gateway4, 32), Transports: AllTransports, First: 20000, Last: 29999}}
		n := start(t, w, c)
		n.attached(t, c.FastPath)
		f := newFlow(t, w, 7000)
		if f.pool.Addr() != gatewaytest.Gateway4 || f.pool.Port() < 20000 || f.pool.Port() > 29999 {
			t.Errorf("four saw %s", f.pool)
		}
		for range 5 {
			f.passes(t)
		}
		const size = 1 << 20
		if peer := gatewaytest.Transfer(t, w.Six, w.Four, netip.AddrPortFrom(gatewaytest.FourAddr, 8080), netip.AddrPortFrom(poolFour6, 8080), size); peer.Addr() != gatewaytest.Gateway4 {
			t.Errorf("four saw %s", peer)
		}
		// The gateway's own: a service, a client, and a datagram to another port.
		if peer := gatewaytest.Transfer(t, w.Four, w.Gateway, netip.AddrPortFrom(gatewaytest.Gateway4, 22), netip.AddrPortFrom(gatewaytest.Gateway4, 22), size); peer.Addr() != gatewaytest.FourAddr {
			t.Errorf("the gateway saw %s", peer)
		}
		if peer := gatewaytest.Transfer(t, w.Gateway, w.Four, netip.AddrPortFrom(gatewaytest.FourAddr, 8081), netip.AddrPortFrom(gatewaytest.FourAddr, 8081), size); peer.Addr() != gatewaytest.Gateway4 {
			t.Errorf("four saw %s", peer)
		}
		if got := n.forwarded(); (got > 15) != (c.FastPath != fastpath.ModeOff) {
			t.Errorf("the programs have translated %d packets: %+v", got, n.fast.Status().Packets)
		}
		own := gatewaytest.Open(t, w.Gateway, netip.AddrPortFrom(gatewaytest.Gateway4, 5353))
		f.four.Send(t, netip.AddrPortFrom(gatewaytest.Gateway4, 5353), "to the host")
		own.Wants(t, "to the host", 64)
		f.passes(t)
		next := c
		next.Pool4 = []PoolRange{{Prefix: netip.MustParsePrefix("192.0.2.72/29"), Transports: AllTransports, First: 1024, Last: 65535}}
		if _, err := roletest.Reload(Role, n, n.cfg, next); err != nil {
			t.Error(err)
		}
		for range 5 {
			f.passes(t) // although its address is no longer named
		}
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
		w.Clean(t)
		f.four.Send(t, netip.AddrPortFrom(gatewaytest.Gateway4, 5353), "still")
		own.Wants(t, "still", 64)
	})
}

// TestProgramsKnowMTUs: what the networks take is named by live keys, and binds the programs as
// it binds the engine.
func TestProgramsKnowMTUs(t *testing.T) {
	inModes(t, func(t *testing.T, w *gatewaytest.World, c Settings) {
		c.IPv4MTU = 1400
		n := start(t, w, c)
		n.attached(t, c.FastPath)
		known := func(four, six int) {
			t.Helper()
			if c.FastPath == fastpath.ModeOff {
				return // there are none
			}
			if s := n.fast.table.Settings(); s.MTU4 != four || s.MTU6 != six {
				t.Errorf("the programs take %d and %d for the MTUs, want %d and %d", s.MTU4, s.MTU6, four, six)
			}
		}
		known(1400, 0)
		c.IPv4MTU, c.IPv6MTU = 1300, 1360
		roletest.MustReload(t, Role, n, n.cfg, c)
		known(1300, 1360)
	})
}

// The status counts what the programs have made, too.
func TestStatusOfPaths(t *testing.T) {
	inModes(t, func(t *testing.T, w *gatewaytest.World, c Settings) {
		n := start(t, w, c)
		n.attached(t, c.FastPath)
		newFlow(t, w, 7000).passes(t)
		st := n.Status().(Status)
		if st.FastPath.Mode != c.FastPath || st.Sessions != 1 || fmt.Sprint(st.Addresses) != "[{192.0.2.64 1 1 1}]" {
			t.Errorf("status %+v", st)
		}
	})
}

// TestAutoWithOwnAddress chooses a fast path although a program of our own leads
// packets for the address to the engine.
func TestAutoWithOwnAddress(t *testing.T) {
	w, c := gatewaytest.NewWorld(t), testSettings(t)
	c.FastPath, c.Name = fastpath.ModeAuto, "nat64.auto"
	c.Pool4 = []PoolRange{{Prefix: netip.PrefixFrom(gatewaytest.Gateway4, 32), Transports: AllTransports, First: 20000, Last: 29999}}
	n := start(t, w, c)
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
	w, c := gatewaytest.NewWorld(t), testSettings(t)
	c.FastPath = fastpath.ModeXDP
	n, err := New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	flow := sync.OnceValue(func() *flow { return newFlow(t, w, 7000) })
	w.XDPThatCarriesNothing(t, n, n.fast.Driver, func() driver.Forecast { return plan(c, new(role.Seats)) }, func() { flow().passes(t) })
}
