// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"bytes"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
)

var (
	poolAddr  = netip.MustParseAddr("192.0.2.64") // in the network that four is connected to
	poolFour6 = netip.MustParseAddr("2001:db8:64::c000:202")
)

func testSettings(t *testing.T) Settings {
	c := defaults()
	c.Clients = []netip.Prefix{netip.MustParsePrefix("2001:db8:6::/64")}
	c.Pool6 = []netip.Prefix{netip.MustParsePrefix("2001:db8:64::/96")}
	c.Pool4 = []PoolRange{{Prefix: netip.PrefixFrom(poolAddr, 32), Transports: AllTransports, First: 1024, Last: 65535}}
	c.MaxSessions, c.MaxClients = 4096, 256
	c.Workers, c.FastPath = 2, fastpath.ModeOff
	c.StateFile = filepath.Join(t.TempDir(), "state")
	return c
}

func start(t *testing.T, w *gatewaytest.World, c Settings) *NAT64 {
	t.Helper()
	n, err := New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	n.device.LastRestore = testutil.LastRestore
	w.Start(t, n)
	return n
}

// flow is a UDP flow from six to four.
type flow struct {
	six, four *gatewaytest.Socket
	to        netip.AddrPort // four, as six writes it
	pool      netip.AddrPort // six, as four sees it
}

// newFlow opens one by a packet.
func newFlow(t *testing.T, w *gatewaytest.World, port uint16) *flow {
	t.Helper()
	f := &flow{
		six: gatewaytest.Open(t, w.Six, netip.AddrPortFrom(gatewaytest.SixAddr, port)), four: gatewaytest.Open(t, w.Four, netip.AddrPortFrom(gatewaytest.FourAddr, port)),
		to: netip.AddrPortFrom(poolFour6, port),
	}
	f.six.Send(t, f.to, "first")
	f.pool = f.four.Wants(t, "first", 63)
	return f
}

// passes sends a packet each way.
func (f *flow) passes(t *testing.T) {
	t.Helper()
	f.six.Send(t, f.to, "out")
	if from := f.four.Wants(t, "out", 63); from != f.pool {
		t.Errorf("four saw %s, before %s", from, f.pool)
	}
	f.four.Send(t, f.pool, "back")
	if from := f.six.Wants(t, "back", 63); from != f.to {
		t.Errorf("six saw %s, want %s", from, f.to)
	}
}

func TestCarriesUDP(t *testing.T) {
	w := gatewaytest.NewWorld(t)
	n := start(t, w, testSettings(t))
	f := newFlow(t, w, 7000)
	if f.pool.Addr() != poolAddr {
		t.Errorf("four saw %s", f.pool)
	}
	f.passes(t)
	st := n.Status().(Status)
	if st.Sessions != 1 || st.Subscribers != 1 || st.Blocks != 1 || st.State != "serving" {
		t.Errorf("status %+v", st)
	}
	if want := []PoolUse{{Address: poolAddr, Blocks: 1, Clients: 1, Bound: 1}}; !cmp.Equal(st.Addresses, want, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })) {
		t.Errorf("addresses %+v, want %+v", st.Addresses, want)
	}
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
	w.Clean(t)
}

