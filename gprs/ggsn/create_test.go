// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

func TestCreateCauses(t *testing.T) {
	tests := []struct {
		name     string
		settings func(*Settings)
		request  func(*gtp.CreateRequest)
		want     gtp.Cause
	}{
		{"IPv4", nil, nil, gtp.CauseAccepted},
		{"APN in capitals", nil, func(m *gtp.CreateRequest) { m.APN.Value = apnOf("InterNet") }, gtp.CauseAccepted},
		{"APN with the operator's name", nil, func(m *gtp.CreateRequest) { m.APN.Value = apnOf("internet.mnc001.mcc240.gprs") }, gtp.CauseAccepted},
		{"unknown APN", nil, func(m *gtp.CreateRequest) { m.APN.Value = apnOf("nowhere") }, gtp.CauseUnknownAPN},
		{"unknown APN with a default", func(s *Settings) { s.Default = "internet" }, func(m *gtp.CreateRequest) { m.APN.Value = apnOf("nowhere") }, gtp.CauseAccepted},
		{"no APN", nil, func(m *gtp.CreateRequest) { m.APN.Present = false }, gtp.CauseUnknownAPN},
		{"no APN with a default", func(s *Settings) { s.Default = "internet" }, func(m *gtp.CreateRequest) { m.APN.Present = false }, gtp.CauseUnknownAPN},
		{"IPv6 at an APN of IPv4", nil, func(m *gtp.CreateRequest) { m.EndUserAddress.Value.Type = gtp.PDPTypeIPv6 }, gtp.CauseUnknownPDPType},
		{"IPv4 at an APN of IPv6", nil, func(m *gtp.CreateRequest) { m.APN.Value = apnOf("inet6") }, gtp.CauseUnknownPDPType},
		{"PPP", nil, func(m *gtp.CreateRequest) { m.EndUserAddress.Value.Type = gtp.PDPTypePPP }, gtp.CauseUnknownPDPType},
		{"both at an APN of IPv4", nil, func(m *gtp.CreateRequest) { m.EndUserAddress.Value.Type = gtp.PDPTypeIPv4v6 }, gtp.CauseNewPDPTypeNetwork},
		{"both at an APN of IPv6", nil, func(m *gtp.CreateRequest) {
			m.APN.Value, m.EndUserAddress.Value.Type = apnOf("inet6"), gtp.PDPTypeIPv4v6
		}, gtp.CauseNewPDPTypeNetwork},
		{"both", nil, func(m *gtp.CreateRequest) {
			m.APN.Value, m.EndUserAddress.Value.Type = apnOf("dual"), gtp.PDPTypeIPv4v6
		}, gtp.CauseAccepted},
		{"both without the dual address flag", nil, func(m *gtp.CreateRequest) {
			m.APN.Value, m.EndUserAddress.Value.Type, m.CommonFlags.Present = apnOf("dual"), gtp.PDPTypeIPv4v6, false
		}, gtp.CauseNewPDPTypeSingle},
		{"both where both are allowed apart", func(s *Settings) { s.APNs[2].Types = TypeIPv4 | TypeIPv6 }, func(m *gtp.CreateRequest) {
			m.APN.Value, m.EndUserAddress.Value.Type = apnOf("dual"), gtp.PDPTypeIPv4v6
		}, gtp.CauseNewPDPTypeSingle},
		{"static address without a static pool", nil, func(m *gtp.CreateRequest) {
			m.EndUserAddress.Value.IPv4 = netip.MustParseAddr("10.45.0.9")
		}, gtp.CauseUnknownPDPType},
		{"static address in the static pool", nil, func(m *gtp.CreateRequest) {
			m.APN.Value, m.EndUserAddress.Value.IPv4 = apnOf("dual"), netip.MustParseAddr("10.47.0.9")
		}, gtp.CauseAccepted},
		{"static address outside of it", nil, func(m *gtp.CreateRequest) {
			m.APN.Value, m.EndUserAddress.Value.IPv4 = apnOf("dual"), netip.MustParseAddr("10.46.0.9")
		}, gtp.CauseUnknownPDPType},
		{"static prefix", nil, func(m *gtp.CreateRequest) {
			m.APN.Value, m.EndUserAddress.Value = apnOf("dual"), gtp.EndUserAddress{Type: gtp.PDPTypeIPv6, IPv6: netip.MustParseAddr("2001:db8:7100:42::1")}
		}, gtp.CauseAccepted},
		{"address of zeros", nil, func(m *gtp.CreateRequest) { m.EndUserAddress.Value.IPv4 = netip.IPv4Unspecified() }, gtp.CauseAccepted},
		{"control plane at a stranger", nil, func(m *gtp.CreateRequest) { m.AddressControl = rnc }, gtp.CauseMandatoryIncorrect},
		{"user plane at a stranger", nil, func(m *gtp.CreateRequest) { m.AddressUser = rnc }, gtp.CauseMandatoryIncorrect},
		{"user plane at a stranger with direct tunnels", func(s *Settings) { s.APNs[0].DirectTunnel = true }, func(m *gtp.CreateRequest) { m.AddressUser = rnc }, gtp.CauseAccepted},
		{"user plane at the node itself", func(s *Settings) { s.APNs[0].DirectTunnel = true }, func(m *gtp.CreateRequest) { m.AddressUser = node4 }, gtp.CauseMandatoryIncorrect},
		{"user plane at a terminal", func(s *Settings) { s.APNs[0].DirectTunnel = true }, func(m *gtp.CreateRequest) { m.AddressUser = netip.MustParseAddr("10.45.0.9") }, gtp.CauseMandatoryIncorrect},
		{"user plane at an address that terminals of another network have", func(s *Settings) { s.APNs[0].DirectTunnel, s.APNs[2].Apart = true, true }, func(m *gtp.CreateRequest) { m.AddressUser = netip.MustParseAddr("10.46.0.9") }, gtp.CauseAccepted},
		{"user plane at the host's loopback", func(s *Settings) { s.APNs[0].DirectTunnel = true }, func(m *gtp.CreateRequest) { m.AddressUser = netip.MustParseAddr("127.0.0.1") }, gtp.CauseMandatoryIncorrect},
		{"user plane at a link-local address", func(s *Settings) { s.APNs[0].DirectTunnel = true }, func(m *gtp.CreateRequest) { m.AddressUser = netip.MustParseAddr("fe80::1") }, gtp.CauseMandatoryIncorrect},
		{"user plane at a group", func(s *Settings) { s.APNs[0].DirectTunnel = true }, func(m *gtp.CreateRequest) { m.AddressUser = netip.MustParseAddr("224.0.0.1") }, gtp.CauseMandatoryIncorrect},
		{"user plane of a family that the node has not", func(s *Settings) { s.Address6 = netip.Addr{} }, func(m *gtp.CreateRequest) { m.AddressUser = netip.MustParseAddr("2001:db8:51::1") }, gtp.CauseMandatoryIncorrect},
		{"no room for a node", func(s *Settings) { s.Limits.Peers = 1 }, func(m *gtp.CreateRequest) { m.AddressUser = other }, gtp.CauseNoResources},
		{"no IMSI", nil, func(m *gtp.CreateRequest) {
			m.IMSI.Present = false
			m.IMEI = gtp.Some(gtp.IMEI{1, 2, 3, 4, 5, 6, 7, 0xf8})
		}, gtp.CauseAccepted},
		{"PCO", nil, func(m *gtp.CreateRequest) { m.PCO = gtp.Some(gtp.PCO{0x80}) }, gtp.CauseAccepted},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.settings)
			m := w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4)
			if tt.request != nil {
				tt.request(m)
			}
			c := w.create(m)
			if c.Cause != tt.want || c.header.TEID != 0x2000 {
				t.Fatalf("cause %v to TEID %#x, want %v to 0x2000", c.Cause, c.header.TEID, tt.want)
			}
			if want := btoi(tt.want.Accepted()); w.e.contexts.used() != want || w.e.sessions.used() != want {
				t.Errorf("%d contexts, want %d", w.e.contexts.used(), want)
			}
			if w.e.stats.Answers[tt.want] != 1 {
				t.Errorf("answers %v", w.e.stats.Answers)
			}
			if tt.want.Accepted() {
				if cause := w.remove(c.TEIDControl.Value, 5, true); cause != gtp.CauseAccepted {
					t.Errorf("delete: %v", cause)
				}
			}
			w.empty()
		})
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestCreateAddresses(t *testing.T) {
	w := newWorld(t, nil)
	four := w.open(1, "internet", gtp.PDPTypeIPv4).EndUserAddress.Value
	if four.Type != gtp.PDPTypeIPv4 || !netip.MustParsePrefix("10.45.0.0/16").Contains(four.IPv4) || four.IPv6.IsValid() {
		t.Errorf("IPv4: %+v", four)
	}
	six := w.open(2, "inet6", gtp.PDPTypeIPv6).EndUserAddress.Value
	raw := six.IPv6.As16()
	if six.Type != gtp.PDPTypeIPv6 || !netip.MustParsePrefix("2001:db8:6000::/44").Contains(six.IPv6) || six.IPv4.IsValid() {
		t.Errorf("IPv6: %+v", six)
	}
	if bytes.Equal(raw[:8], raw[8:]) || bytes.Equal(raw[8:], []byte{0, 0, 0, 0, 0, 0, 0, 1}) || bytes.Equal(raw[8:], make([]byte, 8)) {
		t.Errorf("interface identifier %x", raw[8:])
	}
	both := w.open(3, "dual", gtp.PDPTypeIPv4v6).EndUserAddress.Value
	if both.Type != gtp.PDPTypeIPv4v6 || !both.IPv4.Is4() || !both.IPv6.Is6() {
		t.Errorf("both: %+v", both)
	}
}

