// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

func TestFaultsAreNamed(t *testing.T) {
	seen := map[string]Fault{}
	for f := range numFaults {
		name := f.String()
		if other, ok := seen[name]; ok || name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
			t.Errorf("fault %d is %q, as is %d", f, name, other)
		}
		seen[name] = f
	}
	if got := numFaults.String(); got != "unknown" {
		t.Errorf("fault out of range is %q", got)
	}
}

func TestRefusalNamesElement(t *testing.T) {
	for err, want := range map[error]string{
		refuse(FaultTruncated, 0):                           "truncated",
		refuse(FaultElementMissing, ElementNSAPI):           "mandatory_element_missing: NSAPI",
		refuse(FaultElementUnknown, ElementType(7)):         "unknown_fixed_length_element: unknown element",
		refuse(FaultElementIncorrect, ElementExtensionList): "mandatory_element_incorrect: Extension Header Type List",
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}

// refused is a datagram that is refused, and how.
type refused struct {
	name    string
	wire    string
	fault   Fault
	element ElementType
	cause   Cause // 0: none, the datagram is dropped in silence
}

// TestHeaderRefused shows every way in which a header is refused.
func TestHeaderRefused(t *testing.T) {
	for _, r := range []refused{
		{name: "nothing", wire: "", fault: FaultTruncated},
		{name: "seven octets", wire: "30 ff 0000 000000", fault: FaultTruncated},
		{name: "version 0 in nineteen octets", wire: "1e 01 0000 0001 0000 ff ffffff 00000000000000", fault: FaultTruncated},
		{name: "S in eight octets", wire: "32 01 0000 00000000", fault: FaultTruncated},
		{name: "E with three octets", wire: "34 ff 0003 00000000 000000", fault: FaultTruncated},
		{name: "version 2", wire: "48 20 0004 00000000", fault: FaultVersion},
		{name: "version 7", wire: "f0 01 0000 00000000", fault: FaultVersion},
		{name: "GTP' of version 0", wire: "0e 01 0000 0001 0000", fault: FaultProtocolType},
		{name: "GTP' of version 1", wire: "2e 01 0000 0001 0000", fault: FaultProtocolType},
		{name: "length beyond the datagram", wire: "32 01 0005 00000000 0001 00 00", fault: FaultLength, cause: CauseInvalidMessageFormat},
		{name: "length short of the datagram", wire: "32 01 0004 00000000 0001 00 00 0e01", fault: FaultLength, cause: CauseInvalidMessageFormat},
		{name: "length of 65535", wire: "30 ff ffff 00000001", fault: FaultLength, cause: CauseInvalidMessageFormat},
		{name: "version 0, length with the header", wire: "1e 01 0014 0001 0000 ff ffffff 0000000000000000", fault: FaultLength, cause: CauseInvalidMessageFormat},
		{name: "extension header announced and absent", wire: "34 ff 0004 00000001 0000 00 c0", fault: FaultExtension},
		{name: "extension header of length 0", wire: "34 ff 0008 00000001 0000 00 c0 00 1234 00", fault: FaultExtension},
		{name: "extension header beyond the datagram", wire: "34 ff 0008 00000001 0000 00 c0 02 1234 00", fault: FaultExtension},
		{name: "second extension header cut off", wire: "34 ff 0008 00000001 0000 00 c0 01 1234 20", fault: FaultExtension},
		{name: "nine extension headers", wire: "34 ff 0028 00000001 0000 00 20" + strings.Repeat("01 0000 20", 8) + "01 0000 00", fault: FaultExtensionCount},
	} {
		t.Run(r.name, func(t *testing.T) {
			_, err := ParseHeader(testutil.Unhex(t, r.wire))
			r.check(t, err)
		})
	}
}

func (r *refused) check(t *testing.T, err error) {
	t.Helper()
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		t.Fatalf("error %v is no refusal", err)
	}
	if refusal.Fault != r.fault || refusal.Element != r.element {
		t.Errorf("refused as %v, want %v", refusal, refuse(r.fault, r.element))
	}
	if cause, ok := refusal.Cause(); cause != r.cause || ok != (r.cause != 0) {
		t.Errorf("cause %v (%v), want %v", cause, ok, r.cause)
	}
}

