// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package chunk

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"
)

// initHeader is the size of what stands in front of INIT's parameters, the chunk's header not included.
const initHeader = 16

// InitSize is that of an INIT or an INIT ACK without parameters, the chunk's header included.
const InitSize = chunkHeader + initHeader

// RandomSize is the size of the random number that keys are made of (RFC 4895 section 3.1), in octets.
const RandomSize = 32

// Types of addresses in a list of those that an end can use (RFC 9260 section 3.3.2.1.6).
const (
	AddressIPv4 = uint16(ParamIPv4)
	AddressIPv6 = uint16(ParamIPv6)
)

// Init is an INIT or an INIT ACK (RFC 9260 sections 3.3.2 and 3.3.3):
//
//	| tag (4) | receiver window (4) | streams out (2) | streams in, at most (2) | first TSN (4) | parameters |
type Init struct {
	Tag     uint32
	Window  uint32 // octets
	Out, In uint16 // streams
	TSN     uint32
	Options
}

// Options are what parameters of a set-up say.
type Options struct {
	Addresses     []netip.Addr
	AddressTypes  []uint16 // that the sender can use; nil: all
	Cookie        []byte   // of an INIT ACK
	Preserve      time.Duration
	Extensions    []Type // chunks that the sender supports beyond RFC 9260
	ForwardTSN    bool
	Random        []byte   // RFC 4895
	Chunks        []Type   // that are to be authenticated
	HMACs         []uint16 // in the order of the sender's preference
	Adaptation    uint32
	HasAdaptation bool
	HostName      bool // an address by name, which is refused (RFC 9260 section 3.3.2.1.5)
	// Unknown are parameters that the sender wants to be told of, whole. What stood behind one that also
	// ends the list was not read.
	Unknown [][]byte
	// Unrecognized are those of ours that the sender of an INIT ACK did not know, whole.
	Unrecognized [][]byte
}

// ParseInit reads an INIT or an INIT ACK.
func ParseInit(body []byte) (i Init, err error) {
	if len(body) < initHeader {
		return i, ErrLength
	}
	i = Init{
		Tag: binary.BigEndian.Uint32(body), Window: binary.BigEndian.Uint32(body[4:]),
		Out: binary.BigEndian.Uint16(body[8:]), In: binary.BigEndian.Uint16(body[10:]), TSN: binary.BigEndian.Uint32(body[12:]),
	}
	return i, i.Options.parse(body[initHeader:])
}

// parse reads parameters until there are no more, or until one that is not known ends the list.
func (o *Options) parse(list []byte) error {
	for len(list) > 0 {
		p, rest, err := NextParameter(list)
		if err != nil {
			return err
		}
		known, err := o.take(p)
		if err != nil {
			return err
		}
		if !known {
			if p.Type.Reported() {
				o.Unknown = append(o.Unknown, p.Whole)
			}
			if !p.Type.Skipped() {
				return nil
			}
		}
		list = rest
	}
	return nil
}

// take reads a parameter; known is false of one of another type.
func (o *Options) take(p Parameter) (known bool, err error) {
	switch p.Type {
	case ParamIPv4, ParamIPv6:
		a, ok := p.Address()
		if !ok {
			return true, ErrLength
		}
		o.Addresses = append(o.Addresses, a)
	case ParamAddressTypes:
		o.AddressTypes, err = numbers(p.Value)
	case ParamCookie:
		o.Cookie = p.Value
	case ParamCookiePreservative:
		var ms uint32
		ms, err = number(p.Value)
		o.Preserve = time.Duration(ms) * time.Millisecond
	case ParamHostName:
		o.HostName = true
	case ParamExtensions:
		o.Extensions = types(p.Value)
	case ParamForwardTSN:
		o.ForwardTSN = true
	case ParamRandom:
		o.Random = p.Value
	case ParamChunks:
		o.Chunks = types(p.Value)
	case ParamHMACs:
		o.HMACs, err = numbers(p.Value)
	case ParamAdaptation:
		o.HasAdaptation = true
		o.Adaptation, err = number(p.Value)
	case ParamUnrecognized:
		o.Unrecognized = append(o.Unrecognized, p.Value)
	default:
		return false, nil
	}
	return true, err
}

// number reads a value of 4 octets.
func number(value []byte) (uint32, error) {
	if len(value) != 4 {
		return 0, ErrLength
	}
	return binary.BigEndian.Uint32(value), nil
}

// numbers reads a list of values of 2 octets.
func numbers(value []byte) (list []uint16, err error) {
	if len(value)%2 != 0 {
		return nil, ErrLength
	}
	for one := range slices.Chunk(value, 2) {
		list = append(list, binary.BigEndian.Uint16(one))
	}
	return list, nil
}

// types reads a list of types of chunks.
func types(value []byte) []Type {
	list := make([]Type, 0, len(value)) // an empty one is there, too
	for _, one := range value {
		list = append(list, Type(one))
	}
	return list
}

// Append writes the chunk, of type INIT or INIT ACK. What is in Unknown goes back to its sender.
func (i *Init) Append(b []byte, t Type) []byte {
	b, at := open(b, t, 0)
	b = binary.BigEndian.AppendUint32(b, i.Tag)
	b = binary.BigEndian.AppendUint32(b, i.Window)
	b = binary.BigEndian.AppendUint16(b, i.Out)
	b = binary.BigEndian.AppendUint16(b, i.In)
	b = binary.BigEndian.AppendUint32(b, i.TSN)
	return closeList(i.Options.append(b), at, initHeader)
}

// append writes parameters.
func (o *Options) append(b []byte) []byte {
	for _, a := range o.Addresses {
		b = AppendAddress(b, a)
	}
	if o.AddressTypes != nil {
		b = AppendParameter(b, ParamAddressTypes, octets(o.AddressTypes))
	}
	if o.Cookie != nil {
		b = AppendParameter(b, ParamCookie, o.Cookie)
	}
	if o.Preserve > 0 {
		b = AppendParameter(b, ParamCookiePreservative, binary.BigEndian.AppendUint32(nil, uint32(o.Preserve.Milliseconds())))
	}
	if o.ForwardTSN {
		b = AppendParameter(b, ParamForwardTSN, nil)
	}
	if o.Extensions != nil {
		b = AppendParameter(b, ParamExtensions, typeOctets(o.Extensions))
	}
	if o.Random != nil {
		b = AppendParameter(b, ParamRandom, o.Random)
	}
	if o.Chunks != nil {
		b = AppendParameter(b, ParamChunks, typeOctets(o.Chunks))
	}
	if o.HMACs != nil {
		b = AppendParameter(b, ParamHMACs, octets(o.HMACs))
	}
	if o.HasAdaptation {
		b = AppendParameter(b, ParamAdaptation, binary.BigEndian.AppendUint32(nil, o.Adaptation))
	}
	for _, whole := range o.Unknown {
		b = AppendParameter(b, ParamUnrecognized, whole)
	}
	return b
}

func octets(list []uint16) (b []byte) {
	for _, n := range list {
		b = binary.BigEndian.AppendUint16(b, n)
	}
	return b
}

func typeOctets(list []Type) (b []byte) {
	for _, t := range list {
		b = append(b, byte(t))
	}
	return b
}
