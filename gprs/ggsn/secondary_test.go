// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

func portFilter(id, precedence uint8, port uint16) gtp.PacketFilter {
	return gtp.PacketFilter{
		ID: id, Precedence: precedence, Direction: gtp.FilterBoth,
		RemotePort: gtp.Some(gtp.PortRange{First: port, Last: port}),
	}
}

func template(op gtp.TFTOperation, list ...gtp.PacketFilter) gtp.Optional[[]byte] {
	return gtp.Some(gtp.TFT{Operation: op, Filters: list}.Append(nil))
}

// secondaryRequest asks for one more context of a session.
func (w *world) secondaryRequest(nsapi uint8, tft gtp.Optional[[]byte]) *gtp.CreateRequest {
	return &gtp.CreateRequest{
		TEIDData: 0x6000 + uint32(nsapi), NSAPI: nsapi, LinkedNSAPI: gtp.Some(uint8(5)),
		AddressControl: w.from, AddressUser: w.from, QoS: qosOf(2, 0x0b, 0x92, 0x1f), TFT: tft,
	}
}

func (w *world) createSecondary(teid uint32, m *gtp.CreateRequest) gtp.CreateResponse {
	w.Helper()
	var r gtp.CreateResponse
	w.ask(pathControl, gtp.Header{TEID: teid}, m, &r)
	return r
}

func TestSecondaryCauses(t *testing.T) {
	filter := portFilter(1, 10, 5000)
	tests := []struct {
		name   string
		nsapi  uint8
		teid   uint32
		change func(*gtp.CreateRequest)
		tft    gtp.Optional[[]byte]
		want   gtp.Cause
	}{
		{"right", 6, 0, nil, template(gtp.TFTCreate, filter), gtp.CauseAccepted},
		{"of no session", 6, 1, nil, template(gtp.TFTCreate, filter), gtp.CauseNonExistent},
		{"linked to no context", 6, 0, func(m *gtp.CreateRequest) { m.LinkedNSAPI.Value = 9 }, template(gtp.TFTCreate, filter), gtp.CauseContextNotFound},
		{"linked to itself", 5, 0, nil, template(gtp.TFTCreate, filter), gtp.CauseMandatoryIncorrect},
		{"without filters", 6, 0, nil, gtp.Optional[[]byte]{}, gtp.CauseContextWithoutTFT},
		{"filters added to none", 6, 0, nil, template(gtp.TFTAddFilters, filter), gtp.CauseTFTSemantic},
		{"a precedence twice", 6, 0, nil, template(gtp.TFTCreate, filter, portFilter(2, 10, 1)), gtp.CauseFilterSemantic},
		{"an identifier twice", 6, 0, nil, template(gtp.TFTCreate, filter, portFilter(1, 11, 1)), gtp.CauseFilterSyntax},
		{"a template that cannot be read", 6, 0, nil, gtp.Some([]byte{0xe0}), gtp.CauseTFTSyntax},
		{"user plane at a stranger", 6, 0, func(m *gtp.CreateRequest) { m.AddressUser = rnc }, template(gtp.TFTCreate, filter), gtp.CauseMandatoryIncorrect},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil)
			c := w.open(1, "internet", gtp.PDPTypeIPv4)
			m := w.secondaryRequest(tt.nsapi, tt.tft)
			if tt.change != nil {
				tt.change(m)
			}
			r := w.createSecondary(c.TEIDControl.Value+tt.teid, m)
			if r.Cause != tt.want || w.e.contexts.used() != 1+btoi(tt.want.Accepted()) {
				t.Errorf("%v, %d contexts, want %v", r.Cause, w.e.contexts.used(), tt.want)
			}
			w.remove(c.TEIDControl.Value, 5, true)
			w.empty()
		})
	}
}