// The elements of a create request of version 1 without fault; the tests leave some out.
const (
	goodIMSI    = "02 42000121436587f9"
	goodTEIDs   = "10 11121314 11 21222324"
	goodNSAPI   = "14 05"
	goodEUA     = "80 0002 f121"
	goodAPN     = "83 0006 05 696e657436"
	goodAddress = "85 0004 c0000201"
	goodQoS     = "87 0004 01 0b921f"
)

// TestMessageRefused shows every way in which the elements of a message are refused, by
// TS 29.060 section 11.1 and TS 09.60 section 11.1.
func TestMessageRefused(t *testing.T) {
	head := "32 10 LLLL 00000000 0001 00 00"
	head0 := "1e 10 LLLL 0001 0000 ff ffffff 4200012143658759"
	for _, r := range []refused{
		{
			name: "unknown element without a length", wire: head + "02 42000121436587f9 07 00",
			fault: FaultElementUnknown, element: 7, cause: CauseInvalidMessageFormat,
		}, {
			name: "type 0", wire: head + "00", fault: FaultElementUnknown, cause: CauseInvalidMessageFormat,
		}, {
			name: "profile of version 0 in version 1", wire: head + goodIMSI + "06 0b921f",
			fault: FaultElementUnknown, element: ElementQoSV0, cause: CauseInvalidMessageFormat,
		}, {
			name: "NSAPI of version 1 in version 0", wire: head0 + "06 0b921f 14 05",
			fault: FaultElementUnknown, element: ElementNSAPI, cause: CauseInvalidMessageFormat,
		}, {
			name: "fixed element cut off", wire: head + "02 420001", fault: FaultElementTruncated, element: ElementIMSI, cause: CauseInvalidMessageFormat,
		}, {
			name: "length cut off", wire: head + goodIMSI + "80 00", fault: FaultElementTruncated, element: ElementEndUserAddress, cause: CauseInvalidMessageFormat,
		}, {
			name: "value cut off", wire: head + goodIMSI + "80 0003 f121", fault: FaultElementTruncated, element: ElementEndUserAddress, cause: CauseInvalidMessageFormat,
		}, {
			name: "unknown element cut off", wire: head + goodIMSI + "f0 ffff 00", fault: FaultElementTruncated, element: 0xf0, cause: CauseInvalidMessageFormat,
		}, {
			name: "elements out of order", wire: head + goodIMSI + goodNSAPI + goodTEIDs,
			fault: FaultElementOrder, element: ElementTEIDData, cause: CauseInvalidMessageFormat,
		}, {
			name: "no elements", wire: head, fault: FaultElementMissing, element: ElementTEIDData, cause: CauseMandatoryMissing,
		}, {
			name: "one address", wire: head + goodIMSI + goodTEIDs + goodNSAPI + goodEUA + goodAPN + goodAddress + goodQoS,
			fault: FaultElementMissing, element: ElementGSNAddress, cause: CauseMandatoryMissing,
		}, {
			name: "no profile", wire: head + goodIMSI + goodTEIDs + goodNSAPI + goodEUA + goodAPN + goodAddress + goodAddress,
			fault: FaultElementMissing, element: ElementQoS, cause: CauseMandatoryMissing,
		}, {
			name: "primary without an IMSI", wire: head + goodTEIDs + goodNSAPI + goodEUA + goodAPN + goodAddress + goodAddress + goodQoS,
			fault: FaultElementMissing, element: ElementIMSI, cause: CauseMandatoryMissing,
		}, {
			name: "primary without an end user address", wire: head + goodIMSI + goodTEIDs + goodNSAPI + goodAPN + goodAddress + goodAddress + goodQoS,
			fault: FaultElementMissing, element: ElementEndUserAddress, cause: CauseMandatoryMissing,
		}, {
			name: "primary without a control TEID", wire: head + goodIMSI + "10 11121314" + goodNSAPI + goodEUA + goodAPN + goodAddress + goodAddress + goodQoS,
			fault: FaultElementMissing, element: ElementTEIDControl, cause: CauseMandatoryMissing,
		}, {
			name: "IMSI with a letter", wire: head + "02 4200a121436587f9", fault: FaultElementIncorrect, element: ElementIMSI, cause: CauseMandatoryIncorrect,
		}, {
			name: "IMSI of sixteen digits", wire: head + "02 4200012143658709", fault: FaultElementIncorrect, element: ElementIMSI, cause: CauseMandatoryIncorrect,
		}, {
			name: "IMSI without a digit", wire: head + "02 ffffffffffffffff", fault: FaultElementIncorrect, element: ElementIMSI, cause: CauseMandatoryIncorrect,
		}, {
			name: "address of five octets", wire: head + goodIMSI + goodTEIDs + goodNSAPI + goodEUA + goodAPN + "85 0005 c000020100",
			fault: FaultElementIncorrect, element: ElementGSNAddress, cause: CauseMandatoryIncorrect,
		}, {
			name: "profile of three octets", wire: head + goodIMSI + goodTEIDs + goodNSAPI + goodEUA + goodAPN + goodAddress + goodAddress + "87 0003 0b921f",
			fault: FaultElementIncorrect, element: ElementQoS, cause: CauseMandatoryIncorrect,
		}, {
			name: "end user address of three octets of IPv4", wire: head + goodIMSI + goodTEIDs + goodNSAPI + "80 0005 f121 cb0071",
			fault: FaultElementIncorrect, element: ElementEndUserAddress, cause: CauseMandatoryIncorrect,
		}, {
			name: "end user address of one octet", wire: head + goodIMSI + goodTEIDs + goodNSAPI + "80 0001 f1",
			fault: FaultElementIncorrect, element: ElementEndUserAddress, cause: CauseMandatoryIncorrect,
		}, {
			name: "APN with a root label", wire: head + goodIMSI + goodTEIDs + goodNSAPI + goodEUA + "83 0007 05 696e657436 00",
			fault: FaultElementIncorrect, element: ElementAPN, cause: CauseMandatoryIncorrect,
		}, {
			name: "APN whose label is cut off", wire: head + goodIMSI + goodTEIDs + goodNSAPI + goodEUA + "83 0003 05 696e",
			fault: FaultElementIncorrect, element: ElementAPN, cause: CauseMandatoryIncorrect,
		}, {
			name: "empty APN", wire: head + goodIMSI + goodTEIDs + goodNSAPI + goodEUA + "83 0000",
			fault: FaultElementIncorrect, element: ElementAPN, cause: CauseMandatoryIncorrect,
		}, {
			name: "version 0 without a number", wire: head0 + "06 0b921f 0f fd 10 1112 11 2122" + goodEUA + goodAPN + goodAddress + goodAddress,
			fault: FaultElementMissing, element: ElementMSISDN, cause: CauseMandatoryMissing,
		}, {
			name: "version 0 without a profile", wire: head0 + "0f fd", fault: FaultElementMissing, element: ElementQoSV0, cause: CauseMandatoryMissing,
		}, {
			name: "accepted response without a TEID", wire: "32 11 LLLL 00000001 0001 00 00 01 80 08 fe",
			fault: FaultElementMissing, element: ElementTEIDData, cause: CauseMandatoryMissing,
		}, {
			name: "response without a cause", wire: "32 11 LLLL 00000001 0001 00 00 08 fe",
			fault: FaultElementMissing, element: ElementCause, cause: CauseMandatoryMissing,
		}, {
			name: "list of extension headers cut off", wire: "32 1f LLLL 00000000 0001 00 00 8d 03 c040",
			fault: FaultElementTruncated, element: ElementExtensionList, cause: CauseInvalidMessageFormat,
		}, {
			name: "message of version 1 alone in version 0", wire: "1e 80 LLLL 0001 0000 ff ffffff 4200012143658759", fault: FaultMessageType,
		},
	} {
		t.Run(r.name, func(t *testing.T) {
			h, m := parsed(t, r.wire)
			_, err := new(Codec).Parse(h, m)
			r.check(t, err)
		})
	}
}

