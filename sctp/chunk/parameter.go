// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package chunk

import (
	"encoding/binary"
	"net/netip"
)

// ParameterType is that of a parameter (RFC 9260 section 3.2.1). Its two highest bits say what becomes of one
// that is not known.
type ParameterType uint16

// The types of parameters.
const (
	ParamHeartbeatInfo      ParameterType = 1
	ParamIPv4               ParameterType = 5
	ParamIPv6               ParameterType = 6
	ParamCookie             ParameterType = 7
	ParamUnrecognized       ParameterType = 8
	ParamCookiePreservative ParameterType = 9
	ParamHostName           ParameterType = 11
	ParamAddressTypes       ParameterType = 12
	ParamRandom             ParameterType = 0x8002 // RFC 4895 section 3
	ParamChunks             ParameterType = 0x8003
	ParamHMACs              ParameterType = 0x8004
	ParamExtensions         ParameterType = 0x8008 // RFC 5061 section 4.2.7
	ParamForwardTSN         ParameterType = 0xc000 // RFC 3758 section 3.1
	ParamAddIP              ParameterType = 0xc001 // RFC 5061 section 4.2
	ParamDeleteIP           ParameterType = 0xc002
	ParamErrorIndication    ParameterType = 0xc003
	ParamSetPrimary         ParameterType = 0xc004
	ParamSuccess            ParameterType = 0xc005
	ParamAdaptation         ParameterType = 0xc006
)

// Skipped reports whether a receiver that does not know the type goes on with the next parameter.
func (t ParameterType) Skipped() bool { return t&(skipBit<<8) != 0 }

// Reported reports whether a receiver that does not know the type says so to the sender.
func (t ParameterType) Reported() bool { return t&(reportBit<<8) != 0 }

// parameterHeader is the size of a parameter's header, and of an error cause's: type, length.
const parameterHeader = 4

// Parameter is one of any type (RFC 9260 section 3.2.1):
//
//	| type (2) | length (2) | value | padding to a multiple of 4 |
type Parameter struct {
	Type  ParameterType
	Value []byte // without header and padding
	Whole []byte // with its header, without padding, as reports want it
}

// NextParameter cuts the first parameter off a list. The last one's padding may be missing.
func NextParameter(list []byte) (p Parameter, rest []byte, err error) {
	code, value, whole, rest, err := nextTLV(list)
	return Parameter{ParameterType(code), value, whole}, rest, err
}

// nextTLV cuts the first of a list of types, lengths and values off.
func nextTLV(list []byte) (code uint16, value, whole, rest []byte, err error) {
	if len(list) < parameterHeader {
		return 0, nil, nil, nil, ErrLength
	}
	length := int(binary.BigEndian.Uint16(list[2:]))
	if length < parameterHeader || length > len(list) {
		return 0, nil, nil, nil, ErrLength
	}
	return binary.BigEndian.Uint16(list), list[parameterHeader:length:length], list[:length:length], list[min(padded(length), len(list)):], nil
}

// AppendParameter writes a parameter with its padding.
func AppendParameter(b []byte, t ParameterType, value []byte) []byte {
	return appendTLV(b, uint16(t), value)
}

func appendTLV(b []byte, code uint16, value []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, code)
	b = binary.BigEndian.AppendUint16(b, uint16(parameterHeader+len(value)))
	return pad(append(b, value...), len(value))
}

// Address reads an address of either family; ok is false of what is none.
func (p Parameter) Address() (a netip.Addr, ok bool) {
	if p.Type == ParamIPv4 && len(p.Value) == 4 || p.Type == ParamIPv6 && len(p.Value) == 16 {
		return netip.AddrFromSlice(p.Value)
	}
	return a, false
}

// AppendAddress writes the parameter of an address.
func AppendAddress(b []byte, a netip.Addr) []byte {
	if a.Is4() {
		four := a.As4()
		return AppendParameter(b, ParamIPv4, four[:])
	}
	six := a.As16()
	return AppendParameter(b, ParamIPv6, six[:])
}