// TestSecondaryFilters: packets go by the context whose filter matches first, the rest by
// the one without filters; without one, they are dropped.
func TestSecondaryFilters(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "dual", gtp.PDPTypeIPv4v6)
	w.createSecondary(c.TEIDControl.Value, w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 20, 5000))))
	w.createSecondary(c.TEIDControl.Value, w.secondaryRequest(7, template(gtp.TFTCreate, portFilter(1, 10, 4999))))
	to := func() uint32 {
		h, _ := w.tunnelled()
		return h.TEID
	}
	both := func(name string, want uint32) {
		t.Helper()
		for _, ip := range [][]byte{udp4(server, c.four(), 64, 0), udp6(host6, c.six(), 64, 0)} { // from port 5000
			if w.down(ip); to() != want {
				t.Errorf("%s: to %#x, want %#x", name, to(), want)
			}
		}
	}
	both("by its port", 0x6006)
	var r gtp.UpdateResponse
	change := func(nsapi uint8, tft gtp.Optional[[]byte]) gtp.Cause {
		m := w.updateRequest(0x6000 + uint32(nsapi))
		m.NSAPI, m.TFT = nsapi, tft
		w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, m, &r)
		return r.Cause
	}
	if cause := change(7, template(gtp.TFTAddFilters, portFilter(2, 5, 5000))); cause != gtp.CauseAccepted {
		t.Fatal(cause)
	}
	both("a filter of lower precedence", 0x6007)
	if cause := change(7, template(gtp.TFTDeleteFilters, gtp.PacketFilter{ID: 2})); cause != gtp.CauseAccepted {
		t.Fatal(cause)
	}
	both("deleted again", 0x6006)
	if cause := change(6, template(gtp.TFTReplaceFilters, portFilter(1, 20, 5001))); cause != gtp.CauseAccepted {
		t.Fatal(cause)
	}
	both("replaced", 0x1001)
	if cause := change(6, gtp.Some(gtp.TFT{Operation: gtp.TFTDelete}.Append(nil))); cause != gtp.CauseContextWithoutTFT {
		t.Errorf("two contexts without filters: %v", cause)
	}
	if cause := w.remove(c.TEIDControl.Value, 5, false); cause != gtp.CauseAccepted {
		t.Fatal(cause)
	}
	if w.down(udp4(server, c.four(), 64, 0)); len(w.out.UDP) != 0 || w.e.stats.Dropped[NoFilter] != 1 {
		t.Errorf("dropped %v", w.dropped())
	}
	if w.e.contexts.used() != 2 || w.e.sessions.used() != 1 {
		t.Errorf("%d contexts of %d sessions stay without the primary one", w.e.contexts.used(), w.e.sessions.used())
	}
	w.remove(c.TEIDControl.Value, 6, true)
	w.empty()
}

