// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// View is what a stateful translator reads of a packet before it decides addresses and
// ports (RFC 6146 section 3.4). It lies over the packet.
type View struct {
	Src, Dst netip.Addr
	Proto    uint8  // the first header that translation does not take off
	Payload  []byte // from that header on; in a quoted packet, what is there of it
	Headers  int    // octets before Payload

	HasFragment bool // an IPv6 Fragment Header is there, or this is an IPv4 fragment
	Offset      int  // of a fragment, in octets
	More        bool // fragments follow
	ID          uint32
}

// Fragment reports whether the packet is one of several.
func (v *View) Fragment() bool { return v.More || v.Offset != 0 }

// ViewIPv4 reads an IPv4 packet, with the checks that translation makes of a header.
func ViewIPv4(ip []byte) (View, Reason) {
	h, r := parseIPv4(ip)
	return view4(&h), r
}

// ViewIPv6 reads an IPv6 packet with its extension headers.
func ViewIPv6(ip []byte) (View, Reason) {
	h, r := parseIPv6(ip)
	return view6(&h), r
}

// IsError reports whether the view is of an ICMP or ICMPv6 error message, or of its
// first fragment.
func (v *View) IsError() bool {
	if len(v.Payload) == 0 || v.Offset != 0 {
		return false
	}
	if v.Src.Is4() {
		return v.Proto == protoICMP && isErrorType4(v.Payload[0])
	}
	return v.Proto == packet.ProtoICMPv6 && isErrorType6(v.Payload[0])
}

// Quoted reads the packet that an ICMP error quotes, of which only the start need be
// there.
func (v *View) Quoted() (View, Reason) {
	if len(v.Payload) < icmpHeaderLen {
		return View{}, ReasonTransport
	}
	quote := v.Payload[icmpHeaderLen:]
	if v.Src.Is4() {
		h, r := readHeader4(quote)
		return view4(&h), r
	}
	h, r := readHeader6(quote)
	return view6(&h), r
}

func view4(h *header4) View {
	if h.packet == nil {
		return View{}
	}
	return View{
		Src: netip.AddrFrom4(h.src), Dst: netip.AddrFrom4(h.dst),
		Proto: h.proto, Payload: h.payload(), Headers: h.size,
		HasFragment: h.fragment(), Offset: int(h.offset) * 8, More: h.mf, ID: uint32(h.id),
	}
}

func view6(h *header6) View {
	if h.packet == nil || h.size > len(h.packet) {
		return View{}
	}
	return View{
		Src: netip.AddrFrom16(*h.src), Dst: netip.AddrFrom16(*h.dst),
		Proto: h.proto, Payload: h.payload(), Headers: h.size,
		HasFragment: h.hasFragment, Offset: int(h.offset) * 8, More: h.mf, ID: h.id,
	}
}

// Forwarded reports whether a packet may be forwarded from or to the address: it is a
// unicast address of more than one link (RFC 6890).
func Forwarded(a netip.Addr) bool {
	if a.Is4() {
		return !illegal4(a.As4())
	}
	raw := a.As16()
	return a.Is6() && !illegal6(&raw)
}

// NonGlobal reports whether the well-known prefix may not represent the IPv4 address
// (RFC 6052 section 3.1).
func NonGlobal(a netip.Addr) bool { return isNonGlobal(a.As4()) }

// WellKnown reports whether the prefix is the well-known one.
func (p *Prefix) WellKnown() bool { return p.wellKnown }

// ErrorAbout4 makes the ICMP error of that type and code about an IPv4 packet, of which the
// end may be missing, from the translator's own address, in the batch's memory. It is nil where none may be sent:
// about an ICMP error or a later fragment, or without an own address.
func (t *Translator) ErrorAbout4(ip []byte, typ, code uint8, path Path, out *packet.Batch) []byte {
	h, r := readHeader4(ip)
	if r != ReasonNone || illegal4(h.src) || illegal4(h.dst) || !t.own4.IsValid() {
		return nil
	}
	if b := t.error4(&h, typ, code, 0, path, out); len(b) > 0 {
		return b
	}
	return nil
}

// ErrorAbout6 is the ICMPv6 counterpart.
func (t *Translator) ErrorAbout6(ip []byte, typ, code uint8, out *packet.Batch) []byte {
	h, r := parseIPv6(ip)
	if r != ReasonNone || !t.own6.IsValid() {
		return nil
	}
	b := packet.AppendICMPv6Error(out.Alloc(maxError6), t.own6, typ, code, 0, packet.IPv6(h.packet))
	if len(b) == 0 {
		return nil
	}
	return b
}