// TestOtherState reports a state file that it cannot read, and replaces it; of a
// fresh one or its own it says nothing.
func TestOtherState(t *testing.T) {
	w := gatewaytest.NewWorld(t)
	c := testSettings(t)
	z := sizesOf(&c)
	garbage := func(n int) []byte { return bytes.Repeat([]byte{0xa5}, n) }
	const header = 4096
	for _, tt := range []struct {
		name    string
		content []byte // nil: what is there
		told    int
	}{
		{"none", nil, 0},
		{"its own", nil, 0},
		{"another size", []byte("garbage"), 1},
		{"garbage of the right size", append(make([]byte, header), garbage(memoryBytes(z))...), 1},
		{"as of another boot", garbage(header + memoryBytes(z)), 0},
		{"replaced", nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.content != nil {
				if err := os.WriteFile(c.StateFile, tt.content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var text bytes.Buffer
			n, err := New(c, slog.New(slog.NewTextHandler(&text, nil)))
			if err != nil {
				t.Fatal(err)
			}
			w.Start(t, n)
			if err := w.Stop(); err != nil {
				t.Error(err)
			}
			if got := strings.Count(text.String(), "it is replaced"); got != tt.told {
				t.Errorf("told %d times, want %d:\n%s", got, tt.told, &text)
			}
		})
	}
}

func TestCarriesTCP(t *testing.T) {
	w := gatewaytest.NewWorld(t)
	c := testSettings(t)
	inside, outside := netip.AddrPortFrom(gatewaytest.SixAddr, 8080), netip.AddrPortFrom(poolAddr, 8080)
	c.Static = []StaticBinding{{Transport: TCP, Inside: inside, Outside: outside}}
	start(t, w, c)
	const size = 8 << 20
	if peer := gatewaytest.Transfer(t, w.Six, w.Four, netip.AddrPortFrom(gatewaytest.FourAddr, 8080), netip.AddrPortFrom(poolFour6, 8080), size); peer.Addr() != poolAddr {
		t.Errorf("four saw %s", peer)
	}
	if peer := gatewaytest.Transfer(t, w.Four, w.Six, inside, outside, size); peer.Addr() != poolFour6 {
		t.Errorf("six saw %s", peer)
	}
}

// TestRestart has a process come back: the sessions of the file go on.
func TestRestart(t *testing.T) {
	w := gatewaytest.NewWorld(t)
	c := testSettings(t)
	start(t, w, c)
	f := newFlow(t, w, 7000)
	for _, leaves := range []bool{false, true} {
		end := w.Stop
		if leaves {
			end = w.Leave
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if n := start(t, w, c); n.adopted != 1 {
			t.Errorf("%d sessions taken over, want 1", n.adopted)
		}
		// The IPv4 side alone knows nothing that could make the session again.
		f.four.Send(t, f.pool, "back")
		f.six.Wants(t, "back", 63)
		f.passes(t)
	}
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	c.MaxSessions *= 2
	if n := start(t, w, c); n.adopted != 0 {
		t.Errorf("a table of another size took %d sessions over", n.adopted)
	}
	newFlow(t, w, 7001).passes(t)
}

// TestReload changes the pools below a flow, and refuses what cannot work.
func TestReload(t *testing.T) {
	w := gatewaytest.NewWorld(t)
	c := testSettings(t)
	n := start(t, w, c)
	f := newFlow(t, w, 7000)
	changed := func(change func(*Settings)) ([]string, error) {
		next := c
		next.Pool4, next.Pool6 = slices.Clone(c.Pool4), slices.Clone(c.Pool6)
		change(&next)
		return roletest.Reload(Role, n, n.cfg, next)
	}
	for _, tt := range []struct {
		name   string
		change func(*Settings)
		keys   []string
	}{
		{"timers", func(c *Settings) { c.UDPTimeout *= 2 }, nil},
		{"another prefix more", func(c *Settings) { c.Pool6 = append(c.Pool6, netip.MustParsePrefix("2001:db8:65::/96")) }, nil},
		{"another address more", func(c *Settings) {
			c.Pool4 = append(c.Pool4, PoolRange{Prefix: netip.MustParsePrefix("192.0.2.72/29"), Transports: AllTransports, First: 1024, Last: 65535})
		}, nil},
		{"filtering", func(c *Settings) { c.FilteringUDP = AddressDependent }, nil},
		{"what waits for a restart", func(c *Settings) { c.MaxSessions = 8192; c.MTU = 1400 }, []string{"mtu", "max_sessions"}},
		{"what flows have is no longer named", func(c *Settings) {
			c.Pool6[0] = netip.MustParsePrefix("2001:db8:65::/96")
			c.Pool4[0].Prefix = netip.MustParsePrefix("192.0.2.72/29")
		}, nil},
		{"back", func(*Settings) {}, nil},
	} {
		keys, err := changed(tt.change)
		if err != nil || !cmp.Equal(keys, tt.keys) {
			t.Errorf("%s: keys %v, error %v", tt.name, keys, err)
		}
		f.passes(t)
	}
	before := n.cfg
	for _, tt := range []struct {
		name   string
		change func(*Settings)
		want   string
	}{
		{"an address of the host", func(c *Settings) { c.Pool4[0].Prefix = netip.PrefixFrom(gatewaytest.Gateway4, 32) }, "an address of this host itself"},
		{"a prefix in use", func(c *Settings) { c.Pool6 = append(c.Pool6, netip.MustParsePrefix("2001:db8:6::/64")) }, "an address of this host"},
		{"a static binding outside", func(c *Settings) {
			c.Static = []StaticBinding{{Transport: TCP, Inside: netip.AddrPortFrom(gatewaytest.SixAddr, 80), Outside: netip.MustParseAddrPort("198.51.100.1:80")}}
		}, "not in pool4"},
	} {
		_, err := changed(tt.change)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
		if diff := cmp.Diff(before, n.cfg, configtest.Same); diff != "" {
			t.Errorf("%s changed (-before +after):\n%s", tt.name, diff)
		}
		f.passes(t)
	}
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
	w.Clean(t)
}

func TestCarriesICMP(t *testing.T) {
	inModes(t, func(t *testing.T, w *gatewaytest.World, c Settings) {
		n := start(t, w, c)
		n.attached(t, c.FastPath)
		for range 3 {
			w.Pings(t, poolFour6, 63)
			w.Refused(t, poolFour6)
		}
	})
}

// TestLinksBoundErrors: no translated error reports more than the links take.
func TestLinksBoundErrors(t *testing.T) {
	w := gatewaytest.NewWorld(t)
	start(t, w, testSettings(t))
	w.LinksBoundErrors(t, newFlow(t, w, 7000).pool, poolFour6)
}
