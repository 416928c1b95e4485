// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	ie0 "github.com/wmnsk/go-gtp/gtpv0/ie"
	message0 "github.com/wmnsk/go-gtp/gtpv0/message"
	"github.com/wmnsk/go-gtp/gtpv1/ie"
	"github.com/wmnsk/go-gtp/gtpv1/message"
)

// FuzzDiffer reads any datagram by this package and by go-gtp 0.8.12. Where they
// differ, a comment says who is right.
func FuzzDiffer(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		fault := faultOf(err)
		if len(b) < headerLenV1 || fault == FaultVersion || fault == FaultProtocolType {
			return // go-gtp looks neither at the version nor at the protocol type
		}
		if h.Version == V1 && b[0]&flagExtension != 0 && len(b) >= offsetExtensions && b[offsetExtensions-1] == 0 {
			// E, and a next type of 0: there is no extension header (TS 29.281 section
			// 5.2.1). go-gtp reads one from the payload all the same.
			b = bytes.Clone(b)
			b[0] = b[0]&^flagExtension | flagSequence
			h.HasSequence, h.Sequence = true, binary.BigEndian.Uint16(b[headerLenV1:])
		}
		if h.Version == V0 {
			differHeaderV0(t, b, &h, fault)
		} else {
			differHeaderV1(t, b, &h, fault)
		}
		if fault == 0 && h.Type != TypeGPDU && h.Type.Known() {
			differElements(t, &h)
			differValues(t, b, &h)
		}
	})
}

func faultOf(err error) Fault {
	var r *Refusal
	if !errors.As(err, &r) {
		return 0
	}
	return r.Fault
}

func differHeaderV1(t *testing.T, b []byte, h *Header, fault Fault) {
	theirs, err := message.ParseHeader(b)
	switch {
	case fault == FaultLength || fault == FaultExtensionCount:
		// go-gtp takes a datagram longer than its length field, and any number of
		// extension headers. TS 29.060 section 11.1.2 wants a length that agrees; a
		// bound on the work for a packet is ours.
		return
	case (fault == 0) != (err == nil):
		t.Fatalf("%x: %v here, %v there", b, fault, err)
	case fault != 0:
		return
	}
	if theirs.Type != byte(h.Type) || theirs.TEID != h.TEID || theirs.SequenceNumber != h.Sequence || theirs.NPDUNumber != h.NPDU ||
		theirs.HasSequence() != h.HasSequence || theirs.HasNPDUNumber() != h.HasNPDU || !bytes.Equal(theirs.Payload, h.Payload) {
		t.Fatalf("%+v here, %v there", h, theirs)
	}
	ours := slices.Collect(h.Extensions.All())
	if len(ours) != len(theirs.ExtensionHeaders) {
		t.Fatalf("%d extension headers here, %d there", len(ours), len(theirs.ExtensionHeaders))
	}
	for i, e := range theirs.ExtensionHeaders {
		if e.Type != byte(ours[i].Type) || !bytes.Equal(e.Content, ours[i].Content) {
			t.Fatalf("%+v here, %v there", ours[i], e)
		}
	}
}

func differHeaderV0(t *testing.T, b []byte, h *Header, fault Fault) {
	theirs, err := message0.ParseHeader(b)
	if fault == FaultLength {
		return // go-gtp does not look at the length of version 0
	}
	if (fault == 0) != (err == nil) {
		t.Fatalf("%x: %v here, %v there", b, fault, err)
	}
	if fault != 0 {
		return
	}
	var tid [8]byte
	for i := range tid {
		tid[i] = byte(theirs.TID >> (56 - 8*i))
	}
	// go-gtp takes the N-PDU number from the spare octet behind it, which TS 09.60
	// section 6 fills with ones; it writes the number where we read it.
	if theirs.Type != byte(h.Type) || theirs.SequenceNumber != h.Sequence || theirs.FlowLabel != h.FlowLabel ||
		tid != h.TID || theirs.SndcpNumber != b[9] || !bytes.Equal(theirs.Payload, h.Payload) {
		t.Fatalf("%+v here, %v there", h, theirs)
	}
}

