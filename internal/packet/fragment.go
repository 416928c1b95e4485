// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

import "encoding/binary"

// IPv4HeaderLen is the length of an IPv4 header without options (RFC 791 section 3.1).
const IPv4HeaderLen = 20

// Flags of an IPv4 header, in the word that they share with the fragment offset.
const (
	DontFragment  = 0x4000
	MoreFragments = 0x2000
	offsetMask    = 0x1fff
)

// Fragmentable reports whether a router may cut an IPv4 packet, whose header is whole.
func Fragmentable(p []byte) bool { return binary.BigEndian.Uint16(p[6:])&DontFragment == 0 }

// AppendFragment appends the fragment of at most limit octets, of which there are 68 at
// least, that begins at an offset in the payload of an IPv4 packet, and returns where the
// next begins: 0 when this was the last (RFC 791 section 3.2). The packet is whole, and may
// be a fragment itself; where it has the flag that forbids this, the fragment has it not. A
// wrong header checksum stays wrong.
func AppendFragment(b, p []byte, at, limit int) (fragment []byte, next int) {
	start, head := len(b), int(p[0]&0xf)*4
	b = append(b, p[:IPv4HeaderLen]...)
	if at == 0 {
		b = append(b, p[IPv4HeaderLen:head]...)
	} else {
		b = appendCopied(b, p[IPv4HeaderLen:head])
	}
	header := b[start:]
	word := binary.BigEndian.Uint16(p[6:])
	rest, flags := p[head+at:], word&offsetMask+uint16(at/8)|word&MoreFragments
	if room := limit - len(header); len(rest) > room {
		rest, flags = rest[:room&^7], flags|MoreFragments
		next = at + len(rest)
	}
	header[0] = 4<<4 | byte(len(header)/4)
	binary.BigEndian.PutUint16(header[2:], uint16(len(header)+len(rest)))
	binary.BigEndian.PutUint16(header[6:], flags)
	header[10], header[11] = 0, 0
	check := ^Fold(Sum(0, header))
	if was := Fold(Sum(0, p[:head])); was != 0xffff { // the sum of a right one
		check = Fold(uint64(check) + uint64(was))
	}
	binary.BigEndian.PutUint16(header[10:], check)
	return append(b, rest...), next
}

// appendCopied appends the options that all fragments have, which say so in their first
// bit, up to the next multiple of four octets (RFC 791 section 3.1). From one that cannot
// be read on there are none.
func appendCopied(b, options []byte) []byte {
	const end, nop, copied = 0, 1, 0x80
	start := len(b)
	for len(options) > 0 && options[0] != end {
		n := 1
		if options[0] != nop {
			if len(options) < 2 || options[1] < 2 || int(options[1]) > len(options) {
				break
			}
			n = int(options[1])
		}
		if options[0]&copied != 0 {
			b = append(b, options[:n]...)
		}
		options = options[n:]
	}
	for (len(b)-start)%4 != 0 {
		b = append(b, end)
	}
	return b
}
