// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// The state of a link, by name and by index, through all that can happen to it.
func TestLinkState(t *testing.T) {
	h := inNamespace(t)
	if s, err := h.LinkNamed("d0"); err != nil || s != (LinkState{}) {
		t.Errorf("of none: %+v, %v", s, err)
	}
	addLink(t, h, "d0")
	await := func(what string, up bool) LinkState {
		t.Helper()
		for deadline := time.Now().Add(testutil.Patience); ; time.Sleep(time.Millisecond) {
			s, err := h.LinkNamed("d0")
			if err != nil {
				t.Fatal(err)
			}
			if s.Up == up && s.Name == "d0" && s.Index > 0 {
				return s
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %+v", what, s)
			}
		}
	}
	s := await("both ends up", true)
	if at, err := h.LinkAt(s.Index); err != nil || at != s {
		t.Errorf("by index: %+v, %v", at, err)
	}
	far, err := h.handle.LinkByName("far")
	if err != nil {
		t.Fatal(err)
	}
	set := func(change func(netlink.Link) error, l netlink.Link) {
		t.Helper()
		if err := change(l); err != nil {
			t.Fatal(err)
		}
	}
	set(h.handle.LinkSetDown, far)
	await("no carrier", false)
	set(h.handle.LinkSetUp, far)
	await("carrier again", true)
	set(h.handle.LinkDel, far)
	if s, err := h.LinkAt(s.Index); err != nil || s.Index != 0 {
		t.Errorf("of one that has gone: %+v, %v", s, err)
	}
}

// The kernel's choice of a way out, free and by an interface.
func TestEgressBy(t *testing.T) {
	h := inNamespace(t)
	addLink(t, h, "d0")
	for link, a := range map[string]string{"d0": "192.0.2.1/24", "far": "198.51.100.1/24"} {
		if err := h.AddAddr(link, netip.MustParsePrefix(a)); err != nil {
			t.Fatal(err)
		}
	}
	all := netip.MustParsePrefix("0.0.0.0/0")
	for link, gateway := range map[string]string{"d0": "192.0.2.9", "far": "198.51.100.9"} {
		metric := map[string]int{"d0": 100, "far": 200}[link]
		if err := h.AddRoute(Route{Dst: all, Link: link, Gateway: netip.MustParseAddr(gateway), Metric: metric}); err != nil {
			t.Fatal(err)
		}
	}
	dst := netip.MustParseAddr("203.0.113.1")
	for link, want := range map[string]string{"": "192.0.2.1 192.0.2.9", "d0": "192.0.2.1 192.0.2.9", "far": "198.51.100.1 198.51.100.9"} {
		e, err := h.EgressBy(dst, link)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Source.String() + " " + e.Gateway.String(); got != want {
			t.Errorf("by %q: source and gateway %s, want %s", link, got, want)
		}
	}
	if _, err := h.EgressBy(dst, "none"); err == nil {
		t.Error("there is a way by an interface that does not exist")
	}
}

// A deprecated address stays usable, and both can be had more than once.
func TestPrefer(t *testing.T) {
	h := inNamespace(t)
	addLink(t, h, "d0")
	a := netip.MustParsePrefix("2001:db8::1/64")
	if err := h.AddAddr("d0", a); err != nil {
		t.Fatal(err)
	}
	link, err := h.handle.LinkByName("d0")
	if err != nil {
		t.Fatal(err)
	}
	for _, preferred := range []bool{false, false, true, false, true} {
		if err := h.Prefer("d0", a, preferred); err != nil {
			t.Fatal(err)
		}
		list, err := testutil.Whole(func() ([]netlink.Addr, error) { return h.handle.AddrList(link, netlink.FAMILY_V6) })
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, x := range list {
			if x.IP.String() == a.Addr().String() {
				found = true
				if (x.PreferedLft != 0) != preferred || x.ValidLft == 0 {
					t.Errorf("preferred %v: lifetimes %d and %d", preferred, x.PreferedLft, x.ValidLft)
				}
			}
		}
		if !found {
			t.Error("the address has gone")
		}
	}
}

// Two sockets with one port on two interfaces; each gets what comes by its own.
func TestDeviceSockets(t *testing.T) {
	h := inNamespace(t)
	addLink(t, h, "d0")
	any4 := netip.AddrPortFrom(netip.IPv4Unspecified(), 3551)
	byLo, err := ListenUDP(UDPConfig{Addr: any4, Device: "lo"})
	if err != nil {
		t.Fatal(err)
	}
	defer byLo.Close()
	other, err := ListenUDP(UDPConfig{Addr: any4, Device: "d0"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	from, err := ListenUDP(UDPConfig{Addr: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to := netip.MustParseAddrPort("127.0.0.1:3551")
	if err := from.WriteBatch([]packet.Datagram{{To: to, Payload: []byte("by lo")}}); err != nil {
		t.Fatal(err)
	}
	msgs := make([]Message, 1)
	if n, err := byLo.ReadBatch(msgs); n != 1 || err != nil || string(msgs[0].Payload) != "by lo" {
		t.Errorf("got %d, %q, %v", n, msgs[0].Payload, err)
	}
	if _, err := ListenUDP(UDPConfig{Addr: any4, Device: "none"}); err == nil || !strings.Contains(err.Error(), "interface none") {
		t.Errorf("error %v", err)
	}
}

func TestForwardIPv4(t *testing.T) {
	h := inNamespace(t)
	tun, err := OpenTUN(TUNConfig{Name: "teredo"})
	if err != nil {
		t.Fatal(err)
	}
	defer tun.Close()
	if err := h.ForwardIPv4("teredo"); err != nil {
		t.Fatal(err)
	}
	for link, want := range map[string]string{"teredo": "1\n", "lo": "0\n", "all": "0\n"} {
		got, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + link + "/forwarding")
		if err != nil || string(got) != want {
			t.Errorf("forwarding of %s: %q, %v", link, got, err)
		}
	}
	if err := h.ForwardIPv4("none"); err == nil {
		t.Error("a link that is not there was set")
	}
}
