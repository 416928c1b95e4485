// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import (
	"encoding/binary"
	"iter"
	"net/netip"
)

// PPPCode is the code of a packet of IPCP (RFC 1661 section 5), PAP (RFC 1334 section
// 2.2) or CHAP (RFC 1994 section 4).
type PPPCode uint8

// Codes.
const (
	ConfigureRequest PPPCode = 1
	ConfigureAck     PPPCode = 2
	ConfigureNak     PPPCode = 3
	ConfigureReject  PPPCode = 4

	PAPRequest PPPCode = 1
	PAPAck     PPPCode = 2
	PAPNak     PPPCode = 3

	CHAPChallenge PPPCode = 1
	CHAPResponse  PPPCode = 2
	CHAPSuccess   PPPCode = 3
	CHAPFailure   PPPCode = 4
)

// Options of IPCP.
const (
	IPCPAddress       = 3   // RFC 1332 section 3.3
	IPCPPrimaryDNS    = 129 // RFC 1877 section 1.1
	IPCPPrimaryNBNS   = 130
	IPCPSecondaryDNS  = 131
	IPCPSecondaryNBNS = 132
)

// PPP is a packet of one of the control protocols of PPP in a container of [PCO]:
//
//	| code | identifier | length (2) | data |
type PPP struct {
	Code       PPPCode
	Identifier uint8
	Data       []byte
}

// pppHeader is what its length counts beside the data.
const pppHeader = 4

// ParsePPP reads a container. What follows the packet is padding (RFC 1661 section 5).
func ParsePPP(v []byte) (p PPP, ok bool) {
	if len(v) < pppHeader {
		return p, false
	}
	n := int(binary.BigEndian.Uint16(v[2:]))
	if n < pppHeader || n > len(v) {
		return p, false
	}
	return PPP{PPPCode(v[0]), v[1], v[pppHeader:n:n]}, true
}

// Append appends the packet.
func (p PPP) Append(b []byte) []byte {
	b = append(b, byte(p.Code), p.Identifier)
	b = binary.BigEndian.AppendUint16(b, uint16(pppHeader+len(p.Data)))
	return append(b, p.Data...)
}

// Options returns types and values of the options in the data of IPCP (RFC 1661 section
// 6), up to the first that cannot be read.
func (p PPP) Options() iter.Seq2[uint8, []byte] {
	return func(yield func(uint8, []byte) bool) {
		for b := p.Data; len(b) >= 2 && b[1] >= 2 && int(b[1]) <= len(b); b = b[b[1]:] {
			if !yield(b[0], b[2:b[1]:b[1]]) {
				return
			}
		}
	}
}

// AppendIPCPOption appends an option with an IPv4 address.
func AppendIPCPOption(b []byte, option uint8, a netip.Addr) []byte {
	return appendAddress(append(b, option, 6), a.Unmap())
}

// PAPCredentials returns name and password of an Authenticate-Request (RFC 1334 section
// 2.2.1).
func (p PPP) PAPCredentials() (name, password []byte, ok bool) {
	if p.Code != PAPRequest {
		return nil, nil, false
	}
	name, rest, ok := lengthAndValue(p.Data)
	if !ok {
		return nil, nil, false
	}
	password, _, ok = lengthAndValue(rest)
	return name, password, ok
}

// CHAPValue returns value and name of a challenge or a response (RFC 1994 section 4.1).
func (p PPP) CHAPValue() (value, name []byte, ok bool) {
	if p.Code != CHAPChallenge && p.Code != CHAPResponse {
		return nil, nil, false
	}
	return lengthAndValue(p.Data)
}

// lengthAndValue takes an octet with a length, and as much, off b.
func lengthAndValue(b []byte) (value, rest []byte, ok bool) {
	if len(b) < 1 || len(b) < 1+int(b[0]) {
		return nil, nil, false
	}
	end := 1 + int(b[0])
	return b[1:end:end], b[end:], true
}
