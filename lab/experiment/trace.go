// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/teredo"
)

// Layout of the captures of package lab and of what lies around a datagram.
const (
	captureHeader = 24
	recordHeader  = 16 // seconds(4) nanoseconds(4) captured(4) original(4)
	ethernetLen   = 14
	ethernetIPv4  = 0x0800
	ethernetIPv6  = 0x86dd
	ipv4MinLen    = 20
)

// seen is one UDP datagram of a capture, or one message of a stream.
type seen struct {
	at       time.Time
	from, to netip.AddrPort
	payload  []byte
}

// frameSeen is one Ethernet frame of a capture.
type frameSeen struct {
	at    time.Time
	frame []byte
}

// tap is a link's end where frames are recorded.
type tap struct {
	node  *lab.Node
	iface string
}

// trace records one link while f runs and gives the datagrams seen there.
func trace(l *lab.Lab, node *lab.Node, iface string, f func() error) ([]seen, error) {
	all, err := traceEach(l, f, tap{node, iface})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// traceFrames records links while f runs and gives the frames of each.
func traceFrames(l *lab.Lab, taps []tap, f func() error) (all [][]frameSeen, err error) {
	var running []*lab.Capture
	var files []string
	for _, t := range taps {
		file := filepath.Join(l.Dir(), "trace-"+t.node.Name()+"-"+t.iface+".pcap")
		c, failed := l.Capture(t.node, t.iface, file)
		if err = failed; err != nil {
			break
		}
		running, files = append(running, c), append(files, file)
	}
	if err == nil {
		err = f()
	}
	for _, c := range running {
		err = errors.Join(err, c.Stop())
	}
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		frames, err := readFrames(b)
		if err != nil {
			return nil, err
		}
		all = append(all, frames)
	}
	return all, nil
}

// traceEach records several links while f runs, and gives the datagrams seen on each.
func traceEach(l *lab.Lab, f func() error, taps ...tap) (all [][]seen, err error) {
	frames, err := traceFrames(l, taps, f)
	for _, one := range frames {
		all = append(all, datagramsOf(one))
	}
	return all, err
}

// readCapture gives the UDP datagrams of an Ethernet capture.
func readCapture(b []byte) ([]seen, error) {
	frames, err := readFrames(b)
	return datagramsOf(frames), err
}

// datagramsOf are those of UDP among frames.
func datagramsOf(frames []frameSeen) (all []seen) {
	for _, f := range frames {
		if d, ok := datagram(f.frame); ok {
			d.at = f.at
			all = append(all, d)
		}
	}
	return all
}

// readFrames gives the frames of an Ethernet capture.
func readFrames(b []byte) ([]frameSeen, error) {
	if len(b) < captureHeader {
		return nil, errors.New("the capture is empty")
	}
	var all []frameSeen
	for b = b[captureHeader:]; len(b) >= recordHeader; {
		at := time.Unix(int64(binary.LittleEndian.Uint32(b)), int64(binary.LittleEndian.Uint32(b[4:])))
		n := int(binary.LittleEndian.Uint32(b[8:]))
		if n > len(b)-recordHeader {
			return all, errors.New("the capture ends in the middle of a packet")
		}
		all = append(all, frameSeen{at, b[recordHeader : recordHeader+n]})
		b = b[recordHeader+n:]
	}
	return all, nil
}

// datagram finds the UDP datagram in an Ethernet frame.
func datagram(frame []byte) (d seen, ok bool) {
	source, destination, udp, ok := overIP(frame, packet.ProtoUDP)
	if !ok {
		return d, false
	}
	return datagramOf(source, destination, udp)
}

// datagramOf reads what an IP packet carries for UDP.
func datagramOf(source, destination netip.Addr, udp []byte) (d seen, ok bool) {
	if len(udp) < packet.UDPHeaderLen {
		return d, false
	}
	size := int(binary.BigEndian.Uint16(udp[4:]))
	if size < packet.UDPHeaderLen || size > len(udp) {
		return d, false
	}
	d.from = netip.AddrPortFrom(source, binary.BigEndian.Uint16(udp))
	d.to = netip.AddrPortFrom(destination, binary.BigEndian.Uint16(udp[2:]))
	d.payload = udp[packet.UDPHeaderLen:size]
	return d, true
}

