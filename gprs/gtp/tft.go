// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import (
	"encoding/binary"
	"net/netip"
)

// TFTOperation is what a traffic flow template asks for (TS 24.008 section 10.5.6.12).
type TFTOperation uint8

// Operations.
const (
	TFTIgnore         TFTOperation = 0 // spare in requests
	TFTCreate         TFTOperation = 1
	TFTDelete         TFTOperation = 2
	TFTAddFilters     TFTOperation = 3
	TFTReplaceFilters TFTOperation = 4
	TFTDeleteFilters  TFTOperation = 5
	TFTNone           TFTOperation = 6 // parameters alone
)

// maxFilters and maxParameters bound the lists of a template: the number of filters has
// four bits; of parameters, one authorization token and a few flows make sense.
const (
	maxFilters    = 15
	maxParameters = 16
)

// TFT is a traffic flow template: which packets belong to a secondary context.
type TFT struct {
	Operation  TFTOperation
	Filters    []PacketFilter
	Parameters []TFTParameter
}

// TFTParameter is an authorization token (1), a flow identifier (2) or a packet filter
// identifier (3).
type TFTParameter struct {
	ID    uint8
	Value []byte
}

// FilterDirection says which packets a filter looks at.
type FilterDirection uint8

// Directions. FilterUnspecified is of releases before 7 and means downlink.
const (
	FilterUnspecified FilterDirection = 0
	FilterDown        FilterDirection = 1
	FilterUp          FilterDirection = 2
	FilterBoth        FilterDirection = 3
)

// PacketFilter matches packets that agree in all its components. Of a filter to be
// deleted, the identifier alone is there.
type PacketFilter struct {
	ID         uint8 // 0 to 15
	Direction  FilterDirection
	Precedence uint8 // the lowest is tried first

	Remote, Local         Match // addresses
	Protocol              Optional[uint8]
	LocalPort, RemotePort Optional[PortRange]
	SPI                   Optional[uint32]
	Class                 Optional[MaskedOctet] // type of service or traffic class
	FlowLabel             Optional[uint32]
}

// Match is an address and which of its bits count; not valid when absent. Old kinds of
// components have a mask, later ones the length of a prefix.
type Match struct {
	Address netip.Addr
	Mask    netip.Addr
}

// Contains reports whether the address agrees in the bits that count.
func (m Match) Contains(a netip.Addr) bool {
	if !m.Address.IsValid() || a.BitLen() != m.Address.BitLen() {
		return !m.Address.IsValid()
	}
	want, mask, have := m.Address.As16(), m.Mask.As16(), a.As16()
	for i := range have {
		if (want[i]^have[i])&mask[i] != 0 {
			return false
		}
	}
	return true
}

// PortRange are the ports from First to Last.
type PortRange struct{ First, Last uint16 }

// MaskedOctet is a value and which of its bits count.
type MaskedOctet struct{ Value, Mask uint8 }

// Components of a packet filter.
const (
	componentNone         = 0x00 // reserved
	componentRemote4      = 0x10
	componentLocal4       = 0x11
	componentRemote6      = 0x20 // with a mask
	componentRemotePrefix = 0x21
	componentLocalPrefix  = 0x23
	componentProtocol     = 0x30
	componentLocalPort    = 0x40
	componentLocalPorts   = 0x41
	componentRemotePort   = 0x50
	componentRemotePorts  = 0x51
	componentSPI          = 0x60
	componentClass        = 0x70
	componentFlowLabel    = 0x80
)

// componentLen are the lengths of the components, without their type.
var componentLen = [256]uint8{
	componentRemote4: 8, componentLocal4: 8, componentRemote6: 32, componentRemotePrefix: 17, componentLocalPrefix: 17,
	componentProtocol: 1, componentLocalPort: 2, componentLocalPorts: 4, componentRemotePort: 2, componentRemotePorts: 4,
	componentSPI: 4, componentClass: 2, componentFlowLabel: 3,
}