// parsed returns header and empty message of a datagram.
func parsed(t testing.TB, wire string) (*Header, Message) {
	t.Helper()
	s := sample{name: wire, wire: []string{wire}}
	if strings.HasPrefix(wire, "1e") {
		s.header.Version = V0
	} else {
		s.header.Version = V1
	}
	h, err := ParseHeader(s.octets(t))
	if err != nil {
		t.Fatal(err)
	}
	m, ok := NewMessage(h.Type)
	if !ok {
		t.Fatalf("%v has no type", h.Type)
	}
	return &h, m
}

// TestElementsPassedOver shows what is no reason to refuse a message, and what is noted
// of it.
func TestElementsPassedOver(t *testing.T) {
	begin := "32 10 LLLL 00000000 0001 00 00" + goodIMSI
	middle := goodTEIDs + goodNSAPI + goodEUA + goodAPN
	end := goodAddress + goodAddress + goodQoS
	for _, row := range []struct {
		name, wire string
		want       Notes
	}{
		{name: "nothing", wire: begin + middle + end},
		{name: "unknown element with a length", wire: begin + middle + end + "f0 0002 0102", want: Notes{Unknown: 1}},
		{name: "two unknown elements", wire: begin + middle + end + "f0 0000 f1 0001 00", want: Notes{Unknown: 2}},
		{name: "element of another message", wire: begin + "08 ff" + middle + end, want: Notes{Unexpected: 1}},
		{name: "third address", wire: begin + middle + goodAddress + end, want: Notes{Unexpected: 1}},
		{name: "element repeated: the first counts", wire: begin + "02 99000121436587f9" + middle + end, want: Notes{Unexpected: 1}},
		{name: "optional element too short", wire: begin + middle + end + "97 0000", want: Notes{Incorrect: 1, FirstIncorrect: ElementRATType}},
		{
			name: "two optional elements that cannot be read", wire: begin + goodTEIDs + goodNSAPI + goodEUA + goodAPN + "84 0001 00" + end + "c6 0007 00000000000000",
			want: Notes{Incorrect: 2, FirstIncorrect: ElementPCO},
		},
		{name: "octets behind those that are known", wire: begin + middle + end + "97 0004 01 020304", want: Notes{}},
		{name: "second private extension", wire: begin + middle + end + wirePrivate + wirePrivate, want: Notes{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			h, m := parsed(t, row.wire)
			notes, err := new(Codec).Parse(h, m)
			if err != nil || notes != row.want {
				t.Errorf("%+v, %v, want %+v", notes, err, row.want)
			}
			if got := m.(*CreateRequest); got.IMSI.Value != sampleIMSI || got.AddressUser != sampleSGSN {
				t.Errorf("read %+v", got)
			}
		})
	}
}

