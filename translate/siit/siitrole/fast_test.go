// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
)

// inModes runs a test with a translator on each of some ways that packets can take.
func inModes(t *testing.T, modes []fastpath.Mode, f func(t *testing.T, w *gatewaytest.World, s *SIIT, c Settings)) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			w, c := gatewaytest.NewWorld(t), testSettings()
			c.FastPath, c.Name = mode, "siit."+string(mode)
			s, err := New(c, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			s.device.LastRestore = testutil.LastRestore
			w.Start(t, s)
			s.takes(t, gatewaytest.PathOfMode(mode))
			f(t, w, s, c)
		})
	}
}

// takes waits until packets take a way, and returns why.
func (s *SIIT) takes(t *testing.T, path string) (why string) {
	t.Helper()
	for deadline := time.Now().Add(testutil.Patience); ; time.Sleep(10 * time.Millisecond) {
		f := s.fast.Status()
		if f.Path == path {
			return f.Why
		}
		if time.Now().After(deadline) {
			t.Fatalf("the path is %s, want %s: %s", f.Path, path, f.Why)
		}
	}
}

// forwarded is how many packets the programs have translated.
func (s *SIIT) forwarded() (sum uint64) {
	for _, count := range s.fast.Status().Packets["forward"] {
		sum += count
	}
	return sum
}

// pair is a UDP flow between six and four, who see each other by the translator.
type pair struct {
	six, four     *gatewaytest.Socket
	asSix, asFour netip.AddrPort // how four sees six, and six four
}

func newPair(t *testing.T, w *gatewaytest.World, port uint16) *pair {
	t.Helper()
	return &pair{
		six: gatewaytest.Open(t, w.Six, netip.AddrPortFrom(gatewaytest.SixAddr, port)), four: gatewaytest.Open(t, w.Four, netip.AddrPortFrom(gatewaytest.FourAddr, port)),
		asSix: netip.AddrPortFrom(six4, port), asFour: netip.AddrPortFrom(four6, port),
	}
}

// passes sends a packet each way.
func (p *pair) passes(t *testing.T) {
	t.Helper()
	p.six.Send(t, p.asFour, "out")
	if from := p.four.Wants(t, "out", 63); from != p.asSix {
		t.Errorf("four saw %s, want %s", from, p.asSix)
	}
	p.four.Send(t, p.asSix, "back")
	if from := p.six.Wants(t, "back", 63); from != p.asFour {
		t.Errorf("six saw %s, want %s", from, p.asFour)
	}
}

func TestInModes(t *testing.T) {
	configtest.InEffect(t, "siit", "fast_path")
	inModes(t, gatewaytest.Modes, func(t *testing.T, w *gatewaytest.World, s *SIIT, c Settings) {
		p := newPair(t, w, 7000)
		for range 20 {
			p.passes(t)
		}
		const size = 4 << 20
		if peer := gatewaytest.Transfer(t, w.Six, w.Four, netip.AddrPortFrom(gatewaytest.FourAddr, 8080), netip.AddrPortFrom(four6, 8080), size); peer.Addr() != six4 {
			t.Errorf("four saw %s", peer)
		}
		if peer := gatewaytest.Transfer(t, w.Four, w.Six, netip.AddrPortFrom(gatewaytest.SixAddr, 8080), netip.AddrPortFrom(six4, 8080), size); peer.Addr() != four6 {
			t.Errorf("six saw %s", peer)
		}
		st := s.Status().(Status)
		fast, engine := s.forwarded(), s.stats()
		if (fast > 30) != (c.FastPath != fastpath.ModeOff) {
			t.Errorf("the programs have translated %d packets: %+v", fast, st.FastPath.Packets)
		}
		if c.FastPath != fastpath.ModeOff && engine.ToIPv4+engine.ToIPv6 > fast/4 {
			t.Errorf("the engine has translated %d packets, the programs %d: %+v", engine.ToIPv4+engine.ToIPv6, fast, st.FastPath.Packets)
		}
		if st.FastPath.Mode != c.FastPath || st.FastPath.Survives {
			t.Errorf("status %+v", st.FastPath)
		}
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
		w.Clean(t)
		w.Gateway.Do(t, func() error { return noFilters(t, "v4", "v6") })
	})
}

// noFilters fails if programs are left at devices.
func noFilters(t *testing.T, devices ...string) error {
	for _, name := range devices {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if x := l.Attrs().Xdp; x != nil && x.Attached {
			t.Errorf("%s still has an XDP program", name)
		}
		filters, err := netlink.FilterList(l, netlink.HANDLE_MIN_INGRESS)
		if err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
		if len(filters) > 0 {
			t.Errorf("%s still has filters", name)
		}
	}
	return nil
}

// TestMappingsUnderTraffic adds and removes mappings below a flow, which loses nothing:
// what programs and engine know is the same in each moment.
func TestMappingsUnderTraffic(t *testing.T) {
	inModes(t, gatewaytest.Modes, func(t *testing.T, w *gatewaytest.World, s *SIIT, _ Settings) {
		second := netip.MustParseAddr("192.0.2.67")
		m := translate.Mapping{IPv4: netip.PrefixFrom(second, 32), IPv6: netip.MustParsePrefix("2001:db8:6::3/128")}
		w.Six.Do(t, func() error { return gatewaytest.Address("v6", "2001:db8:6::3/64") })
		p := newPair(t, w, 7000)
		other := &pair{
			six: gatewaytest.Open(t, w.Six, netip.MustParseAddrPort("[2001:db8:6::3]:7001")), four: gatewaytest.Open(t, w.Four, netip.AddrPortFrom(gatewaytest.FourAddr, 7001)),
			asSix: netip.AddrPortFrom(second, 7001), asFour: netip.AddrPortFrom(four6, 7001),
		}
		for range 5 {
			p.passes(t)
			if err := s.AddMapping(m); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				other.passes(t)
				p.passes(t)
			}
			if err := s.RemoveMapping(m); err != nil {
				t.Fatal(err)
			}
			// Without the mapping its source is none that can be translated.
			before := s.dropped(t, translate.ReasonSourceUnmapped)
			other.six.Send(t, other.asFour, "unmapped")
			s.awaitDropped(t, translate.ReasonSourceUnmapped, before+1)
		}
		p.passes(t)
	})
}