// ParseTFT reads the value of a traffic flow template. If it cannot, it returns the
// cause of its answer: 215 or 216 for the template, 217 or 218 for one of its filters.
// Whether an operation makes sense with the filters that a context has is for others to
// judge.
func ParseTFT(v []byte) (t TFT, cause Cause, ok bool) {
	if len(v) == 0 {
		return TFT{}, CauseTFTSyntax, false
	}
	t.Operation = TFTOperation(v[0] >> 5)
	withParameters, count := v[0]&0x10 != 0, int(v[0]&0xf)
	if t.Operation > TFTNone || (count == 0) != t.Operation.empty() {
		return TFT{}, CauseTFTSyntax, false
	}
	rest := v[1:]
	for range count {
		var f PacketFilter
		if f, rest, cause = parseFilter(rest, t.Operation); cause != 0 {
			return TFT{}, cause, false
		}
		for _, other := range t.Filters {
			if other.ID == f.ID { // TS 24.008 section 6.1.3.2.3
				return TFT{}, CauseFilterSyntax, false
			}
		}
		t.Filters = append(t.Filters, f)
	}
	for withParameters && len(rest) > 0 {
		if len(rest) < 2 || len(rest) < 2+int(rest[1]) || len(t.Parameters) == maxParameters {
			return TFT{}, CauseTFTSyntax, false
		}
		end := 2 + int(rest[1])
		t.Parameters = append(t.Parameters, TFTParameter{ID: rest[0], Value: rest[2:end:end]})
		rest = rest[end:]
	}
	if len(rest) > 0 {
		return TFT{}, CauseTFTSyntax, false
	}
	return t, 0, true
}

// empty reports whether the operation has no filters.
func (o TFTOperation) empty() bool { return o == TFTIgnore || o == TFTDelete || o == TFTNone }

// parseFilter takes a filter off b. A cause of 0 is success.
func parseFilter(b []byte, o TFTOperation) (f PacketFilter, rest []byte, cause Cause) {
	if len(b) < 1 {
		return f, nil, CauseTFTSyntax
	}
	f.ID, f.Direction = b[0]&0xf, FilterDirection(b[0]>>4&3)
	if o == TFTDeleteFilters {
		f.Direction = 0
		return f, b[1:], 0
	}
	if len(b) < 3 || len(b) < 3+int(b[2]) {
		return f, nil, CauseTFTSyntax
	}
	f.Precedence, rest = b[1], b[3+int(b[2]):]
	content := b[3 : 3+int(b[2])]
	if len(content) == 0 {
		return f, nil, CauseFilterSyntax
	}
	for len(content) > 0 {
		n := 1 + int(componentLen[content[0]])
		if n == 1 || n > len(content) || !f.component(content[0], content[1:n]) {
			return f, nil, CauseFilterSyntax
		}
		content = content[n:]
	}
	return f, rest, 0
}

// component reads one. It reports whether it may be there, once, with what is there
// already.
func (f *PacketFilter) component(kind byte, v []byte) bool {
	switch kind {
	case componentRemote4, componentRemote6:
		return f.Remote.masked(v)
	case componentLocal4:
		return f.Local.masked(v)
	case componentRemotePrefix:
		return f.Remote.prefix(v)
	case componentLocalPrefix:
		return f.Local.prefix(v)
	case componentProtocol:
		return once(&f.Protocol, v[0])
	case componentLocalPort:
		port := binary.BigEndian.Uint16(v)
		return once(&f.LocalPort, PortRange{port, port})
	case componentLocalPorts:
		return once(&f.LocalPort, PortRange{binary.BigEndian.Uint16(v), binary.BigEndian.Uint16(v[2:])})
	case componentRemotePort:
		port := binary.BigEndian.Uint16(v)
		return once(&f.RemotePort, PortRange{port, port})
	case componentRemotePorts:
		return once(&f.RemotePort, PortRange{binary.BigEndian.Uint16(v), binary.BigEndian.Uint16(v[2:])})
	case componentSPI:
		return once(&f.SPI, binary.BigEndian.Uint32(v))
	case componentClass:
		return once(&f.Class, MaskedOctet{v[0], v[1]})
	}
	return once(&f.FlowLabel, uint32(v[0]&0xf)<<16|uint32(v[1])<<8|uint32(v[2]))
}

// once sets what is not there yet.
func once[T any](o *Optional[T], v T) bool {
	if o.Present {
		return false
	}
	*o = Some(v)
	return true
}

// masked reads an address and a mask of the same length.
func (m *Match) masked(v []byte) bool {
	if m.Address.IsValid() {
		return false
	}
	m.Address, _ = netip.AddrFromSlice(v[:len(v)/2])
	m.Mask, _ = netip.AddrFromSlice(v[len(v)/2:])
	return true
}

// prefix reads an IPv6 address and the length of its prefix.
func (m *Match) prefix(v []byte) bool {
	if m.Address.IsValid() || v[16] > 128 {
		return false
	}
	var mask [16]byte
	for i := range int(v[16]) {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	m.Address, m.Mask = netip.AddrFrom16([16]byte(v[:16])), netip.AddrFrom16(mask)
	return true
}