// TestMappedAddress: an SGSN named by an IPv6 address that has its IPv4 one is the same node.
func TestMappedAddress(t *testing.T) {
	for _, direct := range []bool{false, true} {
		w := newWorld(t, func(s *Settings) { s.APNs[0].DirectTunnel = direct })
		m := w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4)
		m.AddressUser = netip.AddrFrom16(other.As16())
		c := w.create(m)
		w.from = other
		d := w.open(2, "internet", gtp.PDPTypeIPv4)
		for _, x := range []context{c, d} {
			w.up(x, udp4(x.four(), server, 64, 0))
			if len(w.out.IP) != 1 {
				t.Fatalf("direct tunnels %v: dropped %v", direct, w.dropped())
			}
			w.down(udp4(server, x.four(), 64, 0))
			if to := w.out.UDP[0]; to.To.Addr() != other || to.Socket != int(SocketUser) {
				t.Errorf("to %v by socket %d", to.To, to.Socket)
			}
		}
	}
}

// TestCreateIMEI: a terminal without an IMSI has contexts of its own, also where its IMEI has
// the digits of another's IMSI, and makes them again like any other.
func TestCreateIMEI(t *testing.T) {
	w := newWorld(t, nil)
	w.open(1, "internet", gtp.PDPTypeIPv4)
	w.from = other
	m := w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4)
	m.IMEI, m.IMSI = gtp.Some(gtp.IMEI(imsi1)), gtp.Optional[gtp.IMSI]{}
	w.create(m)
	if w.e.contexts.used() != 2 || w.succeed(testSettings(), w.e.AppendState(nil)) != 0 {
		t.Fatalf("%d contexts", w.e.contexts.used())
	}
	c := w.create(m)
	if w.e.contexts.used() != 2 || w.e.stats.Ended[EndRecreated] != 1 {
		t.Errorf("%d contexts, ended %v", w.e.contexts.used(), w.e.stats.Ended)
	}
	w.remove(c.TEIDControl.Value, 5, true)
	w.from = sgsn
	if got := w.list(); len(got) != 1 || got[0].IMSI != imsi1 {
		t.Errorf("left are %+v", got)
	}
}

