// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/isthmus-net/isthmus/internal/packet"
)

var protocolNames = map[byte]string{
	protoICMP: "icmp", packet.ProtoTCP: "tcp", packet.ProtoUDP: "udp", protoIPv6: "ipv6",
	47: "gre", 50: "esp", packet.ProtoICMPv6: "icmp6", packet.ProtoNone: "none", 132: "sctp",
}

func protocolName(proto byte) string {
	if name, ok := protocolNames[proto]; ok {
		return name
	}
	return strconv.Itoa(int(proto))
}

// Text returns a sample in one line: when, where, what became of it and why, then
// its headers from the outer to the inner.
func (s *Sample) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %-6s %-4s", s.Time.Format("15:04:05.000000"), s.Instance, s.Path, s.Hook)
	if s.Device != "" {
		fmt.Fprintf(&b, " %s", s.Device)
	}
	fmt.Fprintf(&b, " %s", s.Verdict)
	if s.Reason != "" {
		fmt.Fprintf(&b, " (%s)", s.Reason)
	}
	all := s.layers()
	if len(all) == 0 {
		fmt.Fprintf(&b, ": no IP, %d bytes", s.Length)
	}
	for i, l := range all {
		if i == 0 {
			b.WriteString(": ")
		} else {
			b.WriteString(" | ")
		}
		l.print(&b)
	}
	return b.String()
}

func (l *layer) print(b *strings.Builder) {
	fmt.Fprintf(b, "%s > %s %s", end(l.src, l.sport, l.ports), end(l.dst, l.dport, l.ports), protocolName(l.proto))
	if l.typed {
		fmt.Fprintf(b, " %d/%d", l.kind, l.code)
	}
	if l.fragment {
		b.WriteString(" fragment")
	}
	fmt.Fprintf(b, " hops %d, %d bytes", l.hops, l.length)
}

func end(a netip.Addr, port uint16, ports bool) string {
	if ports {
		return netip.AddrPortFrom(a, port).String()
	}
	return a.String()
}
