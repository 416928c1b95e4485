// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package chunk

import (
	"encoding/binary"
	"net/netip"
)

// ASCONF changes the addresses of an association (RFC 5061 section 4.1.1):
//
//	| serial (4) | address parameter of the sender | requests |
type ASCONF struct {
	Serial   uint32
	Address  netip.Addr // of the sender, by which it is known where the packet's own is not
	Requests []byte     // for [NextRequest]
}

// ParseASCONF reads an ASCONF as far as its requests.
func ParseASCONF(body []byte) (a ASCONF, err error) {
	if len(body) < 4 {
		return a, ErrLength
	}
	p, rest, err := NextParameter(body[4:])
	if err != nil {
		return a, err
	}
	address, ok := p.Address()
	if !ok {
		return a, ErrLength
	}
	return ASCONF{binary.BigEndian.Uint32(body), address, rest}, nil
}

// Append writes the chunk.
func (a *ASCONF) Append(b []byte) []byte {
	b, at := open(b, TypeASCONF, 0)
	b = binary.BigEndian.AppendUint32(b, a.Serial)
	return closeList(append(AppendAddress(b, a.Address), a.Requests...), at, 4)
}

// Request asks for one change (RFC 5061 section 4.2): to add, to delete, or to make primary. The address of
// all zeros stands for the source of the packet; in a deletion, for all but that.
type Request struct {
	Type        ParameterType
	Correlation uint32 // of the answer
	Address     netip.Addr
}

// NextRequest cuts the first request off a list. known is false of one of another type, which is reported or
// not by [ParameterType.Reported]; whole is all of it.
func NextRequest(list []byte) (r Request, known bool, whole, rest []byte, err error) {
	p, rest, err := NextParameter(list)
	if err != nil {
		return r, false, nil, nil, err
	}
	r.Type = p.Type
	if len(p.Value) >= 4 {
		r.Correlation = binary.BigEndian.Uint32(p.Value)
	}
	switch p.Type {
	case ParamAddIP, ParamDeleteIP, ParamSetPrimary:
	default:
		return r, false, p.Whole, rest, nil
	}
	if len(p.Value) < 4 {
		return r, true, nil, nil, ErrLength
	}
	at, _, err := NextParameter(p.Value[4:])
	if err != nil {
		return r, true, nil, nil, err
	}
	address, ok := at.Address()
	if !ok {
		return r, true, nil, nil, ErrLength
	}
	r.Address = address
	return r, true, p.Whole, rest, nil
}

// AppendRequest writes a request.
func AppendRequest(b []byte, r Request) []byte {
	var value [4 + parameterHeader + 16]byte
	return AppendParameter(b, r.Type, AppendAddress(binary.BigEndian.AppendUint32(value[:0], r.Correlation), r.Address))
}

// ASCONFAck answers an ASCONF (RFC 5061 section 4.1.2):
//
//	| serial (4) | answers |
type ASCONFAck struct {
	Serial  uint32
	Answers []byte // for [NextAnswer]; what is not answered has succeeded, up to the first failure
}

// ParseASCONFAck reads an ASCONF-ACK as far as its answers.
func ParseASCONFAck(body []byte) (a ASCONFAck, err error) {
	if len(body) < 4 {
		return a, ErrLength
	}
	return ASCONFAck{binary.BigEndian.Uint32(body), body[4:]}, nil
}

// Append writes the chunk.
func (a *ASCONFAck) Append(b []byte) []byte {
	b, at := open(b, TypeASCONFAck, 0)
	return closeList(append(binary.BigEndian.AppendUint32(b, a.Serial), a.Answers...), at, 4)
}

// Answer is that to one request.
type Answer struct {
	Correlation uint32
	Failed      bool
	Causes      []byte // of a failure, for [NextCause]
}

// NextAnswer cuts the first answer off a list. known is false of one of another type.
func NextAnswer(list []byte) (a Answer, known bool, rest []byte, err error) {
	p, rest, err := NextParameter(list)
	if err != nil {
		return a, false, nil, err
	}
	if p.Type != ParamErrorIndication && p.Type != ParamSuccess {
		return a, false, rest, nil
	}
	if len(p.Value) < 4 {
		return a, true, nil, ErrLength
	}
	a = Answer{Correlation: binary.BigEndian.Uint32(p.Value), Failed: p.Type == ParamErrorIndication}
	if a.Failed {
		a.Causes = p.Value[4:]
	}
	return a, true, rest, nil
}

// AppendAnswer writes an answer.
func AppendAnswer(b []byte, a Answer) []byte {
	value := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(a.Causes)), a.Correlation)
	if a.Failed {
		return AppendParameter(b, ParamErrorIndication, append(value, a.Causes...))
	}
	return AppendParameter(b, ParamSuccess, value)
}
