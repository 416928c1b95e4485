// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
)

// TestHairpins: six calls its own IPv4 address, by the prefix (RFC 7757 section 4.2).
// One hop is taken in all.
func TestHairpins(t *testing.T) {
	w, _ := start(t)
	self := netip.AddrPortFrom(netip.MustParseAddr("2001:db8:64::192.0.2.66"), 7000)
	six := gatewaytest.Open(t, w.Six, netip.AddrPortFrom(gatewaytest.SixAddr, 7000))
	six.Send(t, self, "round")
	if from := six.Wants(t, "round", 63); from != self {
		t.Errorf("six saw %s, want %s", from, self)
	}
}

// TestEndsCircles: pool4 holds an address that no IPv6 host has, so there is no route in
// pool6, and the host leads packets back to the translator that they come from.
func TestEndsCircles(t *testing.T) {
	inModes(t, gatewaytest.Modes, func(t *testing.T, w *gatewaytest.World, s *SIIT, c Settings) {
		c.Pool4 = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
		if _, err := roletest.Reload(Role, s, s.cfg, c); err != nil {
			t.Fatal(err)
		}
		gatewaytest.Open(t, w.Four, netip.AddrPortFrom(gatewaytest.FourAddr, 7001)).Send(t, netip.MustParseAddrPort("203.0.113.7:7000"), "round")
		s.awaitDropped(t, translate.ReasonHopLimit, 1)
		gatewaytest.Open(t, w.Six, netip.AddrPortFrom(gatewaytest.SixAddr, 7001)).Send(t, netip.MustParseAddrPort("[2001:db8:64::203.0.113.7]:7000"), "round")
		s.awaitDropped(t, translate.ReasonHopLimit, 2)
	})
}

// TestLeavesOtherRoutes: a more specific route than that of the translator leads past
// it (RFC 7915 sections 4.6 and 5.6).
func TestLeavesOtherRoutes(t *testing.T) {
	w, s := start(t)
	wide := translate.Mapping{IPv4: netip.MustParsePrefix("198.51.100.0/24"), IPv6: netip.MustParsePrefix("2001:db8:7::/120")}
	if err := s.AddMapping(wide); err != nil {
		t.Fatal(err)
	}
	native6, native4 := netip.MustParseAddr("2001:db8:64::192.0.2.9"), netip.MustParseAddr("198.51.100.9")
	w.Six.Do(t, func() error {
		if err := gatewaytest.Address("v6", native6.String()+"/128"); err != nil {
			return err
		}
		testutil.AwaitLocal(t, native6)
		return nil
	})
	w.Four.Do(t, func() error { return gatewaytest.Address("v4", native4.String()+"/32") })
	w.Gateway.Do(t, func() error {
		return errors.Join(routeVia("v6", native6, gatewaytest.SixAddr), routeVia("v4", native4, gatewaytest.FourAddr))
	})
	for _, tt := range []struct {
		name     string
		from, to *gatewaytest.Socket
		at       netip.Addr
	}{
		{"IPv6", gatewaytest.Open(t, w.Gateway, netip.MustParseAddrPort("[2001:db8:6::1]:7001")), gatewaytest.Open(t, w.Six, netip.AddrPortFrom(native6, 7000)), native6},
		{"IPv4", gatewaytest.Open(t, w.Gateway, netip.AddrPortFrom(gatewaytest.Gateway4, 7001)), gatewaytest.Open(t, w.Four, netip.AddrPortFrom(native4, 7000)), native4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.from.Send(t, netip.AddrPortFrom(tt.at, 7000), tt.name)
			tt.to.Wants(t, tt.name, 64)
		})
	}
}

// routeVia adds a route to one address.
func routeVia(link string, to, gateway netip.Addr) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{
		LinkIndex: l.Attrs().Index, Gw: gateway.AsSlice(),
		Dst: netOf(netip.PrefixFrom(to, to.BitLen())),
	})
}

// netOf is a prefix in another form.
func netOf(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// lines is a log that a test waits for.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// TestTellsOfDrops: a datagram without a checksum is logged with addresses and ports
// (RFC 7915 section 4.5).
func TestTellsOfDrops(t *testing.T) {
	log := make(lines, 100)
	w, _ := startWith(t, slog.NewTextHandler(log, nil))
	four := gatewaytest.Open(t, w.Four, netip.AddrPortFrom(gatewaytest.FourAddr, 7001))
	raw, err := four.Conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var refused error
	if err := raw.Control(func(fd uintptr) {
		refused = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NO_CHECK, 1)
	}); err != nil || refused != nil {
		t.Fatal(err, refused)
	}
	four.Send(t, netip.AddrPortFrom(six4, 7000), "bare")
	late := time.After(testutil.Patience)
	for {
		select {
		case line := <-log:
			if !strings.Contains(line, "msg=packet_dropped") {
				continue
			}
			if want := "reason=udp_zero_checksum source=192.0.2.2:7001 destination=192.0.2.66:7000 protocol=17 suppressed=0"; !strings.Contains(line, want) {
				t.Errorf("logged %q, want %q", line, want)
			}
			return
		case <-late:
			t.Fatal("nothing is logged")
		}
	}
}

// TestKnowsItsAnswers: who removes a mapping hears nothing of what an earlier process has
// left, when the answers by ARP for its address go.
func TestKnowsItsAnswers(t *testing.T) {
	log := make(lines, 100)
	_, s := startWith(t, slog.NewTextHandler(log, nil))
	m := translate.Mapping{IPv4: netip.MustParsePrefix("192.0.2.67/32"), IPv6: netip.MustParsePrefix("2001:db8:6::67/128")}
	if err := errors.Join(s.AddMapping(m), s.RemoveMapping(m)); err != nil {
		t.Fatal(err)
	}
	for range len(log) {
		if line := <-log; strings.Contains(line, "earlier process") {
			t.Errorf("logged %q", line)
		}
	}
}

// TestReachesHost: what six reaches of the translator itself is what any IPv4 host would,
// with an address of its own; loopback is not, though routes let it in.
func TestReachesHost(t *testing.T) {
	inModes(t, gatewaytest.Modes, func(t *testing.T, w *gatewaytest.World, s *SIIT, _ Settings) {
		w.Gateway.Do(t, func() error {
			return os.WriteFile("/proc/sys/net/ipv4/conf/all/route_localnet", []byte("1"), 0)
		})
		service := gatewaytest.Open(t, w.Gateway, netip.AddrPortFrom(netip.IPv4Unspecified(), 7001))
		six := gatewaytest.Open(t, w.Six, netip.AddrPortFrom(gatewaytest.SixAddr, 7001))
		for i, a := range []string{"127.0.0.1", "169.254.169.254"} {
			six.Send(t, netip.MustParseAddrPort("[2001:db8:64::"+a+"]:7001"), "closed")
			s.awaitDropped(t, translate.ReasonIllegalDestination, uint64(i+1))
		}
		six.Send(t, netip.MustParseAddrPort("[2001:db8:64::192.0.2.1]:7001"), "open")
		if from := service.Wants(t, "open", 64); from.Addr() != netip.MustParseAddr("192.0.2.66") {
			t.Errorf("the host saw %s", from)
		}
	})
}

func TestCarriesICMP(t *testing.T) {
	w, _ := start(t)
	w.Pings(t, four6, 63)
	w.Refused(t, four6)
}

// TestLinksBoundErrors: no translated error reports more than the links take.
func TestLinksBoundErrors(t *testing.T) {
	w, _ := start(t)
	w.LinksBoundErrors(t, netip.AddrPortFrom(six4, 7000), four6)
}
