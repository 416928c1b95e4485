// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// Ethernet types, and the length of a header.
const (
	etherIPv4   = 0x0800
	etherARP    = 0x0806
	etherIPv6   = 0x86dd
	ethernetLen = 14
)

// MAC is an address of Ethernet.
type MAC [6]byte

// broadcast is the address of all.
var broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// station is our end of an Ethernet link whose far end is a terminal's own stack. It is a router
// to that stack: it answers for every address but the terminal's by ARP, and for its own
// link-local address by Neighbor Discovery; it hands out the IPv4 address by DHCP, and advertises
// the prefix that the GGSN has advertised. The stack chooses its own identifier in that prefix.
type station struct {
	link int
	own  MAC
	peer MAC // the terminal's, broadcast before it has said anything
	// four and six are the sessions whose addresses the stack has; nil: none.
	four, six *session
}

// stationRouter is the link-local address of our end of such links.
var stationRouter = netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 15: 1})

// AddStation makes a link one of Ethernet: what terminals on it send comes by [Engine.HandleFrame],
// and what is for them goes out as frames. own is the address of our end.
// A link that is one stays as it is.
func (e *Engine) AddStation(link int, own MAC) {
	if e.stations[link] == nil {
		e.stations[link] = &station{link: link, own: own, peer: broadcast}
	}
}

// RemoveStation ends that.
func (e *Engine) RemoveStation(link int) { delete(e.stations, link) }

// HandleFrame takes an Ethernet frame of a link that is a station's.
func (e *Engine) HandleFrame(link int, frame []byte, now time.Time, out *Output) {
	t := e.stations[link]
	if t == nil || len(frame) < ethernetLen {
		e.drops[dropNotIP]++
		return
	}
	to, from := MAC(frame[:6]), MAC(frame[6:12])
	if from == t.own || to != t.own && to[0]&1 == 0 {
		return // not for us
	}
	if from[0]&1 == 0 {
		t.peer = from
	}
	b := frame[ethernetLen:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case etherARP:
		t.arp(b, out)
	case etherIPv4:
		if !t.dhcp(b, out) {
			e.HandleUE(link, unpadded(b), now, out)
		}
	case etherIPv6:
		if !t.neighbor(b, now, out) {
			e.HandleUE(link, unpadded(b), now, out)
		}
	}
}

// unpadded is the packet in a frame, which short packets are padded for.
func unpadded(b []byte) []byte {
	n := len(b)
	switch {
	case n >= packet.IPv4HeaderLen && b[0]>>4 == 4:
		n = int(binary.BigEndian.Uint16(b[2:]))
	case n >= packet.IPv6HeaderLen && b[0]>>4 == 6:
		n = packet.IPv6HeaderLen + int(binary.BigEndian.Uint16(b[4:]))
	}
	if n > len(b) {
		return nil
	}
	return b[:n]
}

// frame sends a packet to the terminal's stack.
func (t *station) frame(kind uint16, b []byte, out *Output) {
	f := append(out.Alloc(ethernetLen+len(b)), t.peer[:]...)
	f = binary.BigEndian.AppendUint16(append(f, t.own[:]...), kind)
	out.deliver(t.link, append(f, b...))
}

// hand sends an IP packet to a terminal, as a frame if it is behind a station.
func (e *Engine) hand(link int, ip []byte, out *Output) {
	t := e.stations[link]
	switch {
	case t == nil:
		out.deliver(link, ip)
	case ip[0]>>4 == 4:
		t.frame(etherIPv4, ip, out)
	default:
		t.frame(etherIPv6, ip, out)
	}
}

// occupy gives the stack behind a station the addresses of a session that has opened.
func (e *Engine) occupy(s *session) {
	t := e.stations[s.wanted.Link]
	if t == nil {
		return
	}
	if s.four.IsValid() {
		t.four = s
	}
	if s.six.linkLocal.IsValid() {
		t.six = s
	}
}

// vacate takes them back.
func (e *Engine) vacate(s *session) {
	t := e.stations[s.wanted.Link]
	if t == nil {
		return
	}
	if t.four == s {
		t.four = nil
	}
	if t.six == s {
		t.six = nil
	}
}

