// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"bytes"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
	"github.com/isthmus-net/isthmus/translate/nat64"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

var (
	otherPool6 = netip.MustParsePrefix("2001:db8:65::/96")
	otherPool4 = PoolRange{Prefix: netip.MustParsePrefix("192.0.2.72/29"), Transports: AllTransports, First: 1024, Last: 65535}
	ownPool4   = PoolRange{Prefix: netip.PrefixFrom(gatewaytest.Gateway4, 32), Transports: AllTransports, First: 20000, Last: 29999}
)

// elsewhere is a configuration with other pools.
func elsewhere(c Settings) Settings {
	c.Pool6, c.Pool4 = []netip.Prefix{otherPool6}, []PoolRange{otherPool4}
	return c
}

// endAll ends all sessions, as time does.
func (n *NAT64) endAll() {
	n.do(func(e *nat64.Engine, now time.Time, out *nat64.Out) {
		e.End(0, 1<<20, now, out, func(nat64.SessionInfo) bool { return true })
	})
}

// TestRestartLeaves: flows of prefixes and addresses that are no longer named outlive
// restarts, be they taken out before or by one, and what they have is given up when they end.
func TestRestartLeaves(t *testing.T) {
	inModes(t, func(t *testing.T, w *gatewaytest.World, c Settings) {
		c.Announce = true
		n := start(t, w, c)
		n.attached(t, c.FastPath)
		f := newFlow(t, w, 7000)
		next := elsewhere(c)
		if _, err := roletest.Reload(Role, n, n.cfg, next); err != nil {
			t.Fatal(err)
		}
		f.passes(t)
		for _, leaves := range []bool{false, true, false} {
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
			n = start(t, w, next)
			n.attached(t, c.FastPath)
			if got, want := n.Status().(Status).Leaving, []string{poolAddr.String(), c.Pool6[0].String()}; !slices.Equal(got, want) {
				t.Errorf("leaving %v, want %v", got, want)
			}
			if got := n.AnnouncedPrefixes(); !slices.Contains(got, netip.PrefixFrom(poolAddr, 32)) || !slices.Contains(got, c.Pool6[0]) {
				t.Errorf("announced %v", got)
			}
			f.four.Send(t, f.pool, "back")
			f.six.Wants(t, "back", 63)
			for range 5 {
				f.passes(t)
			}
		}
		n.endAll()
		if err := n.letGo(); err != nil {
			t.Error(err)
		}
		if got := n.Status().(Status).Leaving; len(got) > 0 {
			t.Errorf("%v leaves without a session", got)
		}
		if got := w.Leads(t, n.device.Name()); !slices.Equal(got, []string{"192.0.2.72/29", "2001:db8:65::/96"}) {
			t.Errorf("it leads %v", got)
		}
		if got := w.Answers(t); slices.Contains(got, poolAddr.String()) || len(got) != 8 {
			t.Errorf("it answers for %v", got)
		}
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
		w.Clean(t)
	})
}

