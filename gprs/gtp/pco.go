// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import (
	"encoding/binary"
	"iter"
)

// PCO are protocol configuration options as elements hold them (TS 29.060 section
// 7.7.31, TS 24.008 section 10.5.6.3): an octet with the protocol, then containers. It
// aliases the datagram it was read from.
//
//	| 1 0000 protocol (3) | identifier (2) | length (1) | value | ...
type PCO []byte

// pcoFirst is the first octet: extension, spare, protocol PPP for IP.
const pcoFirst = 0x80

// MaxPCO is how long options should be at most, so that old terminals read them.
const MaxPCO = 253

// Container is an identifier of [PCO].
type Container uint16

// Containers. Those from 0x8000 on are packets of protocols of PPP.
const (
	ContainerPCSCF6           Container = 0x0001
	ContainerIMSignalling     Container = 0x0002
	ContainerDNS6             Container = 0x0003
	ContainerPolicyRejection  Container = 0x0004
	ContainerBearerControl    Container = 0x0005
	ContainerAddressNAS       Container = 0x000a
	ContainerAddressDHCP      Container = 0x000b
	ContainerPCSCF4           Container = 0x000c
	ContainerDNS4             Container = 0x000d
	ContainerMSISDN           Container = 0x000e
	ContainerMTU4             Container = 0x0010 // of the IPv4 link
	ContainerMTUNonIP         Container = 0x0015
	ContainerRateControl      Container = 0x0016
	ContainerRateControlExtra Container = 0x0019
	ContainerDataOff          Container = 0x0017
	ContainerReliableData     Container = 0x0018
	ContainerPDUSession       Container = 0x001a
	ContainerIPCP             Container = 0x8021
	ContainerPAP              Container = 0xc023
	ContainerCHAP             Container = 0xc223
)

// ParsePCO reads the value of an element. ok is false if a container ends beyond it.
func ParsePCO(v []byte) (p PCO, ok bool) {
	if len(v) < 1 || v[0]&pcoFirst == 0 {
		return nil, false
	}
	for b := v[1:]; len(b) > 0; b = b[3+int(b[2]):] {
		if len(b) < 3 || len(b) < 3+int(b[2]) {
			return nil, false
		}
	}
	return PCO(v), true
}

// All returns the containers in their order.
func (p PCO) All() iter.Seq2[Container, []byte] {
	return func(yield func(Container, []byte) bool) {
		if len(p) == 0 {
			return
		}
		for b := p[1:]; len(b) > 0; {
			end := 3 + int(b[2])
			if !yield(Container(binary.BigEndian.Uint16(b)), b[3:end:end]) {
				return
			}
			b = b[end:]
		}
	}
}

// NewPCO begins options in the memory of b, which is overwritten.
func NewPCO(b []byte) PCO { return append(PCO(b[:0]), pcoFirst) }

// Add appends a container. ok is false, and p is as it was, if the options would exceed
// [MaxPCO].
func (p PCO) Add(c Container, value []byte) (PCO, bool) {
	if len(p)+3+len(value) > MaxPCO {
		return p, false
	}
	p = binary.BigEndian.AppendUint16(p, uint16(c))
	return append(append(p, byte(len(value))), value...), true
}

// HidePassword overwrites the passwords of PAP in a message, or in the beginning of one: what is
// shown of requests to people. It looks for what has the form of a container with one.
func HidePassword(b []byte) {
	for at := range b {
		if len(b)-at < 3+pppHeader+1 || Container(binary.BigEndian.Uint16(b[at:])) != ContainerPAP || PPPCode(b[at+3]) != PAPRequest {
			continue
		}
		end := min(at+3+int(b[at+2]), len(b))
		if user := at + 3 + pppHeader; user < end {
			clear(b[min(user+2+int(b[user]), end):end])
		}
	}
}

var pco = format[PCO]{
	parse:  ParsePCO,
	append: func(b []byte, p PCO) []byte { return append(b, p...) },
}
