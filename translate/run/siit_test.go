// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/translate"
)

var (
	siitSix = netip.MustParseAddr("192.0.2.66")            // six as IPv4 hosts see it
	four6   = netip.MustParseAddr("2001:db8:64::c000:202") // four as IPv6 hosts see it
)

func siitConfig() SIITSettings {
	c := defaultSIIT()
	c.Pool6 = []netip.Prefix{netip.MustParsePrefix("2001:db8:64::/96")}
	c.EAM = []translate.Mapping{{IPv4: netip.PrefixFrom(siitSix, 32), IPv6: netip.PrefixFrom(sixAddr, 128)}}
	c.Workers, c.FastPath = 2, fastpath.ModeOff
	return c
}

// startSIIT runs a stateless translator. Its IPv4 address for six lies in the network
// that four is connected to, so four asks for it by ARP.
func startSIIT(t *testing.T) (*world, *SIIT) {
	t.Helper()
	return startSIITWith(t, slog.DiscardHandler)
}

func startSIITWith(t *testing.T, log slog.Handler) (*world, *SIIT) {
	t.Helper()
	w := newWorld(t)
	s, err := NewSIIT(siitConfig(), slog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	w.start(t, s)
	return w, s
}

func TestSIITCarriesUDP(t *testing.T) {
	w, _ := startSIIT(t)
	six := open(t, w.six, netip.AddrPortFrom(sixAddr, 7000))
	four := open(t, w.four, netip.AddrPortFrom(fourAddr, 7001))
	six.send(t, netip.AddrPortFrom(four6, 7001), "out")
	if from := four.wants(t, "out", 63); from != netip.AddrPortFrom(siitSix, 7000) {
		t.Errorf("four saw %s", from)
	}
	four.send(t, netip.AddrPortFrom(siitSix, 7000), "back")
	if from := six.wants(t, "back", 63); from != netip.AddrPortFrom(four6, 7001) {
		t.Errorf("six saw %s", from)
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	w.clean(t)
}

func TestSIITCarriesTCP(t *testing.T) {
	w, _ := startSIIT(t)
	const size = 8 << 20
	if peer := transfer(t, w.six, w.four, netip.AddrPortFrom(fourAddr, 8080), netip.AddrPortFrom(four6, 8080), size); peer.Addr() != siitSix {
		t.Errorf("four saw %s", peer)
	}
	if peer := transfer(t, w.four, w.six, netip.AddrPortFrom(sixAddr, 8080), netip.AddrPortFrom(siitSix, 8080), size); peer.Addr() != four6 {
		t.Errorf("six saw %s", peer)
	}
}

// TestSIITReload changes the prefix below a flow by the mapping, and refuses what
// cannot work.
func TestSIITReload(t *testing.T) {
	w, s := startSIIT(t)
	six := open(t, w.six, netip.AddrPortFrom(sixAddr, 7000))
	four := open(t, w.four, netip.AddrPortFrom(fourAddr, 7001))
	pass := func(to netip.Addr) {
		t.Helper()
		six.send(t, netip.AddrPortFrom(to, 7001), "out")
		four.wants(t, "out", 63)
	}
	changed := func(change func(*SIITSettings)) ([]string, error) {
		next := siitConfig()
		change(&next)
		return reload(SIITRole, s, s.cfg, next)
	}
	pass(four6)
	other := netip.MustParsePrefix("2001:db8:65::/96")
	if keys, err := changed(func(c *SIITSettings) { c.Pool6 = append(c.Pool6, other); c.MTU = 1400 }); err != nil || !cmp.Equal(keys, []string{"mtu"}) {
		t.Fatalf("keys %v, error %v", keys, err)
	}
	pass(netip.MustParseAddr("2001:db8:65::c000:202"))
	pass(four6)
	if _, err := changed(func(c *SIITSettings) { c.Pool6 = []netip.Prefix{other} }); err != nil {
		t.Fatal(err)
	}
	pass(netip.MustParseAddr("2001:db8:65::c000:202"))
	before := s.Status()
	for name, change := range map[string]func(*SIITSettings){
		"overlap": func(c *SIITSettings) {
			c.EAM = append(c.EAM, translate.Mapping{IPv4: netip.MustParsePrefix("192.0.2.66/32"), IPv6: netip.MustParsePrefix("2001:db8::9/128")})
		},
		"route of somebody else": func(c *SIITSettings) { c.Pool4 = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} },
		"no file":                func(c *SIITSettings) { c.EAMFile = "/nonexistent/mappings" },
	} {
		if _, err := changed(change); err == nil {
			t.Errorf("%s: no error", name)
		}
		if diff := cmp.Diff(before, s.Status(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("%s changed (-before +after):\n%s", name, diff)
		}
	}
	pass(netip.MustParseAddr("2001:db8:65::c000:202"))
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	w.clean(t)
}

// TestSIITMappings adds and removes one while the translator runs.
func TestSIITMappings(t *testing.T) {
	w, s := startSIIT(t)
	six := open(t, w.six, netip.AddrPortFrom(sixAddr, 7000))
	four := open(t, w.four, netip.AddrPortFrom(fourAddr, 7001))
	second := translate.Mapping{IPv4: netip.MustParsePrefix("192.0.2.2/32"), IPv6: netip.MustParsePrefix("2001:db8:46::2/128")}
	// The mapping of four's own address is for IPv6 hosts; its network is connected.
	if err := s.AddMapping(second); err != nil {
		t.Fatal(err)
	}
	if got := len(s.Mappings()); got != 2 {
		t.Errorf("%d mappings", got)
	}
	if err := s.AddMapping(translate.Mapping{IPv4: netip.PrefixFrom(siitSix, 32), IPv6: netip.MustParsePrefix("2001:db8::9/128")}); err == nil || len(s.Mappings()) != 2 {
		t.Errorf("an overlap was taken, error %v", err)
	}
	if err := s.RemoveMapping(second); err != nil || len(s.Mappings()) != 1 {
		t.Errorf("removal: %v", err)
	}
	if err := s.RemoveMapping(second); err == nil || !strings.Contains(err.Error(), "no such mapping") {
		t.Errorf("second removal: %v", err)
	}
	six.send(t, netip.AddrPortFrom(four6, 7001), "out")
	four.wants(t, "out", 63)
}
