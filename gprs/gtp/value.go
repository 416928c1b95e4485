// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import "encoding/binary"

// SelectionMode says who chose the APN (TS 29.060 section 7.7.12).
type SelectionMode uint8

// Selection modes.
const (
	SelectionVerified SelectionMode = 0 // subscribed, verified
	SelectionMS       SelectionMode = 1 // provided by the MS, not verified
	SelectionNetwork  SelectionMode = 2 // provided by the network, not verified
)

// RATType is a radio access technology (TS 29.060 section 7.7.50).
type RATType uint8

// Radio access technologies.
const (
	RATUTRAN   RATType = 1
	RATGERAN   RATType = 2
	RATWLAN    RATType = 3
	RATGAN     RATType = 4
	RATHSPA    RATType = 5 // HSPA evolution
	RATEUTRAN  RATType = 6
	RATVirtual RATType = 7
	RATNBIoT   RATType = 8
)

// CommonFlags are bits of TS 29.060 section 7.7.48.
type CommonFlags uint8

// Bits of [CommonFlags].
const (
	FlagProhibitCompression CommonFlags = 0x01
	FlagMBMSService         CommonFlags = 0x02
	FlagRANProceduresReady  CommonFlags = 0x04
	FlagMBMSCounting        CommonFlags = 0x08
	FlagNoQoSNegotiation    CommonFlags = 0x10
	FlagNRSN                CommonFlags = 0x20 // network requested bearer control is supported
	FlagUpgradeQoS          CommonFlags = 0x40 // upgrade QoS supported
	FlagDualAddressBearer   CommonFlags = 0x80
)

// DirectTunnelFlags are bits of TS 29.060 section 7.7.81.
type DirectTunnelFlags uint8

// Bits of [DirectTunnelFlags].
const (
	FlagDirectTunnel    DirectTunnelFlags = 0x01
	FlagGPRSCSI         DirectTunnelFlags = 0x02
	FlagErrorIndication DirectTunnelFlags = 0x04
)

// BearerControlMode says who asks for secondary contexts (TS 29.060 section 7.7.83).
type BearerControlMode uint8

// Bearer control modes.
const (
	BearerControlMS      BearerControlMode = 0
	BearerControlNetwork BearerControlMode = 1 // MS and network
)

// InfoChangeAction says which changes an SGSN is to report (TS 29.060 section 7.7.80).
type InfoChangeAction uint8

// Actions.
const (
	InfoChangeStop InfoChangeAction = 0
	InfoChangeCell InfoChangeAction = 1 // CGI or SAI
	InfoChangeRAI  InfoChangeAction = 2
)

// EvolvedARP is an allocation and retention priority (TS 29.060 section 7.7.91).
type EvolvedARP uint8

// MakeEvolvedARP makes the priority of level 1 (highest) to 15. May it take resources
// from others (capable), and others from it (vulnerable)?
func MakeEvolvedARP(level uint8, capable, vulnerable bool) EvolvedARP {
	e := EvolvedARP(level & 0xf << 2)
	if !capable {
		e |= 0x40
	}
	if !vulnerable {
		e |= 0x01
	}
	return e
}

// Level returns the priority, 1 the highest.
func (e EvolvedARP) Level() uint8 { return uint8(e) >> 2 & 0xf }

// PreemptionCapable reports whether it may take resources from others: the bit means
// that it may not.
func (e EvolvedARP) PreemptionCapable() bool { return e&0x40 == 0 }

// PreemptionVulnerable reports whether others may take its resources.
func (e EvolvedARP) PreemptionVulnerable() bool { return e&0x01 == 0 }

// TimeZone is that of a user (TS 29.060 section 7.7.52): the octet of TS 23.040, and
// the adjustment for summer in hours.
type TimeZone struct {
	Octet  uint8
	Summer uint8
}

// QuarterHours returns the distance from universal time, the adjustment included (TS
// 23.040 section 9.2.3.11: digits swapped, the sign in bit 4 of the octet).
func (z TimeZone) QuarterHours() int {
	n := int(z.Octet&0x7)*10 + int(z.Octet>>4)
	if z.Octet&0x8 != 0 {
		n = -n
	}
	return n
}