// TestRestartLeavesOwn: the same at an address of the host itself, taken out as a whole
// or some of its ports; the others are the host's at once.
func TestRestartLeavesOwn(t *testing.T) {
	for _, tt := range []struct {
		name string
		mode fastpath.Mode
		next PoolRange
	}{
		{"the address, without programs", fastpath.ModeOff, otherPool4},
		{"the address", fastpath.ModeTC, otherPool4},
		{"some ports, without programs", fastpath.ModeOff, PoolRange{Prefix: ownPool4.Prefix, Transports: AllTransports, First: 19000, Last: 19499}},
		{"some ports", fastpath.ModeXDP, PoolRange{Prefix: ownPool4.Prefix, Transports: AllTransports, First: 19000, Last: 19499}},
		{"a protocol", fastpath.ModeTC, PoolRange{Prefix: ownPool4.Prefix, Transports: TCP, First: 20000, Last: 29999}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, c := gatewaytest.NewWorld(t), testSettings(t)
			c.FastPath, c.Name, c.Pool4 = tt.mode, "nat64.own", []PoolRange{ownPool4}
			n := start(t, w, c)
			n.attached(t, c.FastPath)
			f := newFlow(t, w, 7000)
			own := gatewaytest.Open(t, w.Gateway, netip.AddrPortFrom(gatewaytest.Gateway4, 5353))
			next := c
			next.Pool4 = []PoolRange{tt.next}
			carries := func(when string) {
				t.Helper()
				if got := n.Status().(Status).Leaving; !slices.Equal(got, []string{"192.0.2.1/32 20000-29999"}) {
					t.Errorf("%s: leaving %v", when, got)
				}
				f.four.Send(t, f.pool, "back")
				f.six.Wants(t, "back", 63)
				for range 5 {
					f.passes(t)
				}
				f.four.Send(t, own.At(), "to the host")
				own.Wants(t, "to the host", 64)
			}
			if _, err := roletest.Reload(Role, n, n.cfg, next); err != nil {
				t.Fatal(err)
			}
			carries("after a reload")
			for _, leaves := range []bool{false, true} {
				end := w.Stop
				if leaves {
					end = w.Leave
				}
				if err := end(); err != nil {
					t.Fatal(err)
				}
				n = start(t, w, next)
				n.attached(t, c.FastPath)
				carries("after a restart")
			}
			n.endAll()
			if err := n.letGo(); err != nil {
				t.Error(err)
			}
			if got := n.Status().(Status).Leaving; len(got) > 0 {
				t.Errorf("%v leaves without a session", got)
			}
			if err := w.Stop(); err != nil {
				t.Error(err)
			}
			w.Clean(t)
		})
	}
}

// TestRestartYields: what the configuration gives to another instance, or the host has
// taken, is not led here for old flows: these end, with a word in the log, and clients begin
// again.
func TestRestartYields(t *testing.T) {
	addrs := func(t *testing.T, w *gatewaytest.World, link, addr string) {
		t.Helper()
		w.Gateway.Do(t, func() error { return gatewaytest.Address(link, addr) })
	}
	for i, tt := range []struct {
		name     string
		pool4    []PoolRange // at first
		claims   config.Claims
		change   func(t *testing.T, w *gatewaytest.World)
		foretold bool
	}{
		{"the address to another instance", nil, config.Claims{Routes: []netip.Prefix{netip.MustParsePrefix("192.0.2.64/28")}}, nil, true},
		{"the prefix to another instance", nil, config.Claims{Routes: []netip.Prefix{netip.MustParsePrefix("2001:db8:64::/96")}}, nil, true},
		{"ports to the socket of another instance", []PoolRange{ownPool4}, config.Claims{Sockets: []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:20001")}}, nil, true},
		{"ports to the host's own connections", []PoolRange{ownPool4}, config.Claims{}, func(t *testing.T, w *gatewaytest.World) {
			w.Gateway.Do(t, func() error { return os.WriteFile(localRangeFile, []byte("20000 60999"), 0) })
		}, true},
		{"the address to the host", nil, config.Claims{}, func(t *testing.T, w *gatewaytest.World) { addrs(t, w, "v4", poolAddr.String()+"/24") }, true},
		{"the prefix to a network of the host", nil, config.Claims{}, func(t *testing.T, w *gatewaytest.World) { addrs(t, w, "v6", "2001:db8:64::1/96") }, true},
		{"the address to a route of somebody's", nil, config.Claims{}, func(t *testing.T, w *gatewaytest.World) {
			w.Gateway.Do(t, func() error {
				link, err := netlink.LinkByName("v4")
				if err != nil {
					return err
				}
				return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: &net.IPNet{IP: poolAddr.AsSlice(), Mask: net.CIDRMask(32, 32)}, Scope: netlink.SCOPE_LINK})
			})
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, c := gatewaytest.NewWorld(t), testSettings(t)
			c.FastPath, c.Name = gatewaytest.Modes[i%len(gatewaytest.Modes)], "nat64.yields"
			if tt.pool4 != nil {
				c.Pool4 = tt.pool4
			}
			start(t, w, c).attached(t, c.FastPath)
			f := newFlow(t, w, 7000)
			if err := w.Stop(); err != nil {
				t.Fatal(err)
			}
			if tt.change != nil {
				tt.change(t, w)
			}
			next := elsewhere(c)
			next.Beside = tt.claims
			w.Gateway.Do(t, func() error {
				if got := strings.Join(advise(next), "\n"); !strings.Contains(got, "ends 1 sessions") && tt.foretold {
					t.Errorf("the advice is %q", got)
				}
				return nil
			})
			var text bytes.Buffer
			n, err := New(next, slog.New(slog.NewTextHandler(&text, nil)))
			if err != nil {
				t.Fatal(err)
			}
			w.Start(t, n)
			if got := text.String(); !strings.Contains(got, "others have these now") || !strings.Contains(got, "sessions=1") {
				t.Errorf("the log says %s", got)
			}
			if st := n.Status().(Status); st.Sessions != 0 || len(st.Leaving) > 0 {
				t.Errorf("%d sessions go on, leaving %v", st.Sessions, st.Leaving)
			}
			if got := w.Leads(t, n.device.Name()); !slices.Equal(got, []string{"192.0.2.72/29", "2001:db8:65::/96"}) {
				t.Errorf("it leads %v", got)
			}
			f.six.Send(t, netip.AddrPortFrom(netip.MustParseAddr("2001:db8:65::c000:202"), 7000), "again")
			if from := f.four.Wants(t, "again", 63); !otherPool4.Prefix.Contains(from.Addr()) {
				t.Errorf("the client starts again from %s", from)
			}
		})
	}
}

