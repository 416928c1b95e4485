// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// sample is a message as values and as octets that were written by hand, element by
// element, and what tshark reads in them.
type sample struct {
	name    string
	header  Header
	message Message // nil: a user packet, or a message without a type of its own
	wire    []string
	tshark  map[string]string
}

// port is the one that the datagram goes to.
func (s *sample) port() uint16 {
	switch {
	case s.header.Version == V0:
		return PortV0
	case s.header.Type == TypeGPDU || s.header.Type == TypeEndMarker || s.header.Type == TypeErrorIndication:
		return PortUser
	}
	return PortControl
}

// octets returns the datagram; LLLL in it is the length that a header counts.
func (s *sample) octets(t testing.TB) []byte {
	b := testutil.Unhex(t, strings.ReplaceAll(strings.Join(s.wire, ""), "LLLL", "0000"))
	if len(b) < 8 {
		t.Fatalf("%s: %d octets are no header", s.name, len(b))
	}
	counted := len(b) - 8
	if s.header.Version == V0 {
		counted = len(b) - 20
	}
	binary.BigEndian.PutUint16(b[2:], uint16(counted))
	return b
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func mustQoS(text string) QoS {
	q, ok := ParseQoS(must(hex.DecodeString(strings.ReplaceAll(text, " ", ""))))
	if !ok {
		panic("no profile: " + text)
	}
	return q
}

func mustPCO(text string) PCO {
	p, ok := ParsePCO(must(hex.DecodeString(strings.ReplaceAll(text, " ", ""))))
	if !ok {
		panic("no options: " + text)
	}
	return p
}

var (
	sampleIMSI   = must(ParseIMSI("240010123456789"))
	sampleMSISDN = must(ParseMSISDN("46702123456"))
	sampleIMEI   = must(ParseIMEI("3512340012345678"))
	sampleAPN    = must(ParseAPN("inet6.example"))
	samplePLMN   = must(MakePLMN("240", "01"))
	sampleTID    = TID{0x42, 0x00, 0x01, 0x21, 0x43, 0x65, 0x87, 0x59}
	sampleQoS    = mustQoS("01 0b921f 71964068 7404 1f48")
	sampleSGSN   = netip.MustParseAddr("192.0.2.1")
	sampleGGSN   = netip.MustParseAddr("198.51.100.2")
	sampleGGSN6  = netip.MustParseAddr("2001:db8:9::2")
	sampleUE     = netip.MustParseAddr("203.0.113.5")
	sampleUE6    = netip.MustParseAddr("2001:db8:6:1:1234:5678:9abc:def0")
	private      = Some(PrivateExtension{Enterprise: 10415, Value: []byte{1, 2}})
)

const (
	wirePrivate = "ff 0004 28af 0102"
	wirePCO     = "84 0011 80 8021 0a 01 01 000a 81 06 00000000 0003 00"
)

var samplePCO = mustPCO("80 8021 0a 01 01 000a 81 06 00000000 0003 00")

func v1(t MessageType, teid uint32, sequence uint16) Header {
	return Header{Version: V1, Type: t, HasSequence: true, Sequence: sequence, TEID: teid}
}

func v0(t MessageType, label, sequence uint16, tid TID) Header {
	return Header{Version: V0, Type: t, HasSequence: true, Sequence: sequence, FlowLabel: label, TID: tid}
}

// ipv4Packet is what a user sends: an ICMP echo request from 203.0.113.5.
const ipv4Packet = "45000020 00010000 4001 0000 cb007105 c0000201 0800 f7fe 0001 0000 00000000"

func samples() []sample {
	var all []sample
	all = append(all, pathSamples()...)
	all = append(all, createSamples()...)
	all = append(all, updateSamples()...)
	all = append(all, deleteSamples()...)
	all = append(all, otherSamples()...)
	return append(all, userSamples()...)
}

func pathSamples() []sample {
	return []sample{
		{
			name: "echo request, version 0", header: v0(TypeEchoRequest, 0, 7, TID{}), message: &EchoRequest{},
			wire:   []string{"1e 01 LLLL 0007 0000 ff ffffff 0000000000000000"},
			tshark: map[string]string{"gtp.message": "0x01", "gtp.seq_number": "0x0007", "gtp.flow_label": "0x0000"},
		}, {
			name: "echo request, version 1", header: v1(TypeEchoRequest, 0, 7), message: &EchoRequest{Private: private},
			wire:   []string{"32 01 LLLL 00000000 0007 00 00", wirePrivate},
			tshark: map[string]string{"gtp.message": "0x01", "gtp.seq_number": "0x0007", "gtp.teid": "0x00000000", "gtp.ext_id": "10415"},
		}, {
			name: "echo response, version 0", header: v0(TypeEchoResponse, 0, 7, TID{}), message: &EchoResponse{Recovery: 9},
			wire:   []string{"1e 02 LLLL 0007 0000 ff ffffff 0000000000000000", "0e 09"},
			tshark: map[string]string{"gtp.recovery": "9"},
		}, {
			name: "echo response, version 1", header: v1(TypeEchoResponse, 0, 7), message: &EchoResponse{Recovery: 255, Private: private},
			wire:   []string{"32 02 LLLL 00000000 0007 00 00", "0e ff", wirePrivate},
			tshark: map[string]string{"gtp.recovery": "255"},
		}, {
			name: "version not supported, by version 0", header: v0(TypeVersionNotSupported, 0, 8, TID{}), message: &VersionNotSupported{},
			wire:   []string{"1e 03 LLLL 0008 0000 ff ffffff 0000000000000000"},
			tshark: map[string]string{"gtp.message": "0x03", "gtp.flags.version": "0"},
		}, {
			name: "version not supported, by version 1", header: v1(TypeVersionNotSupported, 0, 8), message: &VersionNotSupported{},
			wire:   []string{"32 03 LLLL 00000000 0008 00 00"},
			tshark: map[string]string{"gtp.message": "0x03", "gtp.flags.version": "1"},
		}, {
			name: "supported extension headers", header: v1(TypeSupportedExtensions, 0, 3), message: &SupportedExtensions{List: []byte{0xc0, 0x40}},
			wire:   []string{"32 1f LLLL 00000000 0003 00 00", "8d 02 c040"},
			tshark: map[string]string{"gtp.num_ext_hdr_types": "2", "gtp.ext_hdr_type": "192,64"},
		}, {
			name: "end marker", header: Header{Version: V1, Type: TypeEndMarker, TEID: 0x01020304}, message: &EndMarker{Private: private},
			wire:   []string{"30 fe LLLL 01020304", wirePrivate},
			tshark: map[string]string{"gtp.message": "0xfe", "gtp.teid": "0x01020304"},
		},
	}
}

func otherSamples() []sample {
	return []sample{
		{
			name: "initiate request", header: v1(TypeInitiateRequest, 0x21222324, 11),
			message: &InitiateRequest{
				LinkedNSAPI: 5, PCO: Some(samplePCO), QoS: sampleQoS, TFT: Some(sampleTFTOctets), CorrelationID: 7,
				EvolvedARP: Some(MakeEvolvedARP(3, true, true)), Private: private,
			},
			wire: []string{
				"32 16 LLLL 21222324 000b 00 00", "14 05", wirePCO, "87 000c 01 0b921f 71964068 7404 1f48",
				"89 0012", hex.EncodeToString(sampleTFTOctets), "b7 0001 07", "bf 0001 0c", wirePrivate,
			},
			tshark: map[string]string{"gtp.nsapi": "5", "gtp.correlation_id": "7"},
		}, {
			name: "initiate response", header: v1(TypeInitiateResponse, 0x41424344, 11),
			message: &InitiateResponse{Cause: CauseAccepted, PCO: Some(samplePCO), Private: private},
			wire:    []string{"32 17 LLLL 41424344 000b 00 00", "01 80", wirePCO, wirePrivate},
			tshark:  map[string]string{"gtp.cause": "128"},
		}, {
			name: "error indication, version 0", header: v0(TypeErrorIndication, 0x3132, 0, sampleTID), message: &ErrorIndication{},
			wire:   []string{"1e 1a LLLL 0000 3132 ff ffffff 4200012143658759"},
			tshark: map[string]string{"gtp.message": "0x1a"},
		}, {
			name: "error indication, version 1", header: v1(TypeErrorIndication, 0, 0), message: &ErrorIndication{TEID: 0x31323334, Address: sampleGGSN, Private: private},
			wire:   []string{"32 1a LLLL 00000000 0000 00 00", "10 31323334", "85 0004 c6336402", wirePrivate},
			tshark: map[string]string{"gtp.teid_data": "0x31323334", "gtp.gsn_ipv4": "198.51.100.2"},
		}, {
			name: "error indication with the port of the packet", header: func() Header {
				h := v1(TypeErrorIndication, 0, 0)
				h.Extensions, _ = MakeExtensions(nil, Extension{ExtensionUDPPort, []byte{0xc0, 0x01}})
				return h
			}(),
			message: &ErrorIndication{TEID: 1, Address: sampleGGSN6},
			wire:    []string{"36 1a LLLL 00000000 0000 00 40", "01 c001 00", "10 00000001", "85 0010 20010db8000900000000000000000002"},
			tshark:  map[string]string{"gtp.ext_hdr.udp_port": "49153", "gtp.gsn_ipv6": "2001:db8:9::2"},
		}, {
			name: "PDU notification request, version 0", header: v0(TypePDUNotificationRequest, 0, 12, sampleTID),
			message: &PDUNotificationRequest{EndUserAddress: EndUserAddress{Type: PDPTypeIPv4, IPv4: sampleUE}},
			wire:    []string{"1e 1b LLLL 000c 0000 ff ffffff 4200012143658759", "80 0006 f121 cb007105"},
			tshark:  map[string]string{"gtp.user_ipv4": "203.0.113.5"},
		}, {
			name: "PDU notification request, version 1", header: v1(TypePDUNotificationRequest, 0, 12),
			message: &PDUNotificationRequest{
				IMSI: sampleIMSI, TEIDControl: 0x41424344, EndUserAddress: EndUserAddress{Type: PDPTypeIPv4, IPv4: sampleUE}, APN: sampleAPN,
				PCO: Some(samplePCO), AddressControl: sampleGGSN, Private: private,
			},
			wire: []string{
				"32 1b LLLL 00000000 000c 00 00", "02 42000121436587f9", "11 41424344", "80 0006 f121 cb007105",
				"83 000e 05 696e657436 07 6578616d706c65", wirePCO, "85 0004 c6336402", wirePrivate,
			},
			tshark: map[string]string{"e212.imsi": "240010123456789", "gtp.teid_cp": "0x41424344", "gtp.apn": "inet6.example"},
		}, {
			name: "PDU notification response", header: v1(TypePDUNotificationResponse, 0x41424344, 12), message: &PDUNotificationResponse{Cause: CauseAccepted, Private: private},
			wire:   []string{"32 1c LLLL 41424344 000c 00 00", "01 80", wirePrivate},
			tshark: map[string]string{"gtp.cause": "128"},
		}, {
			name: "PDU notification reject request, version 0", header: v0(TypePDUNotificationRejectRequest, 0, 13, sampleTID),
			message: &PDUNotificationRejectRequest{Cause: CauseMSNotGPRSResponding, EndUserAddress: EndUserAddress{Type: PDPTypeIPv4, IPv4: sampleUE}},
			wire:    []string{"1e 1d LLLL 000d 0000 ff ffffff 4200012143658759", "01 05", "80 0006 f121 cb007105"},
			tshark:  map[string]string{"gtp.cause": "5"},
		}, {
			name: "PDU notification reject request, version 1", header: v1(TypePDUNotificationRejectRequest, 0x41424344, 13),
			message: &PDUNotificationRejectRequest{
				Cause: CauseMSRefusesRequest, TEIDControl: 0x41424344, EndUserAddress: EndUserAddress{Type: PDPTypeIPv4, IPv4: sampleUE}, APN: sampleAPN,
				PCO: Some(samplePCO), Private: private,
			},
			wire: []string{
				"32 1d LLLL 41424344 000d 00 00", "01 04", "11 41424344", "80 0006 f121 cb007105",
				"83 000e 05 696e657436 07 6578616d706c65", wirePCO, wirePrivate,
			},
			tshark: map[string]string{"gtp.cause": "4", "gtp.teid_cp": "0x41424344"},
		}, {
			name: "PDU notification reject response", header: v1(TypePDUNotificationRejectResponse, 0x21222324, 13),
			message: &PDUNotificationRejectResponse{Cause: CauseAccepted},
			wire:    []string{"32 1e LLLL 21222324 000d 00 00", "01 80"},
			tshark:  map[string]string{"gtp.cause": "128"},
		}, {
			name: "MS info change notification request", header: v1(TypeInfoChangeRequest, 0x41424344, 14),
			message: &InfoChangeRequest{
				IMSI: Some(sampleIMSI), LinkedNSAPI: Some[uint8](5), RATType: RATHSPA,
				Location: Some(Location{Kind: LocationCell, PLMN: samplePLMN, LAC: 1, Code: 2}), IMEI: Some(sampleIMEI), ExtendedFlags: Some[uint8](0),
				UserCSG: Some([]byte{0x42, 0xf0, 0x10, 1, 2, 3, 4, 0x41}), Private: private,
			},
			wire: []string{
				"32 80 LLLL 41424344 000e 00 00", "02 42000121436587f9", "14 05", "97 0001 05", "98 0008 00 42f010 0001 0002",
				"9a 0008 5321430021436587", "c1 0001 00", "c2 0008 42f010 01020304 41", wirePrivate,
			},
			tshark: map[string]string{"gtp.message": "0x80", "gtp.ext_rat_type": "5", "gtp.cgi_ci": "2"},
		}, {
			name: "MS info change notification response", header: v1(TypeInfoChangeResponse, 0x21222324, 14),
			message: &InfoChangeResponse{
				Cause: CauseAccepted, IMSI: Some(sampleIMSI), LinkedNSAPI: Some[uint8](5), IMEI: Some(sampleIMEI),
				InfoChangeAction: Some(InfoChangeRAI), CSGReporting: Some[uint8](1), Private: private,
			},
			wire: []string{
				"32 81 LLLL 21222324 000e 00 00", "01 80", "02 42000121436587f9", "14 05", "9a 0008 5321430021436587",
				"b5 0001 02", "c3 0001 01", wirePrivate,
			},
			tshark: map[string]string{"gtp.cause": "128", "gtp.ms_inf_chg_rep_act": "2"},
		},
	}
}

func userSamples() []sample {
	plain := Header{Version: V1, Type: TypeGPDU, TEID: 0x31323334}
	sequence, number, both := plain, plain, plain
	sequence.HasSequence, sequence.Sequence = true, 0x0a0b
	number.HasNPDU, number.NPDU = true, 0x0c
	both.HasSequence, both.Sequence, both.HasNPDU, both.NPDU = true, 0x0a0b, true, 0x0c
	extended, chain := plain, both
	extended.Extensions, _ = MakeExtensions(nil, Extension{ExtensionPDCP, []byte{0x12, 0x34}})
	chain.Extensions, _ = MakeExtensions(nil, Extension{ExtensionServiceClass, []byte{1, 0}}, Extension{ExtensionPDCP, []byte{0x12, 0x34}})
	packetV0, numberV0 := v0(TypeGPDU, 0x3132, 0x0a0b, sampleTID), v0(TypeGPDU, 0x3132, 0x0a0b, sampleTID)
	numberV0.HasNPDU, numberV0.NPDU = true, 0x0c
	all := []sample{
		{
			name: "G-PDU", header: plain, wire: []string{"30 ff LLLL 31323334", ipv4Packet},
			tshark: map[string]string{"gtp.teid": "0x31323334"},
		}, {
			name: "G-PDU with S", header: sequence, wire: []string{"32 ff LLLL 31323334 0a0b 00 00", ipv4Packet},
			tshark: map[string]string{"gtp.seq_number": "0x0a0b", "gtp.npdu_number": ""},
		}, {
			name: "G-PDU with PN", header: number, wire: []string{"31 ff LLLL 31323334 0000 0c 00", ipv4Packet},
			tshark: map[string]string{"gtp.seq_number": "", "gtp.npdu_number": "0x0c"},
		}, {
			name: "G-PDU with E", header: extended, wire: []string{"34 ff LLLL 31323334 0000 00 c0", "01 1234 00", ipv4Packet},
			tshark: map[string]string{"gtp.seq_number": "", "gtp.ext_hdr.next": "0xc0,0x00", "gtp.ext_hdr.pdcp_sn": "4660"},
		}, {
			name: "G-PDU with S and PN", header: both, wire: []string{"33 ff LLLL 31323334 0a0b 0c 00", ipv4Packet},
			tshark: map[string]string{"gtp.seq_number": "0x0a0b", "gtp.npdu_number": "0x0c"},
		}, {
			name: "G-PDU with E, S and PN, two extension headers", header: chain,
			wire:   []string{"37 ff LLLL 31323334 0a0b 0c 20", "01 0100 c0", "01 1234 00", ipv4Packet},
			tshark: map[string]string{"gtp.ext_hdr.next": "0x20,0xc0,0x00"},
		}, {
			name: "T-PDU, version 0", header: packetV0, wire: []string{"1e ff LLLL 0a0b 3132 ff ffffff 4200012143658759", ipv4Packet},
			tshark: map[string]string{"gtp.flow_label": "0x3132", "gtp.flags.snn": "0"},
		}, {
			name: "T-PDU with an N-PDU number, version 0", header: numberV0, wire: []string{"1f ff LLLL 0a0b 3132 0c ffffff 4200012143658759", ipv4Packet},
			tshark: map[string]string{"gtp.flags.snn": "1", "gtp.sndcp_number": "0x0c"},
		},
	}
	for i := range all {
		all[i].tshark["ip.src"] = "198.51.100.2,203.0.113.5"
	}
	return all
}
