// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// Names of what packet filters look at, as command lines have them.
const (
	filterDirection  = "direction"
	filterPrecedence = "precedence"
	filterRemote     = "remote"
	filterLocal      = "local"
	filterProtocol   = "protocol"
	filterRemotePort = "remote-port"
	filterLocalPort  = "local-port"
	filterSPI        = "spi"
	filterClass      = "class"
	filterFlow       = "flow"
)

var directions = []string{gtp.FilterDown: "down", gtp.FilterUp: "up", gtp.FilterBoth: "both"}

// protocols have names beside their numbers.
var protocols = map[string]uint8{"icmp": 1, "tcp": 6, "udp": 17, "esp": 50, "ah": 51, "icmpv6": 58, "sctp": 132}

// packetFilter reads a filter, such as "protocol=udp,remote-port=5060-5061" (TS 24.008 section
// 10.5.6.12). It looks at both directions unless it says otherwise.
func packetFilter(text string) (f gtp.PacketFilter, precedence bool, err error) {
	f.Direction = gtp.FilterBoth
	named := map[string]bool{}
	for _, part := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		if named[name] {
			return f, false, fmt.Errorf("filter %q says twice what its %s is", text, name)
		}
		named[name] = true
		if err := filterPart(&f, name, value); err != nil {
			return f, false, fmt.Errorf("filter %q: %w", text, err)
		}
	}
	if f.Remote.Address.IsValid() && f.Local.Address.IsValid() && f.Remote.Address.Is4() != f.Local.Address.Is4() {
		return f, false, fmt.Errorf("filter %q has addresses of two families", text)
	}
	if bare := (gtp.PacketFilter{Direction: f.Direction, Precedence: f.Precedence}); f == bare {
		return f, false, fmt.Errorf("filter %q looks at nothing: name a protocol, an address or a port", text)
	}
	return f, named[filterPrecedence], nil
}

func filterPart(f *gtp.PacketFilter, name, value string) (err error) {
	switch name {
	case filterDirection:
		i := slices.Index(directions, value)
		if f.Direction = gtp.FilterDirection(max(i, 0)); i <= 0 {
			err = fmt.Errorf("%q is no direction: write up, down or both", value)
		}
	case filterPrecedence:
		f.Precedence, err = number[uint8](value, 8)
	case filterRemote:
		f.Remote, err = match(value)
	case filterLocal:
		f.Local, err = match(value)
	case filterProtocol:
		p, known := protocols[value]
		if !known {
			p, err = number[uint8](value, 8)
		}
		f.Protocol = gtp.Some(p)
	case filterRemotePort:
		f.RemotePort, err = ports(value)
	case filterLocalPort:
		f.LocalPort, err = ports(value)
	case filterSPI:
		f.SPI, err = some(number[uint32](value, 32))
	case filterFlow:
		f.FlowLabel, err = some(number[uint32](value, 20))
	case filterClass:
		octet, mask, masked := strings.Cut(value, "/")
		m := gtp.MaskedOctet{Mask: 0xff}
		if m.Value, err = number[uint8](octet, 8); err == nil && masked {
			m.Mask, err = number[uint8](mask, 8)
		}
		f.Class = gtp.Some(m)
	default:
		err = fmt.Errorf("%q is nothing that filters look at: write %s", name, strings.Join([]string{
			filterProtocol, filterRemote, filterLocal, filterRemotePort, filterLocalPort, filterSPI, filterClass, filterFlow, filterDirection, filterPrecedence,
		}, ", "))
	}
	return err
}

// number reads a number of so many bits, also one with 0x before it.
func number[N uint8 | uint16 | uint32](text string, bits int) (N, error) {
	n, err := strconv.ParseUint(text, 0, bits)
	if err != nil {
		return 0, fmt.Errorf("%q is no number from 0 to %d", text, uint64(1)<<bits-1)
	}
	return N(n), nil
}

func some[T any](v T, err error) (gtp.Optional[T], error) { return gtp.Some(v), err }

// ports reads one port, or a range of them.
func ports(text string) (gtp.Optional[gtp.PortRange], error) {
	first, last, isRange := strings.Cut(text, "-")
	from, err := number[uint16](first, 16)
	to := from
	if err == nil && isRange {
		to, err = number[uint16](last, 16)
	}
	if err == nil && to < from {
		err = fmt.Errorf("the ports %s go down", text)
	}
	return gtp.Some(gtp.PortRange{First: from, Last: to}), err
}

// match reads an address or a prefix.
func match(text string) (m gtp.Match, err error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return m, fmt.Errorf("%q is neither an address nor a prefix", text)
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	mask := make([]byte, p.Addr().BitLen()/8)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	m.Address = p.Masked().Addr()
	m.Mask, _ = netip.AddrFromSlice(mask)
	return m, nil
}

// template reads the filters of a context. One without a precedence gets one that those of no
// other context of the terminal get: an NSAPI has sixteen.
func template(filters []string, nsapi uint8) ([]byte, error) {
	t := gtp.TFT{Operation: gtp.TFTCreate}
	for i, text := range filters {
		f, ranked, err := packetFilter(text)
		if err != nil {
			return nil, err
		}
		if f.ID = uint8(i); !ranked {
			f.Precedence = nsapi<<4 | uint8(i)
		}
		t.Filters = append(t.Filters, f)
	}
	b := t.Append(nil)
	if _, cause, ok := gtp.ParseTFT(b); !ok {
		return nil, fmt.Errorf("these filters cannot be told a GGSN: %s", cause)
	}
	return b, nil
}

// filterText writes a filter as it is read.
func filterText(f *gtp.PacketFilter) string {
	var parts []string
	add := func(name, format string, args ...any) { parts = append(parts, name+"="+fmt.Sprintf(format, args...)) }
	ports := func(name string, o gtp.Optional[gtp.PortRange]) {
		switch r := o.Value; {
		case !o.Present:
		case r.First == r.Last:
			add(name, "%d", r.First)
		default:
			add(name, "%d-%d", r.First, r.Last)
		}
	}
	addresses := func(name string, m gtp.Match) {
		if m.Address.IsValid() {
			ones := 0
			for _, b := range m.Mask.AsSlice() {
				for ; b&0x80 != 0; b <<= 1 {
					ones++
				}
			}
			add(name, "%s/%d", m.Address, ones)
		}
	}
	add(filterPrecedence, "%d", f.Precedence)
	if f.Direction != gtp.FilterUnspecified {
		add(filterDirection, "%s", directions[f.Direction&3])
	}
	if f.Protocol.Present {
		add(filterProtocol, "%d", f.Protocol.Value)
	}
	addresses(filterRemote, f.Remote)
	ports(filterRemotePort, f.RemotePort)
	addresses(filterLocal, f.Local)
	ports(filterLocalPort, f.LocalPort)
	if f.SPI.Present {
		add(filterSPI, "%#x", f.SPI.Value)
	}
	if f.Class.Present {
		add(filterClass, "%#x/%#x", f.Class.Value.Value, f.Class.Value.Mask)
	}
	if f.FlowLabel.Present {
		add(filterFlow, "%#x", f.FlowLabel.Value)
	}
	return strings.Join(parts, ",")
}
