// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/binary"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// The header of a G-PDU (TS 29.281 section 5.1, TS 09.60 section 6). A sample is cut off where the codec
// gprs/gtp wants whole datagrams.
const (
	portGTPU    = 2152
	portGTPv0   = 3386
	typeGPDU    = 255
	gtpVersion0 = 0<<5 | gtpProtocolType
	gtpVersion1 = 1<<5 | gtpProtocolType
	gtpKind     = 0xf0 // version and protocol type

	gtpProtocolType = 0x10
	gtpOptional     = 0x07 // any of E, S and PN: four more octets
	gtpExtension    = 0x04

	gtpLenV0       = 20
	gtpLenV1       = 8
	gtpOptionalLen = 4
	maxExtensions  = 8 // that are looked behind
)

// inside returns the header of the packet that a UDP datagram carries: in a G-PDU, or behind Teredo
// indications. Its first octet alone says little: text may begin as an IPv6 packet does. So it has to fit.
func (l *layer) inside(datagram []byte) (inner layer, ok bool) {
	b := datagram[packet.UDPHeaderLen:]
	room := int(binary.BigEndian.Uint16(datagram[4:])) - packet.UDPHeaderLen
	carried := behindGTP(b)
	if !l.ports || !l.hasPort(portGTPU) && !l.hasPort(portGTPv0) || carried == nil {
		if carried = behindIndications(b); len(carried) == 0 || carried[0]>>4 != 6 {
			return inner, false
		}
	}
	inner, _, ok = parseIP(carried)
	return inner, ok && inner.length <= room-(len(b)-len(carried))
}

func (l *layer) hasPort(n uint16) bool { return l.sport == n || l.dport == n }

// behindGTP returns what follows the header of a G-PDU of either version; nil: it is none.
func behindGTP(b []byte) []byte {
	if len(b) <= gtpLenV1 || b[1] != typeGPDU {
		return nil
	}
	switch b[0] & gtpKind {
	case gtpVersion0:
		return b[min(gtpLenV0, len(b)):]
	case gtpVersion1:
	default:
		return nil
	}
	flags, b := b[0], b[gtpLenV1:]
	if flags&gtpOptional == 0 {
		return b
	}
	if len(b) < gtpOptionalLen {
		return nil
	}
	next, b := b[gtpOptionalLen-1], b[gtpOptionalLen:]
	for range maxExtensions {
		if flags&gtpExtension == 0 || next == 0 {
			return b
		}
		if len(b) == 0 || b[0] == 0 || len(b) < int(b[0])*4 { // a length in units of four octets
			return nil
		}
		n := int(b[0]) * 4
		next, b = b[n-1], b[n:]
	}
	return nil
}