// AMBR are the highest rates of all contexts of one user and APN that have no
// guaranteed rate, in kbit/s (TS 29.060 section 7.7.98).
type AMBR struct {
	Up, Down uint32
}

// PrivateExtension is what a company has agreed on with itself (TS 29.060 section
// 7.7.46).
type PrivateExtension struct {
	Enterprise uint16
	Value      []byte
}

// Formats of single octets.
var (
	cause             = octetOf[Cause]()
	rat               = octetOf[RATType]()
	commonFlags       = octetOf[CommonFlags]()
	directTunnelFlags = octetOf[DirectTunnelFlags]()
	evolvedARP        = octetOf[EvolvedARP]()
	infoChangeAction  = octetOf[InfoChangeAction]()
	bearerControlMode = octetOf[BearerControlMode]()
)

// Formats of octets of which only some bits count; the others are ones when sent.
var (
	selectionMode = format[SelectionMode]{
		parse: func(v []byte) (SelectionMode, bool) {
			// A value of 3 is not sent, and taken as 2.
			return min(SelectionMode(v[0]&0x3), SelectionNetwork), true
		},
		append: func(b []byte, m SelectionMode) []byte { return append(b, 0xfc|byte(m)) },
	}
	nsapi = format[uint8]{
		parse:  func(v []byte) (uint8, bool) { return v[0] & 0xf, true },
		append: func(b []byte, n uint8) []byte { return append(b, n&0xf) },
	}
	// flag is the format of a bit behind seven ones: reordering required, teardown.
	flag = format[bool]{
		parse: func(v []byte) (bool, bool) { return v[0]&1 != 0, true },
		append: func(b []byte, on bool) []byte {
			if on {
				return append(b, 0xff)
			}
			return append(b, 0xfe)
		},
	}
)

var (
	timeZone = format[TimeZone]{
		parse: func(v []byte) (z TimeZone, ok bool) {
			if len(v) < 2 {
				return z, false
			}
			return TimeZone{v[0], v[1] & 0x3}, true
		},
		append: func(b []byte, z TimeZone) []byte { return append(b, z.Octet, z.Summer&0x3) },
	}
	ambr = format[AMBR]{
		parse: func(v []byte) (a AMBR, ok bool) {
			if len(v) < 8 {
				return a, false
			}
			return AMBR{binary.BigEndian.Uint32(v), binary.BigEndian.Uint32(v[4:])}, true
		},
		append: func(b []byte, a AMBR) []byte {
			return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, a.Up), a.Down)
		},
	}
	privateExtension = format[PrivateExtension]{
		parse: func(v []byte) (p PrivateExtension, ok bool) {
			if len(v) < 2 {
				return p, false
			}
			return PrivateExtension{binary.BigEndian.Uint16(v), v[2:]}, true
		},
		append: func(b []byte, p PrivateExtension) []byte {
			return append(binary.BigEndian.AppendUint16(b, p.Enterprise), p.Value...)
		},
	}
	imsi = format[IMSI]{
		parse:  func(v []byte) (IMSI, bool) { return IMSI(v), IMSI(v).valid() },
		append: func(b []byte, m IMSI) []byte { return append(b, m[:]...) },
	}
	imei = format[IMEI]{
		parse: func(v []byte) (m IMEI, ok bool) {
			if len(v) < len(m) {
				return m, false
			}
			return IMEI(v), validBCD(v[:len(m)])
		},
		append: func(b []byte, m IMEI) []byte { return append(b, m[:]...) },
	}
	msisdn = format[MSISDN]{MSISDNOf, appendMSISDN}
)

// tunnel is the format of a TEID, or of the flow label that version 0 has in its place.
func tunnel(v Version) format[uint32] {
	if v == V0 {
		return format[uint32]{
			parse: func(v []byte) (uint32, bool) {
				label, ok := uint16s.parse(v)
				return uint32(label), ok
			},
			append: func(b []byte, label uint32) []byte {
				if label > 0xffff {
					return b // which is refused as too short
				}
				return binary.BigEndian.AppendUint16(b, uint16(label))
			},
		}
	}
	return uint32s
}
