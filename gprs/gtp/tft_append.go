// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import (
	"encoding/binary"
	"math/bits"
)

// maxParameter is the greatest length of a parameter's value in octets.
const maxParameter = 0xff

// Append appends the value of a traffic flow template. What it writes of a template
// that [ParseTFT] would not return, that refuses.
func (t TFT) Append(b []byte) []byte {
	first := byte(t.Operation)<<5 | byte(len(t.Filters)&maxFilters)
	if len(t.Parameters) > 0 {
		first |= 0x10
	}
	b = append(b, first)
	for i := range t.Filters {
		b = t.Filters[i].append(b, t.Operation)
	}
	for _, p := range t.Parameters {
		if len(p.Value) > maxParameter {
			return append(b, p.ID, maxParameter) // and ends before its value
		}
		b = append(append(b, p.ID, byte(len(p.Value))), p.Value...)
	}
	return b
}

func (f *PacketFilter) append(b []byte, o TFTOperation) []byte {
	if o == TFTDeleteFilters {
		return append(b, f.ID&0xf)
	}
	b = append(b, byte(f.Direction&3)<<4|f.ID&0xf, f.Precedence, 0)
	at := len(b)
	b = f.AppendContents(b)
	b[at-1] = byte(len(b) - at)
	return b
}

// AppendContents appends the components of the filter.
func (f *PacketFilter) AppendContents(b []byte) []byte {
	b = f.Remote.append(b, componentRemote4, componentRemotePrefix, componentRemote6)
	b = f.Local.append(b, componentLocal4, componentLocalPrefix, componentNone)
	if f.Protocol.Present {
		b = append(b, componentProtocol, f.Protocol.Value)
	}
	b = appendPorts(b, f.LocalPort, componentLocalPort)
	b = appendPorts(b, f.RemotePort, componentRemotePort)
	if f.SPI.Present {
		b = binary.BigEndian.AppendUint32(append(b, componentSPI), f.SPI.Value)
	}
	if f.Class.Present {
		b = append(b, componentClass, f.Class.Value.Value, f.Class.Value.Mask)
	}
	if f.FlowLabel.Present {
		b = append(b, componentFlowLabel, byte(f.FlowLabel.Value>>16&0xf), byte(f.FlowLabel.Value>>8), byte(f.FlowLabel.Value))
	}
	return b
}

// append writes an address with its mask; of IPv6, with the length of its prefix where
// the mask is one. Only the remote address has a component with another mask, six.
func (m Match) append(b []byte, four, prefix, six byte) []byte {
	switch {
	case !m.Address.IsValid():
		return b
	case m.Address.Is4():
		return appendAddress(appendAddress(append(b, four), m.Address), m.Mask)
	}
	if n, ok := prefixLen(m.Mask.As16()); ok && m.Mask.IsValid() {
		return append(appendAddress(append(b, prefix), m.Address), n)
	}
	return appendAddress(appendAddress(append(b, six), m.Address), m.Mask)
}

// prefixLen returns how many ones a mask begins with; ok is false if more follow.
func prefixLen(mask [16]byte) (n byte, ok bool) {
	high, low := binary.BigEndian.Uint64(mask[:]), binary.BigEndian.Uint64(mask[8:])
	ones := bits.LeadingZeros64(^high)
	if ones == 64 {
		ones += bits.LeadingZeros64(^low)
	}
	return byte(ones), ones == bits.OnesCount64(high)+bits.OnesCount64(low)
}

// appendPorts writes one port, or a range, whose component is the next one.
func appendPorts(b []byte, o Optional[PortRange], single byte) []byte {
	switch r := o.Value; {
	case !o.Present:
		return b
	case r.First == r.Last:
		return binary.BigEndian.AppendUint16(append(b, single), r.First)
	default:
		b = binary.BigEndian.AppendUint16(append(b, single+1), r.First)
		return binary.BigEndian.AppendUint16(b, r.Last)
	}
}