// TestLeavesNoRoute: a route of a process that left its device to the next one goes if
// neither the configuration nor a flow needs it.
func TestLeavesNoRoute(t *testing.T) {
	w, c := gatewaytest.NewWorld(t), testSettings(t)
	c.FastPath, c.Name = fastpath.ModeTC, "nat64.routes"
	start(t, w, c).attached(t, c.FastPath)
	if err := w.Leave(); err != nil {
		t.Fatal(err)
	}
	n := start(t, w, elsewhere(c))
	if got := w.Leads(t, n.device.Name()); !slices.Equal(got, []string{"192.0.2.72/29", "2001:db8:65::/96"}) {
		t.Errorf("it leads %v", got)
	}
}

// TestNote: what is noted is read again, and of what is damaged nothing.
func TestNote(t *testing.T) {
	whole := parseNote("64:ff9b::/96 2001:db8:64::/96 192.0.2.1:20000-29999/7 192.0.2.9:80-80/1")
	want := []nat64.Range{
		{Prefix: netip.MustParsePrefix("192.0.2.1/32"), First: 20000, Last: 29999, Transports: nat64.AllTransports, Own: true},
		{Prefix: netip.MustParsePrefix("192.0.2.9/32"), First: 80, Last: 80, Transports: 1 << state.TCP, Own: true},
	}
	if len(whole.prefixes) != 2 || !reflect.DeepEqual(whole.own, want) {
		t.Errorf("read %+v", whole)
	}
	if again := parseNote(whole.String()); !reflect.DeepEqual(again, whole) {
		t.Errorf("read again %+v", again)
	}
	for range 9 {
		whole.own = append(whole.own, whole.own...)
	}
	for len(whole.prefixes) < nat64.MaxPrefixes {
		whole.prefixes = append(whole.prefixes, whole.prefixes[1])
	}
	if text := whole.String(); len(text) > kept.MaxNote || len(parseNote(text).prefixes) != nat64.MaxPrefixes {
		t.Errorf("%d octets do not fit", len(text))
	}
	for _, text := range []string{
		"", "64:ff9b::/95", "192.0.2.1", "192.0.2.1:20000-29999", "192.0.2.1:20000-29999/0", "192.0.2.1:20000-29999/8",
		"192.0.2.1:29999-20000/7", "192.0.2.1:0-5/7", "192.0.2.1:1-65536/7", "127.0.0.1:20000-29999/7", "[2001:db8::1]:1-2/7",
		"64:ff9b::/96 192.0.2.1:-/7", "-",
	} {
		if got := parseNote(text); !reflect.DeepEqual(got, note{}) {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

// TestReviewLeaves: flows of what is no longer named outlive that they are asked after, and a reload
// behind that.
func TestReviewLeaves(t *testing.T) {
	w, c := gatewaytest.NewWorld(t), testSettings(t)
	n := start(t, w, c)
	f := newFlow(t, w, 7000)
	next := elsewhere(c)
	if _, err := roletest.Reload(Role, n, n.cfg, next); err != nil {
		t.Fatal(err)
	}
	want := n.Status().(Status).Leaving
	if err := n.letGo(); err != nil {
		t.Fatal(err)
	}
	more := next
	more.BlockLog = !more.BlockLog
	if _, err := roletest.Reload(Role, n, next, more); err != nil {
		t.Fatal(err)
	}
	f.passes(t)
	if got := n.Status().(Status).Leaving; len(want) != 2 || !slices.Equal(got, want) {
		t.Errorf("%v is leaving, want %v", got, want)
	}
}

// TestReloadYields: flows at an address that is no longer named go on until the host or
// another instance takes it, while this one runs.
func TestReloadYields(t *testing.T) {
	for _, tt := range []struct {
		name string
		take func(w *gatewaytest.World, n *NAT64, next Settings) error
	}{
		{"the host", func(w *gatewaytest.World, n *NAT64, _ Settings) error {
			w.Gateway.Do(t, func() error { return gatewaytest.Address("v4", poolAddr.String()+"/24") })
			return nil
		}},
		{"another instance", func(_ *gatewaytest.World, n *NAT64, next Settings) error {
			next.Beside.Routes = []netip.Prefix{netip.PrefixFrom(poolAddr, 32)}
			change, err := n.Prepare(next)
			if err == nil {
				_, err = change()
			}
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, c := gatewaytest.NewWorld(t), testSettings(t)
			n := start(t, w, c)
			f := newFlow(t, w, 7000)
			next := elsewhere(c)
			if _, err := roletest.Reload(Role, n, n.cfg, next); err != nil {
				t.Fatal(err)
			}
			f.passes(t)
			if err := tt.take(w, n, next); err != nil {
				t.Fatal(err)
			}
			n.await(t, func(st Status) bool { return st.Sessions == 0 && len(st.Leaving) == 0 })
			if got := w.Leads(t, n.device.Name()); !slices.Equal(got, []string{"192.0.2.72/29", "2001:db8:65::/96"}) {
				t.Errorf("it leads %v", got)
			}
		})
	}
}

// await waits for a status.
func (n *NAT64) await(t *testing.T, is func(Status) bool) {
	t.Helper()
	for deadline := time.Now().Add(testutil.Patience); ; time.Sleep(10 * time.Millisecond) {
		st := n.Status().(Status)
		if is(st) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("status %+v", st)
		}
	}
}

// TestUnserved: the status says so when an address of the pool becomes the host's own
// and nothing leads its packets here.
func TestUnserved(t *testing.T) {
	w, c := gatewaytest.NewWorld(t), testSettings(t)
	n := start(t, w, c)
	if why := n.Status().(Status).Unserved; why != "" {
		t.Errorf("unserved: %s", why)
	}
	w.Gateway.Do(t, func() error { return gatewaytest.Address("v4", poolAddr.String()+"/24") })
	n.await(t, func(st Status) bool { return strings.Contains(st.Unserved, poolAddr.String()) })
	w.Gateway.Do(t, func() error {
		link, err := netlink.LinkByName("v4")
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr(poolAddr.String() + "/24")
		if err != nil {
			return err
		}
		return netlink.AddrDel(link, addr)
	})
	n.await(t, func(st Status) bool { return st.Unserved == "" })
	newFlow(t, w, 7000).passes(t)
}
