// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import "iter"

// MaxExtensions is how many extension headers one datagram may have. The standard sets
// no limit; more than a few make no sense, and the work for a packet is to be bounded.
const MaxExtensions = 8

// ExtensionType is the type of an extension header (TS 29.060 section 6.1.1, TS 29.281
// section 5.2.1). Its upper two bits say who must understand it.
type ExtensionType uint8

// The extension headers that the standards name.
const (
	ExtensionNone              ExtensionType = 0x00
	ExtensionMBMSSupport       ExtensionType = 0x01
	ExtensionInfoChangeSupport ExtensionType = 0x02
	ExtensionLongPDCP          ExtensionType = 0x03
	ExtensionServiceClass      ExtensionType = 0x20
	ExtensionUDPPort           ExtensionType = 0x40 // goes with an Error Indication
	ExtensionRANContainer      ExtensionType = 0x81
	ExtensionLongPDCPRequired  ExtensionType = 0x82
	ExtensionXwRANContainer    ExtensionType = 0x83
	ExtensionNRRANContainer    ExtensionType = 0x84
	ExtensionPDUSession        ExtensionType = 0x85
	ExtensionPDCP              ExtensionType = 0xc0
	ExtensionSuspendRequest    ExtensionType = 0xc1
	ExtensionSuspendResponse   ExtensionType = 0xc2
)

// Known reports whether a standard names the type.
func (t ExtensionType) Known() bool {
	switch t {
	case ExtensionMBMSSupport, ExtensionInfoChangeSupport, ExtensionLongPDCP, ExtensionServiceClass, ExtensionUDPPort,
		ExtensionRANContainer, ExtensionLongPDCPRequired, ExtensionXwRANContainer, ExtensionNRRANContainer,
		ExtensionPDUSession, ExtensionPDCP, ExtensionSuspendRequest, ExtensionSuspendResponse:
		return true
	}
	return false
}

// RequiredAtEndPoint reports whether an end point that does not know the type must
// discard the datagram and answer with Supported Extension Headers Notification: the
// upper bits are 10 or 11 (TS 29.060 section 6.1.1).
func (t ExtensionType) RequiredAtEndPoint() bool { return t&0x80 != 0 }

// RequiredAtIntermediate reports whether the same holds of an intermediate node: the
// upper bits are 11.
func (t ExtensionType) RequiredAtIntermediate() bool { return t>>6 == 3 }

// DroppedAtIntermediate reports whether an intermediate node that does not know the
// type leaves the extension header out: the upper bits are 01.
func (t ExtensionType) DroppedAtIntermediate() bool { return t>>6 == 1 }

// Extension is one extension header. Its content is 2, 6, 10 octets and so on, since
// the whole is a multiple of 4.
type Extension struct {
	Type    ExtensionType
	Content []byte
}

// Extensions are the chain of extension headers of a datagram; the zero value has none.
// Each is
//
//	| length in units of 4 octets | content | type of the next |
type Extensions struct {
	first  ExtensionType
	octets []byte
}

// MakeExtensions makes a chain in the memory of b, which is overwritten. ok is false if
// there are too many, or one has content of a length that the format has not.
func MakeExtensions(b []byte, list ...Extension) (x Extensions, ok bool) {
	if len(list) > MaxExtensions {
		return Extensions{}, false
	}
	b = b[:0]
	for i, e := range list {
		units := (len(e.Content) + 2) / 4
		if e.Type == ExtensionNone || units == 0 || units > 255 || units*4 != len(e.Content)+2 {
			return Extensions{}, false
		}
		next := ExtensionNone
		if i+1 < len(list) {
			next = list[i+1].Type
		}
		b = append(b, byte(units))
		b = append(b, e.Content...)
		b = append(b, byte(next))
	}
	if len(list) == 0 {
		return Extensions{}, true
	}
	return Extensions{first: list[0].Type, octets: b}, true
}

// parseExtensions takes the chain off b.
func parseExtensions(first ExtensionType, b []byte) (x Extensions, rest []byte, fault Fault) {
	end, count := 0, 0
	for t := first; t != ExtensionNone; count++ {
		if count == MaxExtensions {
			return Extensions{}, nil, FaultExtensionCount
		}
		if end == len(b) || b[end] == 0 || end+int(b[end])*4 > len(b) {
			return Extensions{}, nil, FaultExtension
		}
		end += int(b[end]) * 4
		t = ExtensionType(b[end-1])
	}
	if count == 0 {
		return Extensions{}, b, 0
	}
	return Extensions{first: first, octets: b[:end:end]}, b[end:], 0
}

// Empty reports whether there is none.
func (x Extensions) Empty() bool { return x.first == ExtensionNone }

// All returns the extension headers in their order.
func (x Extensions) All() iter.Seq[Extension] {
	return func(yield func(Extension) bool) {
		b := x.octets
		for t := x.first; t != ExtensionNone; {
			n := int(b[0]) * 4
			if !yield(Extension{Type: t, Content: b[1 : n-1 : n-1]}) {
				return
			}
			t, b = ExtensionType(b[n-1]), b[n:]
		}
	}
}

// Find returns the first extension header of a type.
func (x Extensions) Find(t ExtensionType) (content []byte, ok bool) {
	for e := range x.All() {
		if e.Type == t {
			return e.Content, true
		}
	}
	return nil, false
}

// Uncomprehended returns the first extension header that no standard names and that an
// end point must understand. A datagram with one is discarded and answered with a
// [SupportedExtensions] message (TS 29.060 section 6.1.1).
func (x Extensions) Uncomprehended() (t ExtensionType, ok bool) {
	for e := range x.All() {
		if e.Type.RequiredAtEndPoint() && !e.Type.Known() {
			return e.Type, true
		}
	}
	return ExtensionNone, false
}