// TestCreateTEIDs: numbers are random, not one after the other, and no two are equal.
func TestCreateTEIDs(t *testing.T) {
	w := newWorld(t, nil)
	seen := make(map[uint32]bool)
	last := uint32(0)
	for n := range 200 {
		c := w.open(n+1, "internet", gtp.PDPTypeIPv4)
		for _, teid := range []uint32{c.TEIDData.Value, c.TEIDControl.Value} {
			if seen[teid] || teid == 0 || teid-last < 1000 {
				t.Fatalf("TEID %#x after %#x", teid, last)
			}
			seen[teid], last = true, teid
		}
	}
}

// TestCreateRepeated: the same request has the same answer and makes nothing new; the same
// sequence number with other octets, or another one, makes a context in place of the old one.
func TestCreateRepeated(t *testing.T) {
	w := newWorld(t, nil)
	m := w.createRequest(imsi1, "dual", gtp.PDPTypeIPv4v6)
	m.PCO = gtp.Some(pcoOf(gtp.ContainerDNS4, nil, gtp.ContainerDNS6, nil))
	h := gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: 9}
	b := w.encode(h, m)
	first := append([]byte(nil), w.raw(pathControl, b)[0].Payload...)
	for range 3 {
		if got := ofType(w.raw(pathControl, b), gtp.TypeCreateResponse); len(got) != 1 || !bytes.Equal(got[0].Payload, first) {
			t.Fatalf("the repeat got %x, want %x", got, first)
		}
	}
	if w.e.stats.Created != 1 || w.e.stats.Repeated != 3 {
		t.Errorf("%d created, %d repeated", w.e.stats.Created, w.e.stats.Repeated)
	}
	m.TEIDData++
	if got := ofType(w.raw(pathControl, w.encode(h, m)), gtp.TypeCreateResponse); len(got) != 1 || bytes.Equal(got[0].Payload, first) {
		t.Errorf("another request with the number got %x", got)
	}
	w.create(m)
	if w.e.contexts.used() != 1 || w.e.stats.Ended[EndRecreated] != 2 {
		t.Errorf("%d contexts, ended %v", w.e.contexts.used(), w.e.stats.Ended)
	}
}