// unwrapped are datagrams, those in the place of others by which Teredo carries them.
func unwrapped(all []seen) []seen {
	plain := make([]seen, len(all))
	for i, d := range all {
		plain[i] = d
		p, err := teredo.Parse(d.payload)
		if err != nil {
			continue
		}
		if source, destination, udp, ok := overIPv6(p.IPv6, packet.ProtoUDP); ok {
			if inside, ok := datagramOf(source, destination, udp); ok {
				inside.at = d.at
				plain[i] = inside
			}
		}
	}
	return plain
}

// overIP finds what an IP packet carries for a protocol.
func overIP(frame []byte, protocol byte) (source, destination netip.Addr, carried []byte, ok bool) {
	if len(frame) < ethernetLen {
		return source, destination, nil, false
	}
	ip := frame[ethernetLen:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case ethernetIPv4:
		if len(ip) < ipv4MinLen || ip[9] != protocol {
			return source, destination, nil, false
		}
		length := int(ip[0]&15) * 4
		if length < ipv4MinLen || len(ip) < length {
			return source, destination, nil, false
		}
		return netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:])), ip[length:], true
	case ethernetIPv6:
		if p, _, ok := packet.ParseIPv6(ip); ok {
			return overIPv6(p, protocol)
		}
	}
	return source, destination, nil, false
}

// overIPv6 is overIP for a packet of IPv6.
func overIPv6(p packet.IPv6, protocol byte) (source, destination netip.Addr, carried []byte, ok bool) {
	next, at, ok := p.UpperLayer()
	if !ok || next != protocol {
		return source, destination, nil, false
	}
	return p.Src(), p.Dst(), p[at:], true
}

// describe says in words what a Teredo datagram is.
func describe(payload []byte) string {
	p, err := teredo.Parse(payload)
	if err != nil {
		return "not Teredo: " + err.Error()
	}
	var with []string
	if p.HasAuth {
		with = append(with, "nonce")
	}
	if p.Origin.IsValid() {
		with = append(with, "origin "+p.Origin.String())
	}
	if t, err := teredo.ParseTrailers(p.Trailers); err == nil && t.HasNonce {
		with = append(with, "nonce trailer")
	}
	text := inner(p.IPv6)
	if len(with) > 0 {
		text += " [" + strings.Join(with, ", ") + "]"
	}
	return text
}

// connectivityTests holds the echo requests by which a client finds the relay of
// a host (RFC 4380 section 5.2.9), each without type, code and checksum, so that
// their answers are told from those to pings.
type connectivityTests map[string]bool

// remark says what a datagram is to such a test, "" if nothing. A client sends
// the test through its server; a relay may answer the same way as well.
func (c connectivityTests) remark(d seen) string {
	p, err := teredo.Parse(d.payload)
	if err != nil {
		return ""
	}
	m, ok := p.IPv6.ICMPv6()
	if !ok {
		return ""
	}
	test := string(m[4:])
	switch {
	case m[0] == packet.ICMPv6EchoRequest && d.to.Port() == teredo.Port:
		c[test] = true
		return ", to find the relay"
	case m[0] != packet.ICMPv6EchoReply || !c[test]:
		return ""
	case d.from.Port() == teredo.Port:
		return ", to what was to find the relay, by the server"
	}
	return ", to what was to find the relay"
}

// inner says what the IPv6 packet is.
func inner(p packet.IPv6) string {
	if teredo.IsBubble(p) {
		return "bubble"
	}
	switch p.NextHeader() {
	case packet.ProtoUDP:
		return "the packet: UDP to " + p.Dst().String()
	case packet.ProtoTCP:
		return "TCP to " + p.Dst().String()
	}
	m, ok := p.ICMPv6()
	if !ok {
		return fmt.Sprintf("IPv6 protocol %d to %v", p.NextHeader(), p.Dst())
	}
	switch m[0] {
	case packet.ICMPv6RouterSolicitation:
		return "router solicitation"
	case packet.ICMPv6RouterAdvert:
		if ra, err := teredo.ParseRouterAdvertisement(p); err == nil {
			return "router advertisement of " + ra.Prefix.String()
		}
		return "router advertisement"
	case packet.ICMPv6EchoRequest:
		return "echo request to " + p.Dst().String()
	case packet.ICMPv6EchoReply:
		return "echo reply from " + p.Src().String()
	}
	return fmt.Sprintf("ICMPv6 type %d to %v", m[0], p.Dst())
}
