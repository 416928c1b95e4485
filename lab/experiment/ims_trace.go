// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/sip/message"
)

// imsTrace is what was seen of UEs and servers for a while.
type imsTrace struct {
	control    []seen      // of GTP, between SGSN and GGSN
	up, down   []frameSeen // the packets of UEs and those for them, out of the tunnels
	sent, came []seen      // datagrams and SIP messages of these
	served     []seen      // SIP messages that have come to the CSCFs
}

// watch records all links while f runs.
func (g *imsGuide) watch(f func() error) (t imsTrace, err error) {
	taps := []tap{{g.ggsn, "gn"}}
	for _, s := range g.servers() {
		taps = append(taps, tap{s.node, "eth0"})
	}
	all, err := traceFrames(g.lab, taps, f)
	if err != nil {
		return t, err
	}
	t.control = datagramsOf(all[0])
	t.up, t.down = tunnelled(all[0], core6.ggsn), tunnelled(all[0], core6.sgsn)
	t.sent, t.came = messagesOf(t.up), messagesOf(t.down)
	for n, s := range g.servers() {
		there := slices.DeleteFunc(messagesOf(all[n+1]), func(d seen) bool { return d.to.Addr() != s.at })
		t.served = inOrder(t.served, there)
	}
	return t, nil
}

// tunnelled are the packets that come to one end of GTP's user plane, as frames of their own.
func tunnelled(frames []frameSeen, to netip.Addr) (inner []frameSeen) {
	for _, f := range frames {
		d, ok := datagram(f.frame)
		if !ok || d.to != netip.AddrPortFrom(to, gtp.PortUser) {
			continue
		}
		h, err := gtp.ParseHeader(d.payload)
		if err != nil || h.Type != gtp.TypeGPDU || len(h.Payload) == 0 || h.Payload[0]>>4 != 6 {
			continue
		}
		ethernet := binary.BigEndian.AppendUint16(make([]byte, 12), ethernetIPv6)
		inner = append(inner, frameSeen{f.at, append(ethernet, h.Payload...)})
	}
	return inner
}

// messagesOf are the datagrams of frames and the SIP messages that streams of TCP carry there, each when
// its last octet was seen.
func messagesOf(frames []frameSeen) (all []seen) {
	streams := map[[2]netip.AddrPort]*sipStream{}
	for _, f := range frames {
		if d, ok := datagram(f.frame); ok {
			d.at = f.at
			all = append(all, d)
			continue
		}
		s, ok := segment(f.frame)
		if !ok {
			continue
		}
		way := [2]netip.AddrPort{s.from, s.to}
		if streams[way] == nil || s.opens {
			streams[way] = &sipStream{}
		}
		for _, m := range streams[way].take(s) {
			all = append(all, seen{f.at, s.from, s.to, m})
		}
	}
	return all
}

// tcpSegment is what matters of one.
type tcpSegment struct {
	from, to netip.AddrPort
	number   uint32 // of its first octet
	opens    bool   // a connection, or answers that
	asks     bool   // for the connection
	data     []byte
}

// segment finds the one in an Ethernet frame (RFC 9293 section 3.1).
func segment(frame []byte) (s tcpSegment, ok bool) {
	const fixed, flagSYN, flagACK = 20, 2, 16
	source, destination, tcp, ok := overIP(frame, packet.ProtoTCP)
	if !ok || len(tcp) < fixed {
		return s, false
	}
	head := int(tcp[12]>>4) * 4
	if head < fixed || head > len(tcp) {
		return s, false
	}
	s.from = netip.AddrPortFrom(source, binary.BigEndian.Uint16(tcp))
	s.to = netip.AddrPortFrom(destination, binary.BigEndian.Uint16(tcp[2:]))
	s.number, s.data = binary.BigEndian.Uint32(tcp[4:]), tcp[head:]
	s.opens = tcp[13]&flagSYN != 0
	s.asks = s.opens && tcp[13]&flagACK == 0
	return s, true
}

// sipStream is one direction of a connection.
type sipStream struct {
	begun bool
	next  uint32 // the number of the octet behind those that were seen
	data  []byte // of a message that is not complete
}

// take takes a segment, and gives the messages that are complete with it. What is sent again is taken once.
func (s *sipStream) take(one tcpSegment) (messages [][]byte) {
	if one.opens {
		s.begun, s.next = true, one.number+1
		return nil
	}
	if !s.begun {
		s.begun, s.next = true, one.number
	}
	if old := int(int32(s.next - one.number)); old > 0 {
		one.data = one.data[min(old, len(one.data)):]
	}
	s.next += uint32(len(one.data))
	s.data = append(s.data, one.data...)
	for {
		n, _, fault := message.Frame(s.data, message.MaxSize)
		if fault != nil || n == 0 {
			return messages
		}
		if m := s.data[:n]; len(bytes.TrimSpace(m)) > 0 { // else a keep-alive
			messages = append(messages, bytes.Clone(m))
		}
		s.data = s.data[n:]
	}
}

// connections is how many of TCP one end has asked another one for in a time.
func connections(frames []frameSeen, from, to netip.Addr, since, until time.Time) (n int) {
	for _, f := range frames {
		s, ok := segment(f.frame)
		if ok && s.asks && s.from.Addr() == from && s.to.Addr() == to && !f.at.Before(since) && f.at.Before(until) {
			n++
		}
	}
	return n
}

// firstGTP is when the first message of signalling was seen that is of a type.
func firstGTP(control []seen, since time.Time, what gtp.MessageType) (at time.Time, ok bool) {
	for _, d := range control {
		_, kind, of := gtp.Peek(d.payload)
		if of && kind == what && (d.to.Port() == gtpPort || d.from.Port() == gtpPort) && !d.at.Before(since) {
			return d.at, true
		}
	}
	return at, false
}

// sipMessage is one that was seen.
type sipMessage struct {
	at time.Time
	*message.Message
}

// ofMethod are the requests of a method, and the responses to them, that an address has sent or got.
func ofMethod(all []seen, method string, address netip.Addr) (list []sipMessage) {
	for _, d := range all {
		if d.from.Addr() != address && d.to.Addr() != address {
			continue
		}
		m, fault := message.Parse(d.payload)
		if fault != nil {
			continue
		}
		if _, of, ok := m.CSeq(); ok && of == method {
			list = append(list, sipMessage{d.at, m})
		}
	}
	return list
}

// mediaTo is how many packets of media have come to an address.
func mediaTo(came []seen, to netip.Addr) (n int) {
	for _, d := range came {
		if _, ok := rtpNumber(d.payload); ok && d.to.Addr() == to {
			n++
		}
	}
	return n
}