// TestFilterComponents: a packet belongs to a filter if it agrees in each of its components.
func TestFilterComponents(t *testing.T) {
	six := udp6(host6, node6, 64, 0) // from port 5000 to 53
	six[0], six[1], six[2], six[3] = 0x6b, 0x81, 0x23, 0x45
	esp := append(udp6(host6, node6, 64, 0)[:40], 0, 0, 0, 9, 0, 0, 0, 0)
	esp[6] = protoESP
	four := udp4(server, node4, 64, 0)
	late := append([]byte(nil), four...)
	late[7] = 1 // a fragment that is not the first
	fragment6 := func(word byte) []byte {
		b := append(udp6(host6, node6, 64, 0)[:40:40], packet.ProtoUDP, 0, 0, word, 0, 0, 0, 1)
		b = append(b, udp6(host6, node6, 64, 0)[40:]...)
		b[5], b[6] = b[5]+8, packet.ProtoFragment
		return b
	}
	late6, first6 := fragment6(9), fragment6(1)
	ports := func(first, last uint16) gtp.Optional[gtp.PortRange] {
		return gtp.Some(gtp.PortRange{First: first, Last: last})
	}
	tests := []struct {
		name string
		ip   []byte
		f    gtp.PacketFilter
		want bool
	}{
		{"nothing asked", six, gtp.PacketFilter{}, true},
		{"up alone", six, gtp.PacketFilter{Direction: gtp.FilterUp}, false},
		{"remote", six, gtp.PacketFilter{Remote: gtp.Match{Address: host6, Mask: host6}}, true},
		{"another remote", six, gtp.PacketFilter{Remote: gtp.Match{Address: node6, Mask: node6}}, false},
		{"remote of IPv4", six, gtp.PacketFilter{Remote: gtp.Match{Address: server, Mask: server}}, false},
		{"local", four, gtp.PacketFilter{Local: gtp.Match{Address: node4, Mask: node4}}, true},
		{"protocol", six, gtp.PacketFilter{Protocol: gtp.Some(uint8(17))}, true},
		{"another protocol", six, gtp.PacketFilter{Protocol: gtp.Some(uint8(6))}, false},
		{"ports", six, gtp.PacketFilter{RemotePort: ports(4000, 5000), LocalPort: ports(53, 53)}, true},
		{"another port", six, gtp.PacketFilter{RemotePort: ports(5001, 6000)}, false},
		{"ports of a fragment", late, gtp.PacketFilter{RemotePort: ports(0, 65535)}, false},
		{"protocol of a fragment", late, gtp.PacketFilter{Protocol: gtp.Some(uint8(17))}, true},
		{"protocol of a fragment of IPv6", late6, gtp.PacketFilter{Protocol: gtp.Some(uint8(17))}, true},
		{"another protocol of a fragment of IPv6", late6, gtp.PacketFilter{Protocol: gtp.Some(uint8(6))}, false},
		{"ports of a fragment of IPv6", late6, gtp.PacketFilter{RemotePort: ports(0, 65535)}, false},
		{"ports of a first fragment of IPv6", first6, gtp.PacketFilter{RemotePort: ports(5000, 5000)}, true},
		{"class", six, gtp.PacketFilter{Class: gtp.Some(gtp.MaskedOctet{Value: 0xb8, Mask: 0xfc})}, true},
		{"another class", six, gtp.PacketFilter{Class: gtp.Some(gtp.MaskedOctet{Value: 0xb4, Mask: 0xfc})}, false},
		{"flow label", six, gtp.PacketFilter{FlowLabel: gtp.Some(uint32(0x12345))}, true},
		{"another flow label", six, gtp.PacketFilter{FlowLabel: gtp.Some(uint32(0x12346))}, false},
		{"SPI", esp, gtp.PacketFilter{SPI: gtp.Some(uint32(9))}, true},
		{"another SPI", esp, gtp.PacketFilter{SPI: gtp.Some(uint32(8))}, false},
		{"SPI of UDP", six, gtp.PacketFilter{SPI: gtp.Some(uint32(0))}, false},
	}
	for _, tt := range tests {
		var p inner
		p.read(tt.ip)
		if got := p.matches(&tt.f); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// TestSecondaryLimit: what one SGSN may have are contexts, of few terminals or of many. Those
// that move to another count there.
func TestSecondaryLimit(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Limits.ContextsPerPeer = 3 })
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	add := func(nsapi uint8) gtp.Cause {
		return w.createSecondary(c.TEIDControl.Value, w.secondaryRequest(nsapi, template(gtp.TFTCreate, portFilter(1, nsapi, 5000)))).Cause
	}
	if add(6) != gtp.CauseAccepted || add(7) != gtp.CauseAccepted || add(8) != gtp.CauseNoResources {
		t.Errorf("%d contexts", w.e.contexts.used())
	}
	w.remove(c.TEIDControl.Value, 6, false)
	if add(8) != gtp.CauseAccepted || add(9) != gtp.CauseNoResources {
		t.Errorf("one less: %d contexts", w.e.contexts.used())
	}
	first := w.createRequest(testIMSI(2), "internet", gtp.PDPTypeIPv4)
	if got := w.create(first); got.Cause != gtp.CauseNoResources {
		t.Errorf("another terminal: %v", got.Cause)
	}
	w.from = other
	w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, w.updateRequest(0x7000), &gtp.UpdateResponse{})
	if add(6) != gtp.CauseNoResources {
		t.Error("moved contexts do not count")
	}
	w.from = sgsn
	w.open(2, "internet", gtp.PDPTypeIPv4)
	w.e.Delete(Selection{}, w.now, &w.out)
	w.tick(time.Minute)
	w.empty()
}

// TestSecondaryOfReleased: a session that goes without a word gets no context more, of which no
// word would be said either.
func TestSecondaryOfReleased(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	w.e.begin(w.now, &w.out)
	w.e.releaseAll(w.e.peers.at(w.e.byAddress[addressKey(sgsn.As16())]), EndPeerRestart, 0, func(*session) bool { return true })
	m := w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 10, 5000)))
	if got := w.createSecondary(c.TEIDControl.Value, m); got.Cause != gtp.CauseNonExistent {
		t.Errorf("cause %v", got.Cause)
	}
	w.tick(time.Second)
	w.empty()
}
