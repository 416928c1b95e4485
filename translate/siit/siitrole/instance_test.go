// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
)

var (
	six4  = netip.MustParseAddr("192.0.2.66")            // six as IPv4 hosts see it
	four6 = netip.MustParseAddr("2001:db8:64::c000:202") // four as IPv6 hosts see it
)

func testSettings() Settings {
	c := defaults()
	c.Pool6 = []netip.Prefix{netip.MustParsePrefix("2001:db8:64::/96")}
	c.EAM = []translate.Mapping{{IPv4: netip.PrefixFrom(six4, 32), IPv6: netip.PrefixFrom(gatewaytest.SixAddr, 128)}}
	c.Workers, c.FastPath = 2, fastpath.ModeOff
	return c
}

// start runs a stateless translator. Its IPv4 address for six lies in the network
// that four is connected to, so four asks for it by ARP.
func start(t *testing.T) (*gatewaytest.World, *SIIT) {
	t.Helper()
	return startWith(t, slog.DiscardHandler)
}

func startWith(t *testing.T, log slog.Handler) (*gatewaytest.World, *SIIT) {
	t.Helper()
	w := gatewaytest.NewWorld(t)
	s, err := New(testSettings(), slog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	w.Start(t, s)
	return w, s
}

func TestCarriesUDP(t *testing.T) {
	w, _ := start(t)
	six := gatewaytest.Open(t, w.Six, netip.AddrPortFrom(gatewaytest.SixAddr, 7000))
	four := gatewaytest.Open(t, w.Four, netip.AddrPortFrom(gatewaytest.FourAddr, 7001))
	six.Send(t, netip.AddrPortFrom(four6, 7001), "out")
	if from := four.Wants(t, "out", 63); from != netip.AddrPortFrom(six4, 7000) {
		t.Errorf("four saw %s", from)
	}
	four.Send(t, netip.AddrPortFrom(six4, 7000), "back")
	if from := six.Wants(t, "back", 63); from != netip.AddrPortFrom(four6, 7001) {
		t.Errorf("six saw %s", from)
	}
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
	w.Clean(t)
}

func TestCarriesTCP(t *testing.T) {
	w, _ := start(t)
	const size = 8 << 20
	if peer := gatewaytest.Transfer(t, w.Six, w.Four, netip.AddrPortFrom(gatewaytest.FourAddr, 8080), netip.AddrPortFrom(four6, 8080), size); peer.Addr() != six4 {
		t.Errorf("four saw %s", peer)
	}
	if peer := gatewaytest.Transfer(t, w.Four, w.Six, netip.AddrPortFrom(gatewaytest.SixAddr, 8080), netip.AddrPortFrom(six4, 8080), size); peer.Addr() != four6 {
		t.Errorf("six saw %s", peer)
	}
}

// TestReload changes the prefix below a flow by the mapping, and refuses what
// cannot work.
func TestReload(t *testing.T) {
	w, s := start(t)
	six := gatewaytest.Open(t, w.Six, netip.AddrPortFrom(gatewaytest.SixAddr, 7000))
	four := gatewaytest.Open(t, w.Four, netip.AddrPortFrom(gatewaytest.FourAddr, 7001))
	pass := func(to netip.Addr) {
		t.Helper()
		six.Send(t, netip.AddrPortFrom(to, 7001), "out")
		four.Wants(t, "out", 63)
	}
	changed := func(change func(*Settings)) ([]string, error) {
		next := testSettings()
		change(&next)
		return roletest.Reload(Role, s, s.cfg, next)
	}
	pass(four6)
	other := netip.MustParsePrefix("2001:db8:65::/96")
	if keys, err := changed(func(c *Settings) { c.Pool6 = append(c.Pool6, other); c.MTU = 1400 }); err != nil || !cmp.Equal(keys, []string{"mtu"}) {
		t.Fatalf("keys %v, error %v", keys, err)
	}
	pass(netip.MustParseAddr("2001:db8:65::c000:202"))
	pass(four6)
	if _, err := changed(func(c *Settings) { c.Pool6 = []netip.Prefix{other} }); err != nil {
		t.Fatal(err)
	}
	pass(netip.MustParseAddr("2001:db8:65::c000:202"))
	before := s.Status()
	for name, change := range map[string]func(*Settings){
		"overlap": func(c *Settings) {
			c.EAM = append(c.EAM, translate.Mapping{IPv4: netip.MustParsePrefix("192.0.2.66/32"), IPv6: netip.MustParsePrefix("2001:db8::9/128")})
		},
		"route of somebody else": func(c *Settings) { c.Pool4 = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} },
		"no file":                func(c *Settings) { c.EAMFile = "/nonexistent/mappings" },
	} {
		if _, err := changed(change); err == nil {
			t.Errorf("%s: no error", name)
		}
		if diff := cmp.Diff(before, s.Status(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("%s changed (-before +after):\n%s", name, diff)
		}
	}
	pass(netip.MustParseAddr("2001:db8:65::c000:202"))
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
	w.Clean(t)
}

// TestMappings adds and removes one while the translator runs.
func TestMappings(t *testing.T) {
	w, s := start(t)
	six := gatewaytest.Open(t, w.Six, netip.AddrPortFrom(gatewaytest.SixAddr, 7000))
	four := gatewaytest.Open(t, w.Four, netip.AddrPortFrom(gatewaytest.FourAddr, 7001))
	second := translate.Mapping{IPv4: netip.MustParsePrefix("192.0.2.2/32"), IPv6: netip.MustParsePrefix("2001:db8:46::2/128")}
	// The mapping of four's own address is for IPv6 hosts; its network is connected.
	if err := s.AddMapping(second); err != nil {
		t.Fatal(err)
	}
	if got := len(s.Mappings()); got != 2 {
		t.Errorf("%d mappings", got)
	}
	if err := s.AddMapping(translate.Mapping{IPv4: netip.PrefixFrom(six4, 32), IPv6: netip.MustParsePrefix("2001:db8::9/128")}); err == nil || len(s.Mappings()) != 2 {
		t.Errorf("an overlap was taken, error %v", err)
	}
	if err := s.RemoveMapping(second); err != nil || len(s.Mappings()) != 1 {
		t.Errorf("removal: %v", err)
	}
	if err := s.RemoveMapping(second); err == nil || !strings.Contains(err.Error(), "no such mapping") {
		t.Errorf("second removal: %v", err)
	}
	six.Send(t, netip.AddrPortFrom(four6, 7001), "out")
	four.Wants(t, "out", 63)
}
