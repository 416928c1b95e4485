// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"encoding/binary"
	"net/netip"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// inner is what filters look at of a packet for a terminal.
type inner struct {
	remote, local         netip.Addr
	protocol              uint8
	class                 uint8
	flowLabel             uint32
	hasPorts, hasSPI      bool
	remotePort, localPort uint16
	spi                   uint32
}

// Protocols with a security parameters index at their beginning (RFC 4303), or behind their
// fixed part (RFC 4302).
const (
	protoESP = 50
	protoAH  = 51
)

// read takes the packet apart. It is a whole one.
func (p *inner) read(ip []byte) {
	var upper []byte
	if ip[0]>>4 == 4 {
		p.remote, p.local = netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))
		p.class, p.protocol = ip[1], ip[9]
		if binary.BigEndian.Uint16(ip[6:])&0x1fff == 0 {
			upper = ip[headerLen4(ip):]
		}
	} else {
		six := packet.IPv6(ip)
		p.remote, p.local = six.Src(), six.Dst()
		p.class = ip[0]<<4 | ip[1]>>4
		p.flowLabel = binary.BigEndian.Uint32(ip) & 0xfffff
		proto, off, ok := six.UpperLayer()
		if p.protocol = proto; proto == packet.ProtoFragment {
			p.protocol = ip[off] // what the fragments are of, as it is in IPv4
		} else if ok {
			upper = ip[off:]
		}
	}
	switch p.protocol {
	case packet.ProtoTCP, packet.ProtoUDP:
		if p.hasPorts = len(upper) >= 4; p.hasPorts {
			p.remotePort, p.localPort = binary.BigEndian.Uint16(upper), binary.BigEndian.Uint16(upper[2:])
		}
	case protoESP:
		if p.hasSPI = len(upper) >= 4; p.hasSPI {
			p.spi = binary.BigEndian.Uint32(upper)
		}
	case protoAH:
		if p.hasSPI = len(upper) >= 8; p.hasSPI {
			p.spi = binary.BigEndian.Uint32(upper[4:])
		}
	}
}

// matches reports whether the packet agrees in all components of a filter for packets to the
// terminal.
func (p *inner) matches(f *gtp.PacketFilter) bool {
	in := func(r gtp.Optional[gtp.PortRange], port uint16) bool {
		return !r.Present || p.hasPorts && r.Value.First <= port && port <= r.Value.Last
	}
	switch {
	case f.Direction == gtp.FilterUp,
		!f.Remote.Contains(p.remote), !f.Local.Contains(p.local),
		f.Protocol.Present && f.Protocol.Value != p.protocol,
		!in(f.RemotePort, p.remotePort), !in(f.LocalPort, p.localPort),
		f.SPI.Present && (!p.hasSPI || f.SPI.Value != p.spi),
		f.Class.Present && (p.class^f.Class.Value.Value)&f.Class.Value.Mask != 0,
		f.FlowLabel.Present && f.FlowLabel.Value != p.flowLabel:
		return false
	}
	return true
}

// headerLen4 is the length of an IPv4 header.
func headerLen4(ip []byte) int { return int(ip[0]&0xf) * 4 }