func TestAddressesOccupied(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.APNs[0].Pools4 = prefixes("10.45.0.0/30") })
	w.open(1, "internet", gtp.PDPTypeIPv4)
	c := w.open(2, "internet", gtp.PDPTypeIPv4)
	if got := w.create(w.createRequest(testIMSI(3), "internet", gtp.PDPTypeIPv4)); got.Cause != gtp.CauseAddressesOccupied {
		t.Fatalf("cause %v", got.Cause)
	}
	w.remove(c.TEIDControl.Value, 5, true)
	if got := w.open(4, "internet", gtp.PDPTypeIPv4); got.EndUserAddress.Value.IPv4 != c.EndUserAddress.Value.IPv4 {
		t.Errorf("address %v, want the one that was given back", got.EndUserAddress.Value.IPv4)
	}
}

// TestDualOccupied: where one family has no address left, that of the other is given back.
func TestDualOccupied(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.APNs[2].Pools6 = prefixes("2001:db8:7000::/64") })
	c := w.open(1, "dual", gtp.PDPTypeIPv4v6)
	if got := w.create(w.createRequest(testIMSI(2), "dual", gtp.PDPTypeIPv4v6)); got.Cause != gtp.CauseAddressesOccupied {
		t.Fatalf("cause %v", got.Cause)
	}
	w.remove(c.TEIDControl.Value, 5, true)
	w.empty()
}

func TestStaticAddressInUse(t *testing.T) {
	w := newWorld(t, nil)
	m := w.createRequest(imsi1, "dual", gtp.PDPTypeIPv4)
	m.EndUserAddress.Value.IPv4 = netip.MustParseAddr("10.47.0.9")
	c := w.create(m)
	m.IMSI = gtp.Some(testIMSI(2))
	if got := w.create(m); got.Cause != gtp.CauseUnknownPDPType {
		t.Errorf("in use: %v", got.Cause)
	}
	w.remove(c.TEIDControl.Value, 5, true)
	if got := w.create(m); got.Cause != gtp.CauseAccepted || got.EndUserAddress.Value.IPv4 != m.EndUserAddress.Value.IPv4 {
		t.Errorf("free again: %v %v", got.Cause, got.EndUserAddress.Value)
	}
}

func TestContextLimits(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Limits.Contexts, s.Limits.ContextsPerPeer = 3, 2 })
	w.open(1, "internet", gtp.PDPTypeIPv4)
	w.open(2, "internet", gtp.PDPTypeIPv4)
	if got := w.create(w.createRequest(testIMSI(3), "internet", gtp.PDPTypeIPv4)); got.Cause != gtp.CauseNoResources {
		t.Errorf("beyond what the peer may have: %v", got.Cause)
	}
	w.from = other
	w.open(4, "internet", gtp.PDPTypeIPv4)
	if got := w.create(w.createRequest(testIMSI(5), "internet", gtp.PDPTypeIPv4)); got.Cause != gtp.CauseNoResources {
		t.Errorf("beyond what all may have: %v", got.Cause)
	}
}

func TestQoSNegotiated(t *testing.T) {
	asked := gtp.Profile{Class: gtp.ClassBackground, MaxUp: 8640, MaxDown: 512}.QoS(12)
	tests := []struct {
		name     string
		up, down uint32
		flags    gtp.CommonFlags
		want     gtp.Profile
	}{
		{"no limit", 0, 0, 0, gtp.Profile{MaxUp: 8640, MaxDown: 512}},
		{"lowered", 1024, 0, 0, gtp.Profile{MaxUp: 1024, MaxDown: 512}},
		{"never raised", 10000, 1024, 0, gtp.Profile{MaxUp: 8640, MaxDown: 512}},
		{"not to be negotiated", 64, 64, gtp.FlagNoQoSNegotiation, gtp.Profile{MaxUp: 8640, MaxDown: 512}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(s *Settings) { s.APNs[0].MaxUp, s.APNs[0].MaxDown = tt.up, tt.down })
			m := w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4)
			m.QoS, m.CommonFlags = asked, gtp.Some(tt.flags)
			got := w.create(m).QoS.Value
			if p := got.Profile(); p.MaxUp != tt.want.MaxUp || p.MaxDown != tt.want.MaxDown || got.Len() != 12 {
				t.Errorf("%d octets, up %d, down %d", got.Len(), p.MaxUp, p.MaxDown)
			}
		})
	}
}