// arp answers for every address but the terminal's own, of which it may ask whether it is
// another's (RFC 5227 section 2.1.1).
func (t *station) arp(b []byte, out *Output) {
	request := []byte{0, 1, 8, 0, 6, 4, 0, 1} // Ethernet, IPv4, their lengths, a question
	if len(b) < 28 || !bytes.Equal(b[:8], request) {
		return
	}
	target := netip.AddrFrom4([4]byte(b[24:28]))
	if t.four == nil || target == t.four.four {
		return
	}
	answer := append(out.Alloc(28), b[:7]...)
	answer = append(append(append(answer, 2), t.own[:]...), b[24:28]...)
	t.frame(etherARP, append(append(answer, b[8:14]...), b[14:18]...), out)
}

// neighbor takes Neighbor Discovery of the terminal's stack, of which none goes further. It
// reports whether the packet was such.
func (t *station) neighbor(b []byte, now time.Time, out *Output) bool {
	p, _, ok := packet.ParseIPv6(b)
	if !ok || p.NextHeader() != packet.ProtoICMPv6 || !p.IsNeighborDiscovery() {
		return false
	}
	m, ok := p.ICMPv6()
	if !ok || p.HopLimit() != packet.NDHopLimit || m[1] != 0 {
		return true
	}
	switch m[0] {
	case packet.ICMPv6RouterSolicitation:
		if t.six != nil && len(t.six.six.prefixes) > 0 {
			t.advertise(now, out)
		}
	case packet.ICMPv6NeighborSolicitation:
		if len(m) >= 24 && netip.AddrFrom16([16]byte(m[8:24])) == stationRouter && !p.Src().IsUnspecified() {
			body := append(append([]byte{0xe0, 0, 0, 0}, m[8:24]...), packet.NDTargetLinkLayer, 1) // router, solicited, override
			body = append(body, t.own[:]...)
			t.frame(etherIPv6, packet.AppendICMPv6(nil, stationRouter, p.Src(), packet.NDHopLimit, packet.ICMPv6NeighborAdvert, 0, body), out)
		}
	}
	return true
}

// advertise tells the terminal's stack what the GGSN has advertised, as the router of the link:
// the prefixes are not said to be on it, as the GGSN's are not.
func (t *station) advertise(now time.Time, out *Output) {
	h := &t.six.six
	lifetime := uint16(0)
	if h.router.IsValid() {
		lifetime = uint16(min(left(h.until, now), 9000)) // the timer of its end may be late
	}
	body := binary.BigEndian.AppendUint16([]byte{64, 0}, lifetime)
	body = append(body, make([]byte, 8)...)
	for _, a := range h.prefixes {
		prefix := netip.PrefixFrom(network(a.Address), 64)
		body = packet.AppendPrefixInformation(body, prefix, packet.PrefixAutonomous, left(a.Valid, now), left(a.Preferred, now))
	}
	if h.mtu != 0 {
		body = packet.AppendMTU(body, uint32(h.mtu))
	}
	servers := h.resolvers(nil)
	if n := len(servers); n > 0 {
		body = binary.BigEndian.AppendUint32(append(body, packet.NDResolvers, byte(1+2*n), 0, 0), uint32(lifetime))
		for _, a := range servers {
			body = append(body, a.AsSlice()...)
		}
	}
	if domains, err := link.EncodeDomains(h.searchList()); err == nil && len(domains) > 0 {
		body = link.AppendSearchList(body, domains, uint32(lifetime))
	}
	body = append(append(body, packet.NDSourceLinkLayer, 1), t.own[:]...)
	t.frame(etherIPv6, packet.AppendICMPv6(nil, stationRouter, packet.AllNodes, packet.NDHopLimit, packet.ICMPv6RouterAdvert, 0, body), out)
}

// left is what is left of a lifetime in seconds; one that has no end is of all ones.
func left(end, now time.Time) uint32 {
	if end.IsZero() {
		return packet.Infinite
	}
	return uint32(max(end.Sub(now), 0) / time.Second)
}