// field is an element as both decoders list it.
type field struct {
	kind  ElementType
	value []byte
}

func differElements(t *testing.T, h *Header) {
	_, err := ParseElements(h)
	if otherLengths(h) {
		return
	}
	theirs, theirErr := theirElements(h)
	switch faultOf(err) {
	case FaultElementUnknown:
		// go-gtp takes an element of unknown type below 128 to be empty and goes on; it
		// has no length, so what follows cannot be read (TS 29.060 section 11.1.9).
		return
	case FaultElementOrder:
		return // go-gtp takes elements in any order; TS 29.060 section 11.1.10 does not
	}
	if (err == nil) != (theirErr == nil) {
		t.Fatalf("version %d, %x: %v here, %v there", h.Version, h.Payload, err, theirErr)
	}
	if err != nil {
		return
	}
	var ours []field
	for kind, v := range (Elements{h.Version, h.Payload}).All() {
		ours = append(ours, field{kind, v})
	}
	if !slices.EqualFunc(ours, theirs, func(a, b field) bool { return a.kind == b.kind && bytes.Equal(a.value, b.value) }) {
		t.Fatalf("%x: %v here, %v there", h.Payload, ours, theirs)
	}
}

// otherLengths reports whether an element is there of which go-gtp has another length,
// so that what follows differs. TEID Data II of version 1 has an NSAPI before its TEID,
// 5 octets in all; go-gtp takes 4. That the packet
// transfer command has an octet it does not know.
func otherLengths(h *Header) bool {
	for b := h.Payload; len(b) > 0; {
		kind, _, rest, fault := nextElement(h.Version, b)
		if h.Version == V1 && kind == ElementTEIDDataII || kind == ElementPacketTransferCommand {
			return true
		}
		if fault != 0 {
			break
		}
		b = rest
	}
	return false
}

func theirElements(h *Header) (list []field, err error) {
	if h.Version == V0 {
		all, err := ie0.ParseMultiIEs(h.Payload)
		for _, e := range all {
			list = append(list, field{ElementType(e.Type), e.Payload})
		}
		return list, err
	}
	all, err := ie.ParseMultiIEs(h.Payload)
	for _, e := range all {
		list = append(list, field{ElementType(e.Type), e.Payload})
	}
	return list, err
}

// differValues compares what the fields of a context's creation mean.
func differValues(t *testing.T, b []byte, h *Header) {
	if h.Version != V1 {
		return
	}
	switch h.Type {
	case TypeCreateRequest:
		var m CreateRequest
		notes, err := new(Codec).Parse(h, &m)
		if err != nil || notes.Unexpected != 0 {
			return // of a repeated element, go-gtp takes the last, TS 29.060 section 11.1.12 the first
		}
		theirs, err := message.ParseCreatePDPContextRequest(b)
		if err != nil {
			t.Fatal(err)
		}
		differCreate(t, &m, theirs)
	case TypeErrorIndication:
		var m ErrorIndication
		notes, err := new(Codec).Parse(h, &m)
		if err != nil || notes.Unexpected != 0 {
			return
		}
		theirs, err := message.ParseErrorIndication(b)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "TEID", m.TEID)(theirs.TEIDDataI.TEID())
		same(t, "address", text(m.Address))(theirs.GTPUPeerAddress.GSNAddress())
	}
}