// TestTakenForAnother reads no message as another one.
func TestTakenForAnother(t *testing.T) {
	h, _ := parsed(t, "32 01 LLLL 00000000 0001 00 00")
	_, err := new(Codec).Parse(h, &EchoResponse{})
	(&refused{fault: FaultMessageType}).check(t, err)
	_, err = Decapsulate(testutil.Unhex(t, "32 01 0004 00000000 0001 00 00"))
	(&refused{fault: FaultMessageType}).check(t, err)
	_, err = ParseElements(&Header{Version: V1, Type: TypeGPDU})
	(&refused{fault: FaultMessageType}).check(t, err)
	_, err = ParseElements(&Header{Version: V1, Type: 200})
	(&refused{fault: FaultMessageType}).check(t, err)
}

// TestUnsendable refuses to write what we would refuse to read, and leaves the buffer
// as it was.
func TestUnsendable(t *testing.T) {
	whole := func() *CreateRequest { return createSamples()[1].message.(*CreateRequest) }
	for _, row := range []struct {
		name  string
		spoil func(*CreateRequest)
		want  error
	}{
		{"no address", func(m *CreateRequest) { m.AddressUser = netip.Addr{} }, refuse(FaultElementIncorrect, ElementGSNAddress)},
		{"no profile", func(m *CreateRequest) { m.QoS = QoS{} }, refuse(FaultElementIncorrect, ElementQoS)},
		{"bad name", func(m *CreateRequest) { m.APN.Value = APN("internet") }, refuse(FaultElementIncorrect, ElementAPN)},
		{"no user", func(m *CreateRequest) { m.IMSI.Present, m.IMEI.Present = false, false }, refuse(FaultElementMissing, ElementIMSI)},
		{"value beyond its length", func(m *CreateRequest) { m.OMCIdentity.Value = make([]byte, 65536) }, refuse(FaultTooLong, ElementOMCIdentity)},
		{"message beyond its length", func(m *CreateRequest) { m.OMCIdentity.Value = make([]byte, 65500) }, refuse(FaultTooLong, 0)},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := whole()
			row.spoil(m)
			b, err := new(Codec).Append([]byte("before"), v1(0, 0, 1), m)
			if err != row.want || string(b) != "before" {
				t.Errorf("%v, %d octets, want %v", err, len(b), row.want)
			}
		})
	}
	label := createSamples()[0].message.(*CreateRequest)
	label.TEIDData = 0x10000
	if _, err := new(Codec).Append(nil, v0(0, 0, 1, sampleTID), label); err != refuse(FaultElementIncorrect, ElementTEIDData) {
		t.Errorf("flow label of 17 bits: %v", err)
	}
	profile := createSamples()[0].message.(*CreateRequest)
	profile.QoS = QoS{}
	if _, err := new(Codec).Append(nil, v0(0, 0, 1, sampleTID), profile); err != refuse(FaultElementIncorrect, ElementQoSV0) {
		t.Errorf("no profile in version 0: %v", err)
	}
	if _, err := Encapsulate(nil, &Header{Version: V1, HasSequence: true}, make([]byte, 65530)); err != refuse(FaultTooLong, 0) {
		t.Errorf("packet of 65530 octets: %v", err)
	}
}

// TestGapAmongRepeated takes what follows an unreadable element of its type for absent,
// too, and writes none without those before it: places would change their meaning.
func TestGapAmongRepeated(t *testing.T) {
	h, m := parsed(t, "32 11 LLLL 00000001 0001 00 00 01 d3 fb 0003 c00002"+"fb 0004 c0000201")
	notes, err := new(Codec).Parse(h, m)
	if want := (Notes{Incorrect: 2, FirstIncorrect: ElementChargingGateway}); err != nil || notes != want {
		t.Errorf("%+v, %v, want %+v", notes, err, want)
	}
	if got := m.(*CreateResponse); got.ChargingGateway.Present || got.AlternativeChargingGateway.Present {
		t.Errorf("read %+v", got)
	}
	gap := CreateResponse{Cause: CauseNoMemory, AddressUser: Some(sampleGGSN)}
	if _, err := new(Codec).Append(nil, v1(0, 1, 1), &gap); err != refuse(FaultElementMissing, ElementGSNAddress) {
		t.Errorf("the user's address in the place of the other one: %v", err)
	}
}
