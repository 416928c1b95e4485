// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"cmp"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// ggsn is a GGSN for tests, which grants what is asked for and reflects what terminals send.
type ggsn struct {
	t    *testing.T
	addr netip.Addr

	mu      sync.Mutex
	codec   gtp.Codec
	heard   []heard
	silent  bool
	refuse  gtp.Cause // 0: nothing
	old     bool      // it speaks GTPv0 alone
	lost    int       // advertisements that it does not send
	mtu     uint32    // that it advertises; 0: 1380
	next    uint32
	control uint32          // of the SGSN, of the last primary context
	users   map[uint32]user // by our tunnel identifiers of the user plane
}

// heard is a message that came.
type heard struct {
	header  gtp.Header
	from    netip.AddrPort
	message gtp.Message // nil: a user packet
}

// user is where the packets of a context go.
type user struct {
	teid uint32
	addr netip.Addr
}

// newGGSN makes one at an address of a namespace.
func newGGSN(t *testing.T, ns *testutil.Netns, addr netip.Addr) *ggsn {
	g := &ggsn{t: t, addr: addr, users: map[uint32]user{}, next: 0x100}
	ns.Do(t, func() error {
		var errs []error
		for _, port := range []uint16{gtp.PortV0, gtp.PortControl, gtp.PortUser} {
			conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, port)))
			if errs = append(errs, err); err == nil {
				t.Cleanup(func() { conn.Close() })
				go g.serve(conn)
			}
		}
		return errors.Join(errs...)
	})
	return g
}

func (g *ggsn) serve(conn *net.UDPConn) {
	b := make([]byte, 65536)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		h, err := gtp.ParseHeader(b[:n])
		if err != nil {
			continue
		}
		g.handle(conn, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), &h)
	}
}

func (g *ggsn) handle(conn *net.UDPConn, from netip.AddrPort, h *gtp.Header) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if h.Type == gtp.TypeGPDU {
		h.Payload = slices.Clone(h.Payload)
		g.heard = append(g.heard, heard{header: *h, from: from})
		g.reflect(conn, h)
		return
	}
	m, ok := gtp.NewMessage(h.Type)
	if !ok {
		return
	}
	if _, err := g.codec.Parse(h, m); err != nil {
		return
	}
	g.heard = append(g.heard, heard{*h, from, m})
	if g.silent || g.old && h.Version != gtp.V0 {
		return
	}
	answer := gtp.Header{Version: h.Version, HasSequence: true, Sequence: h.Sequence, TID: h.TID}
	var response gtp.Message
	switch m := m.(type) {
	case *gtp.EchoRequest:
		response = &gtp.EchoResponse{Recovery: 1}
	case *gtp.CreateRequest:
		response, answer.TEID = g.create(m), m.TEIDControl.Value
		if m.LinkedNSAPI.Present {
			answer.TEID = g.control
		} else {
			g.control = answer.TEID
		}
	case *gtp.UpdateRequest:
		response, answer.TEID = g.update(h, m), m.TEIDControl.Value
	case *gtp.DeleteRequest:
		response = &gtp.DeleteResponse{Cause: gtp.CauseAccepted}
	default:
		return
	}
	answer.FlowLabel = uint16(answer.TEID)
	if b, err := g.codec.Append(nil, answer, response); err == nil {
		_, _ = conn.WriteToUDPAddrPort(b, from)
	}
}

// create grants a context. The addresses of the third end in 3.
func (g *ggsn) create(m *gtp.CreateRequest) gtp.Message {
	if g.refuse != 0 {
		return &gtp.CreateResponse{Cause: g.refuse}
	}
	g.next += 2
	n := byte(g.next-0x100) / 2
	g.users[g.next] = user{m.TEIDData, m.AddressUser}
	given := gtp.EndUserAddress{Type: m.EndUserAddress.Value.Type}
	p := gtp.NewPCO(nil)
	if given.Type != gtp.PDPTypeIPv6 {
		given.IPv4 = netip.AddrFrom4([4]byte{10, 45, 0, n})
		p, _ = p.Add(gtp.ContainerDNS4, []byte{192, 0, 2, 53})
		p, _ = p.Add(gtp.ContainerMTU4, []byte{0x05, 0x46}) // 1350
	}
	if given.Type != gtp.PDPTypeIPv4 {
		given.IPv6 = netip.AddrFrom16([16]byte{0xfe, 0x80, 8: 2, 15: n})
	}
	if m.LinkedNSAPI.Present {
		return &gtp.CreateResponse{
			Cause: gtp.CauseAccepted, Reordering: gtp.Some(false), TEIDData: gtp.Some(g.next), ChargingID: gtp.Some(uint32(n)),
			AddressControl: gtp.Some(g.addr), AddressUser: gtp.Some(g.addr), QoS: gtp.Some(m.QoS),
		}
	}
	return &gtp.CreateResponse{
		Cause: gtp.CauseAccepted, Reordering: gtp.Some(false), TEIDData: gtp.Some(g.next), TEIDControl: gtp.Some(g.next + 1),
		ChargingID: gtp.Some(uint32(n)), EndUserAddress: gtp.Some(given), PCO: gtp.Some(p),
		AddressControl: gtp.Some(g.addr), AddressUser: gtp.Some(g.addr), QoS: gtp.Some(m.QoS),
	}
}