func differCreate(t *testing.T, m *CreateRequest, theirs *message.CreatePDPContextRequest) {
	if m.IMSI.Present {
		digits, err := theirs.IMSI.IMSI()
		same(t, "IMSI", m.IMSI.Value.String())(strings.TrimRight(digits, "f"), err)
	}
	if m.APN.Present && len(m.APN.Value) > 0 {
		var labels []string
		for a := m.APN.Value; len(a) > 0; a = a[1+a[0]:] {
			labels = append(labels, string(a[1:1+a[0]]))
		}
		same(t, "APN", strings.Join(labels, "."))(theirs.APN.AccessPointName())
	}
	same(t, "TEID", m.TEIDData)(theirs.TEIDDataI.TEID())
	if m.TEIDControl.Present {
		same(t, "control TEID", m.TEIDControl.Value)(theirs.TEIDCPlane.TEID())
	}
	// go-gtp leaves the spare bits before an NSAPI and a selection mode in place.
	n, err := theirs.NSAPI.NSAPI()
	same(t, "NSAPI", m.NSAPI)(n&0xf, err)
	same(t, "signalling address", text(m.AddressControl))(theirs.SGSNAddressForSignalling.GSNAddress())
	same(t, "user address", text(m.AddressUser))(theirs.SGSNAddressForUserTraffic.GSNAddress())
	if m.AMBR.Present && theirs.APNAMBR == nil {
		t.Fatal("no highest rates there")
	}
	if m.CommonFlags.Present {
		same(t, "flags", uint8(m.CommonFlags.Value))(theirs.CommonFlags.CommonFlags())
	}
	if m.RATType.Present {
		same(t, "RAT", uint8(m.RATType.Value))(theirs.RATType.RATType())
	}
	if m.TimeZone.Present {
		offset, err := theirs.MSTimeZone.TimeZone()
		// Both read digits beyond 9 alike, but go-gtp in an octet that overflows.
		if d := m.TimeZone.Value.Octet; d>>4 < 10 {
			same(t, "time zone", m.TimeZone.Value.QuarterHours())(int(offset.Minutes())/15, err)
		}
	}
}

// same returns a function that compares what go-gtp returns.
func same[T comparable](t *testing.T, name string, ours T) func(theirs T, err error) {
	return func(theirs T, err error) {
		if err != nil || theirs != ours {
			t.Fatalf("%s: %v here, %v there (%v)", name, ours, theirs, err)
		}
	}
}

// text returns an address as package net writes it, where 4 octets and 16 of a mapped
// address look alike.
func text(a netip.Addr) string { return net.IP(a.AsSlice()).String() }

// TestDifferRead reads what go-gtp writes of values.
func TestDifferRead(t *testing.T) {
	b, err := message.Marshal(message.NewCreatePDPContextRequest(
		0, 0x0102, ie.NewIMSI("240010123456789"), ie.NewRouteingAreaIdentity("240", "01", 0x1234, 0x56), ie.NewRecovery(3),
		ie.NewSelectionMode(0xfc), ie.NewTEIDDataI(0x11121314), ie.NewTEIDCPlane(0x21222324), ie.NewNSAPI(5),
		ie.NewEndUserAddressIPv4("203.0.113.5"), ie.NewAccessPointName("inet6.example"), ie.NewGSNAddress("192.0.2.1"),
		ie.NewGSNAddress("2001:db8:9::2"), ie.NewMSISDN("46702123456"), ie.NewQoSProfile([]byte{1, 0x0b, 0x92, 0x1f}),
		ie.NewRATType(1), ie.NewPrivateExtension(10415, []byte{1, 2}),
	))
	if err != nil {
		t.Fatal(err)
	}
	h, err := ParseHeader(b)
	if err != nil {
		t.Fatal(err)
	}
	var m CreateRequest
	notes, err := new(Codec).Parse(&h, &m)
	if err != nil || notes != (Notes{}) {
		t.Fatalf("%v, %+v", err, notes)
	}
	if m.IMSI.Value != sampleIMSI || m.RAI.Value != (RAI{samplePLMN, 0x1234, 0x56}) || m.MSISDN.Value != sampleMSISDN ||
		m.EndUserAddress.Value.IPv4 != sampleUE || !bytes.Equal(m.APN.Value, sampleAPN) || m.AddressUser != sampleGGSN6 ||
		m.QoS != mustQoS("01 0b921f") || m.RATType.Value != RATUTRAN || m.Private.Value.Enterprise != 10415 {
		t.Errorf("%+v", m)
	}
}
