// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/probe"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo/relay/relayrole"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

var hostWithRelay = netip.MustParseAddr("2001:db8:b::2")

// newHostRelay puts an IPv6 host with a relay of its own at end b of a rig, and a
// client at end a.
func newHostRelay(t *testing.T, r *rig, mode fastpath.Mode) (*fastPair, *relayrole.Relay) {
	t.Helper()
	r.router.Do(t, func() error { return teredotest.SetUp("b", "2001:db8:b::1/64") })
	r.b.Do(t, func() error {
		err := teredotest.SetUp("b", "2001:db8:b::2/64")
		testutil.AwaitLocal(t, hostWithRelay)
		return err
	})
	cfg := *configtest.One(t, relayrole.Role.Section, relayrole.Role.Section.Smallest()).(*relayrole.Settings)
	cfg.Name, cfg.Mode, cfg.FastPath = "host", relayrole.ModeHost, mode
	cfg.Bind = netip.MustParseAddrPort("192.0.2.2:3545")
	cfg.KeepState = false
	relay, err := relayrole.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	roletest.Start(t, r.b, relay)
	p := &fastPair{rig: r}
	p.ca, _ = newClient(t, func(c *Settings) { c.FastPath = mode })
	roletest.Start(t, r.a, p.ca)
	p.aa = await(t, p.ca, "qualified", qualified).Address
	awaitDevice(t, r.a, deviceWith(p.aa)...)
	await(t, p.ca, "at its fast path", func(s Status) bool { return s.FastPath.Why != "starting" })
	return p, relay
}

// needWhole skips a test on kernels that cannot take a tunnel off packets that
// segmentation offload has left whole.
func needWhole(t *testing.T) {
	t.Helper()
	if f := probe.Try(); !f.DecapFlag {
		t.Skipf("the kernel %s cannot take tunnels off whole packets; Linux 6.3 can", f.Kernel)
	}
}

// TCP between a client and a host with a relay of its own keeps its segmentation
// offload, both ways, where both are in their kernels.
func TestHostRelayTCP(t *testing.T) {
	needWhole(t)
	p, relay := newHostRelay(t, newRig(t), fastpath.ModeTC)
	at := netip.AddrPortFrom(hostWithRelay, 0)
	p.transfer(t, at, 1<<10)
	await(t, p.ca, "in touch by the fast path", func(s Status) bool { return s.FastPath.Peers == 1 })
	packets := func() (sent, received uint64) {
		all := relay.Status().(relayrole.Status).FastPath.Packets["forward"]
		return all["encap_forwarded"], all["decap_forwarded"]
	}
	wrong := p.wrongChecksums(t)
	sent, received := packets()
	client := p.ca.Status().(Status).FastPath
	const bytes = 32 << 20
	took := p.transfer(t, at, bytes)
	nowSent, nowReceived := packets()
	now := p.ca.Status().(Status).FastPath
	if n := nowSent - sent; n == 0 || n > bytes/8000 || nowReceived == received {
		t.Errorf("the relay sent %d packets and received %d for %d bytes; all %v", n, nowReceived-received, bytes, relay.Status().(relayrole.Status).FastPath)
	}
	if n := now.received() - client.received(); n == 0 || n > bytes/8000 {
		t.Errorf("the client received %d packets for %d bytes", n, bytes)
	}
	if n := p.wrongChecksums(t); n != wrong {
		t.Errorf("%d wrong checksums", n-wrong)
	}
	t.Logf("%.1f Gbit/s", float64(bytes)*8/took.Seconds()/1e9)
}

// The same where packets leave finished, so that the relay takes the fast path by
// itself.
func TestHostRelayAuto(t *testing.T) {
	r := newRig(t)
	finish(t, r.a, "a")
	finish(t, r.b, "b")
	p, relay := newHostRelay(t, r, fastpath.ModeAuto)
	at := netip.AddrPortFrom(hostWithRelay, 0)
	p.transfer(t, at, 1<<10)
	p.transfer(t, at, 8<<20)
	s := relay.Status().(relayrole.Status).FastPath
	if n := s.Packets["forward"]["encap_forwarded"]; n < 100 {
		t.Errorf("the relay sent %d packets: %+v", n, s)
	}
	if n := p.wrongChecksums(t); n != 0 {
		t.Errorf("%d wrong checksums", n)
	}
}

// By itself it does not where the veth leaves checksums to its far end.
func TestHostRelayRefusesVeth(t *testing.T) {
	p, relay := newHostRelay(t, newRig(t), fastpath.ModeAuto)
	p.transfer(t, netip.AddrPortFrom(hostWithRelay, 0), 1<<20)
	s := relay.Status().(relayrole.Status).FastPath
	if n := s.Packets["forward"]["encap_forwarded"]; n != 0 {
		t.Errorf("the relay sent %d packets: %+v", n, s)
	}
	left := func(d driver.Device) bool {
		return !d.Target && strings.Contains(strings.Join(d.Warnings, ""), "leaves checksums")
	}
	if s.Survives || !slices.ContainsFunc(s.Devices, left) {
		t.Errorf("status does not say that the engine sends: %+v", s)
	}
}