// update moves a context: that of the TEID, or the last one if its version changes.
func (g *ggsn) update(h *gtp.Header, m *gtp.UpdateRequest) gtp.Message {
	id := h.TEID - 1
	if h.Version == gtp.V0 {
		id = uint32(h.FlowLabel) - 1
	}
	if h.TEID == 0 && h.FlowLabel == 0 {
		id = g.next
	}
	g.users[id] = user{m.TEIDData.Value, m.AddressUser.Value}
	return &gtp.UpdateResponse{
		Cause: gtp.CauseAccepted, QoS: m.QoS, TEIDData: gtp.Some(id), TEIDControl: gtp.Some(id + 1), ChargingID: gtp.Some(uint32(1)),
		AddressControl: gtp.Some(g.addr), AddressUser: gtp.Some(g.addr),
	}
}

// reflect sends a UDP packet back to its sender, and answers a router solicitation.
func (g *ggsn) reflect(conn *net.UDPConn, h *gtp.Header) {
	id := h.TEID
	if h.Version == gtp.V0 {
		id = uint32(h.FlowLabel)
	}
	to, ok := g.users[id]
	ip := slices.Clone(h.Payload)
	if !ok || len(ip) < 40 && ip[0]>>4 == 6 {
		return
	}
	if ip[0]>>4 == 4 {
		swap(ip[12:], 4)
		swap(ip[20:], 2)
	} else if p := packet.IPv6(ip); p.NextHeader() == packet.ProtoICMPv6 && p[40] == packet.ICMPv6RouterSolicitation {
		if g.lost > 0 {
			g.lost--
			return
		}
		ip = advertisement(byte(id-0x100)/2, cmp.Or(g.mtu, 1380))
	} else {
		swap(ip[8:], 16)
		swap(ip[40:], 2)
	}
	down := gtp.Header{Version: h.Version, TEID: to.teid, FlowLabel: uint16(to.teid), TID: h.TID}
	b, err := gtp.Encapsulate(nil, &down, ip)
	if err != nil {
		return
	}
	port := uint16(gtp.PortUser)
	if h.Version == gtp.V0 {
		port = gtp.PortV0
	}
	_, _ = conn.WriteToUDPAddrPort(b, netip.AddrPortFrom(to.addr, port))
}

// swap exchanges two neighbouring fields.
func swap(b []byte, size int) {
	for i := range size {
		b[i], b[size+i] = b[size+i], b[i]
	}
}

// advertisement is that of the n-th terminal's router, with an MTU.
func advertisement(n byte, mtu uint32) []byte {
	body := binary.BigEndian.AppendUint16([]byte{64, 0}, 9000)
	body = append(body, make([]byte, 8)...)
	body = append(body, 3, 4, 64, 0x40, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0)
	body = append(body, 0x20, 1, 0x0d, 0xb8, 0, 6, 0, n, 0, 0, 0, 0, 0, 0, 0, 0)
	body = binary.BigEndian.AppendUint32(append(body, 5, 1, 0, 0), mtu)
	body = append(body, 25, 3, 0, 0, 0, 0, 2, 88, 0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x53)
	return packet.AppendICMPv6(nil, netip.MustParseAddr("fe80::1"), packet.AllNodes, 255, packet.ICMPv6RouterAdvert, 0, body)
}

// count is how many messages of a type came.
func (g *ggsn) count(kind gtp.MessageType) (n int) {
	for _, h := range g.all() {
		if h.header.Type == kind {
			n++
		}
	}
	return n
}

// all are those that came.
func (g *ggsn) all() []heard {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.heard)
}

// set changes what it does.
func (g *ggsn) set(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}
