// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// Protocols with SPIs (RFC 4302, RFC 4303).
const (
	protoESP = 50
	protoAH  = 51
)

// filters returns those of a template for what the terminal sends, the first to be tried
// first.
func filters(t gtp.TFT) (list []gtp.PacketFilter) {
	for _, f := range t.Filters {
		if f.Direction == gtp.FilterUp || f.Direction == gtp.FilterBoth {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b gtp.PacketFilter) int { return int(a.Precedence) - int(b.Precedence) })
	return list
}

// choose returns the context that a packet of the terminal goes by: that of the filter of the
// lowest precedence that matches it, of all contexts, or else the primary one (TS 23.060
// section 15.3.3).
func (s *session) choose(ip []byte) *PDPContext {
	chosen := s.contexts[0]
	if len(s.contexts) == 1 {
		return chosen
	}
	f := fieldsOf(ip)
	best := 256
	for _, c := range s.contexts {
		if c.state == Opening {
			continue
		}
		for i := range c.filters {
			if p := int(c.filters[i].Precedence); p < best && f.match(&c.filters[i]) {
				best, chosen = p, c
			}
		}
	}
	return chosen
}

// fields are those of a packet that filters look at.
type fields struct {
	local, remote         netip.Addr
	protocol              uint8
	class                 uint8
	flow                  uint32
	localPort, remotePort int // -1: none
	spi                   uint32
	hasSPI                bool
}

// fieldsOf reads a packet of the terminal, which is the local end.
func fieldsOf(ip []byte) fields {
	f := fields{localPort: -1, remotePort: -1}
	var upper []byte
	if ip[0]>>4 == 4 {
		f.local, f.remote = netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))
		f.protocol, f.class = ip[9], ip[1]
		first := binary.BigEndian.Uint16(ip[6:])&0x1fff == 0
		if n := 4 * int(ip[0]&0xf); first && n <= len(ip) {
			upper = ip[n:]
		}
	} else {
		p := packet.IPv6(ip)
		f.local, f.remote = p.Src(), p.Dst()
		f.class, f.flow = ip[0]<<4|ip[1]>>4, binary.BigEndian.Uint32(ip)&0xfffff
		proto, at, ok := p.UpperLayer()
		if f.protocol = proto; ok && proto != packet.ProtoFragment {
			upper = ip[at:]
		}
	}
	f.upper(upper)
	return f
}

func (f *fields) upper(b []byte) {
	switch f.protocol {
	case packet.ProtoTCP, packet.ProtoUDP:
		if len(b) >= 4 {
			f.localPort, f.remotePort = int(binary.BigEndian.Uint16(b)), int(binary.BigEndian.Uint16(b[2:]))
		}
	case protoESP:
		if len(b) >= 4 {
			f.spi, f.hasSPI = binary.BigEndian.Uint32(b), true
		}
	case protoAH:
		if len(b) >= 8 {
			f.spi, f.hasSPI = binary.BigEndian.Uint32(b[4:]), true
		}
	}
}

// match reports whether all components of a filter agree.
func (f *fields) match(p *gtp.PacketFilter) bool {
	switch {
	case p.Remote.Address.IsValid() && !p.Remote.Contains(f.remote),
		p.Local.Address.IsValid() && !p.Local.Contains(f.local),
		p.Protocol.Present && p.Protocol.Value != f.protocol,
		p.LocalPort.Present && !within(p.LocalPort.Value, f.localPort),
		p.RemotePort.Present && !within(p.RemotePort.Value, f.remotePort),
		p.SPI.Present && (!f.hasSPI || p.SPI.Value != f.spi),
		p.Class.Present && (f.class^p.Class.Value.Value)&p.Class.Value.Mask != 0,
		p.FlowLabel.Present && p.FlowLabel.Value != f.flow:
		return false
	}
	return true
}

func within(r gtp.PortRange, port int) bool { return port >= int(r.First) && port <= int(r.Last) }