func (s *SIIT) dropped(t *testing.T, r translate.Reason) uint64 {
	t.Helper()
	return s.stats().Dropped[r]
}

// awaitDropped waits until the engine has dropped so many.
func (s *SIIT) awaitDropped(t *testing.T, r translate.Reason, want uint64) {
	t.Helper()
	for deadline := time.Now().Add(testutil.Patience); s.dropped(t, r) < want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d packets dropped as %s, want %d", s.dropped(t, r), r, want)
		}
	}
}

// TestFastReload: the programs follow the prefix and the way.
func TestFastReload(t *testing.T) {
	inModes(t, gatewaytest.Modes, func(t *testing.T, w *gatewaytest.World, s *SIIT, c Settings) {
		p := newPair(t, w, 7000)
		p.passes(t)
		for _, prefix := range []string{"2001:db8:65::/96", "2001:db8:66::/64", "2001:db8:64::/96"} {
			c.Pool6 = []netip.Prefix{netip.MustParsePrefix(prefix)}
			if keys, err := roletest.Reload(Role, s, s.cfg, c); err != nil || keys != nil {
				t.Fatal(keys, err)
			}
			tp, err := translate.NewPrefix(c.Pool6[0])
			if err != nil {
				t.Fatal(err)
			}
			p.asFour = netip.AddrPortFrom(tp.Embed(gatewaytest.FourAddr), 7000)
			s.takes(t, gatewaytest.PathOfMode(c.FastPath))
			for range 3 {
				p.passes(t)
			}
		}
		mode := c.FastPath
		c.FastPath = fastpath.ModeOff
		if keys, err := roletest.Reload(Role, s, s.cfg, c); err != nil || keys != nil {
			t.Fatal(keys, err)
		}
		s.takes(t, "engine")
		p.passes(t)
		c.FastPath = fastpath.ModeTC
		keys, err := roletest.Reload(Role, s, s.cfg, c)
		if err != nil || (keys == nil) != (mode != fastpath.ModeOff) {
			t.Fatalf("keys %v, error %v", keys, err)
		}
		if mode != fastpath.ModeOff {
			s.takes(t, "tc")
		}
		p.passes(t)
	})
}

// TestChangesAsOne: while the engine changes, it carries all packets, and if it refuses,
// the programs go on as before.
func TestChangesAsOne(t *testing.T) {
	inModes(t, gatewaytest.Hooks, func(t *testing.T, w *gatewaytest.World, s *SIIT, c Settings) {
		p := newPair(t, w, 7000)
		refuse := errors.New("refused")
		for _, want := range []error{refuse, nil, refuse} {
			p.passes(t) // resolves neighbours
			c.IPv6MTU += 1300
			before := s.forwarded()
			err := s.fast.set(&c, s.Mappings(), func() error {
				for range 3 {
					p.passes(t)
				}
				if got := s.forwarded(); got != before {
					t.Errorf("the programs have translated %d packets under the change", got-before)
				}
				return want
			})
			if !errors.Is(err, want) {
				t.Errorf("error %v, want %v", err, want)
			}
			for range 3 {
				p.passes(t)
			}
			if s.forwarded() == before {
				t.Error("the programs have translated nothing after the change")
			}
		}
	})
}

// TestFastRefused: what the programs cannot take leaves all packets to the engine, until
// they can.
func TestFastRefused(t *testing.T) {
	inModes(t, gatewaytest.Modes, func(t *testing.T, w *gatewaytest.World, s *SIIT, c Settings) {
		p := newPair(t, w, 7000)
		p.passes(t)
		pool6 := c.Pool6
		for i := range 17 { // one more than the programs have room for
			c.Pool6 = append(c.Pool6, netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 0x70, byte(i)}), 96))
		}
		reload := func() {
			t.Helper()
			if _, err := roletest.Reload(Role, s, s.cfg, c); err != nil {
				t.Fatal(err)
			}
		}
		reload()
		why := s.takes(t, "engine")
		if c.FastPath != fastpath.ModeOff && !strings.Contains(why, "its programs cannot take the settings") {
			t.Errorf("why: %s", why)
		}
		p.passes(t)
		c.Pool6 = pool6
		reload()
		s.takes(t, gatewaytest.PathOfMode(c.FastPath))
		p.passes(t)
	})
}

// TestXDPThatCarriesNothing: packets pass where XDP is demanded and cannot redirect.
func TestXDPThatCarriesNothing(t *testing.T) {
	w, c := gatewaytest.NewWorld(t), testSettings()
	c.FastPath = fastpath.ModeXDP
	s, err := New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p := newPair(t, w, 7000)
	w.XDPThatCarriesNothing(t, s, s.fast.Driver, func() driver.Forecast { return plan(c, new(role.Seats)) }, func() { p.passes(t) })
}
