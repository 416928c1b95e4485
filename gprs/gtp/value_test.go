// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import (
	"bytes"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestTID reads and makes tunnel identifiers as they are on the wire, in the order of
// the standard and in that of a widespread peer.
func TestTID(t *testing.T) {
	standard := TID(testutil.Unhex(t, "4200012143658709"))
	reversed := TID(testutil.Unhex(t, "0987654321010042"))
	if got := MakeTID(sampleIMSI, 0); got != standard {
		t.Errorf("made %x", got)
	}
	if m, ok := standard.IMSI(); !ok || m.String() != "240010123456789" || standard.NSAPI() != 0 {
		t.Errorf("read %v, %v, NSAPI %d", m, ok, standard.NSAPI())
	}
	if m, ok := reversed.Reversed().IMSI(); !ok || m != sampleIMSI {
		t.Errorf("reversed: %v, %v", m, ok)
	}
	if got := MakeTID(sampleIMSI, 5); got != sampleTID || got.NSAPI() != 5 || got.String() != "240010123456789/5" {
		t.Errorf("NSAPI 5: %x, %s", got, got)
	}
	if m, ok := TID(testutil.Unhex(t, "42f0012143658709")).IMSI(); ok {
		t.Errorf("digits behind a filler are %v", m)
	}
}

func TestIdentities(t *testing.T) {
	if short := must(ParseIMSI("24001")); short != IMSI(testutil.Unhex(t, "4200f1ffffffffff")) || !short.valid() || short.String() != "24001" {
		t.Errorf("five digits are %x, %s", short[:], short)
	}
	for _, bad := range []string{"", "2400101234567890", "24001x", "-1"} {
		if m, err := ParseIMSI(bad); err == nil {
			t.Errorf("%q is the IMSI %s", bad, m)
		}
		if m, err := ParseMSISDN(bad); err == nil {
			t.Errorf("%q is the number %s", bad, m)
		}
		if m, err := ParseIMEI(bad); err == nil && bad != "2400101234567890" {
			t.Errorf("%q is the IMEI %s", bad, m)
		}
	}
	if m := must(ParseIMEI("351234001234567")); m.String() != "351234001234567" || m[7]>>4 != 0xf {
		t.Errorf("fifteen digits are %x", m[:])
	}
	if (MSISDN{}).String() != "" || (MSISDN{}).Is("") {
		t.Error("no number has digits")
	}
	for text, want := range map[string]bool{"46702123456": true, "4670212345": false, "467021234567": false, "46702123457": false, "4670212345600000000": false, "": false} {
		if sampleMSISDN.Is(text) != want {
			t.Errorf("it is %q: %t", text, !want)
		}
	}
	if !sampleIMSI.Is("240010123456789") || sampleIMSI.Is("24001012345678") || !must(ParseMSISDN("467021")).Is("467021") {
		t.Error("digits are not known again")
	}
	three := must(MakePLMN("310", "410"))
	if three != PLMN(testutil.Unhex(t, "130014")) || three.String() != "310-410" || samplePLMN != PLMN(testutil.Unhex(t, "42f010")) || samplePLMN.String() != "240-01" {
		t.Errorf("%x is %s, %x is %s", three[:], three, samplePLMN[:], samplePLMN)
	}
	if _, err := MakePLMN("24", "01"); err == nil {
		t.Error("two digits are a country")
	}
	if (RAI{samplePLMN, 1, 2}).String() != "240-01-1-2" {
		t.Error("routeing area in words")
	}
}

func TestAPN(t *testing.T) {
	if !bytes.Equal(sampleAPN, testutil.Unhex(t, "05 696e657436 07 6578616d706c65")) {
		t.Errorf("labels %x", sampleAPN)
	}
	upper := must(ParseAPN("INTERNET.MNC001"))
	if upper.String() != "internet.mnc001" || string(upper.AppendKey([]byte("<"))) != "<internet.mnc001" {
		t.Errorf("name %s", upper)
	}
	if got := APN("\x03a\x00\xff").String(); got != `a\000\255` {
		t.Errorf("octets that cannot be printed are %q", got)
	}
	long := make([]byte, 64)
	for _, bad := range []string{"", ".", "a..b", "a.", string(bytes.Repeat([]byte("a"), 64)), string(bytes.Repeat([]byte("abcdefghi."), 10)) + "x"} {
		if a, err := ParseAPN(bad); err == nil {
			t.Errorf("%q is the APN %s", bad, a)
		}
	}
	for _, bad := range []APN{nil, {0}, {64}, append(APN{64}, long...), {2, 'a'}, {1, 'a', 0}, bytes.Repeat(APN{1, 'a'}, 51)} {
		if bad.valid() {
			t.Errorf("%x is an APN", []byte(bad))
		}
	}
}

func TestEndUserAddress(t *testing.T) {
	for _, row := range []struct {
		name, wire string
		want       EndUserAddress
		refused    bool
		same       bool // what is written of it
	}{
		{name: "IPv4, dynamic", wire: "f121", want: EndUserAddress{Type: PDPTypeIPv4}, same: true},
		{name: "IPv4 of zeros", wire: "f121 00000000", want: EndUserAddress{Type: PDPTypeIPv4, IPv4: netip.IPv4Unspecified()}, same: true},
		{name: "IPv4, static", wire: "f121 cb007105", want: EndUserAddress{Type: PDPTypeIPv4, IPv4: sampleUE}, same: true},
		{name: "IPv6, dynamic", wire: "f157", want: EndUserAddress{Type: PDPTypeIPv6}, same: true},
		{name: "IPv6", wire: "f157 20010db8000600011234567 89abcdef0", want: EndUserAddress{Type: PDPTypeIPv6, IPv6: sampleUE6}, same: true},
		{name: "both, dynamic", wire: "f18d", want: EndUserAddress{Type: PDPTypeIPv4v6}, same: true},
		{name: "both, IPv4", wire: "f18d cb007105", want: EndUserAddress{Type: PDPTypeIPv4v6, IPv4: sampleUE}, same: true},
		{name: "both, IPv6", wire: "f18d 20010db8000600011234567 89abcdef0", want: EndUserAddress{Type: PDPTypeIPv4v6, IPv6: sampleUE6}, same: true},
		{
			name: "both", wire: "f18d cb007105 20010db8000600011234567 89abcdef0", same: true,
			want: EndUserAddress{Type: PDPTypeIPv4v6, IPv4: sampleUE, IPv6: sampleUE6},
		},
		{name: "spare bits clear", wire: "0121", want: EndUserAddress{Type: PDPTypeIPv4}},
		{name: "PPP", wire: "f001", want: EndUserAddress{Type: PDPTypePPP}, same: true},
		{name: "type that is none, with an address", wire: "f177 0102", want: EndUserAddress{Type: 0x0177}},
		{name: "organisation alone", wire: "f1", refused: true},
		{name: "IPv4 of sixteen octets", wire: "f121 20010db8000600011234567 89abcdef0", refused: true},
		{name: "IPv6 of four octets", wire: "f157 cb007105", refused: true},
		{name: "both, of five octets", wire: "f18d cb00710500", refused: true},
		{name: "both, of twenty-one octets", wire: "f18d cb007105 20010db8000600011234567 89abcdef000", refused: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			wire := testutil.Unhex(t, row.wire)
			got, ok := parseEndUserAddress(wire)
			if ok == row.refused || ok && got != row.want {
				t.Fatalf("%+v, %v", got, ok)
			}
			if row.same && !bytes.Equal(appendEndUserAddress(nil, got), wire) {
				t.Errorf("written as %x", appendEndUserAddress(nil, got))
			}
		})
	}
	if _, ok := (EndUserAddress{IPv4: netip.IPv4Unspecified(), IPv6: netip.IPv6Unspecified()}).Static4(); ok {
		t.Error("0.0.0.0 is static")
	}
	if _, ok := (EndUserAddress{IPv6: netip.IPv6Unspecified()}).Static6(); ok {
		t.Error(":: is static")
	}
	if a, ok := (EndUserAddress{IPv6: sampleUE6}).Static6(); !ok || a != sampleUE6 {
		t.Error("an address is not static")
	}
}

// TestPCO reads what a terminal asks for and writes what it is answered.
// TestAddress: an address of a node, of IPv4 also where it is written as one of IPv6.
func TestAddress(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for wire, want := range map[string]netip.Addr{
		"c0000201": v4, "20010db8000000000000000000000001": v6, "00000000000000000000ffffc0000201": v4,
		"": {}, "c00002": {}, "c000020100": {},
	} {
		if got, ok := parseAddress(testutil.Unhex(t, wire)); got != want || ok != want.IsValid() {
			t.Errorf("%q is %v, %v; want %v", wire, got, ok, want)
		}
	}
}

// TestExtensions walks a chain, and knows who must understand what (TS 29.060 section
// 6.1.1).
func TestExtensions(t *testing.T) {
	list := []Extension{{ExtensionServiceClass, []byte{1, 0}}, {ExtensionRANContainer, []byte{1, 2, 3, 4, 5, 6}}, {ExtensionPDCP, []byte{3, 4}}}
	x, ok := MakeExtensions(nil, list...)
	if !ok || x.Empty() || !reflect.DeepEqual(slices.Collect(x.All()), list) {
		t.Fatalf("%v, %v", x, ok)
	}
	if content, ok := x.Find(ExtensionPDCP); !ok || !bytes.Equal(content, []byte{3, 4}) {
		t.Errorf("%x, %v", content, ok)
	}
	if _, ok := x.Find(ExtensionUDPPort); ok {
		t.Error("found what is not there")
	}
	if unknown, ok := x.Uncomprehended(); ok {
		t.Errorf("%#x is not understood", unknown)
	}
	for _, row := range []struct {
		kind                        ExtensionType
		endPoint, drop, middle, bad bool
	}{
		{kind: 0x3f},
		{kind: 0x7f, drop: true},
		{kind: 0xbf, endPoint: true, bad: true},
		{kind: 0xff, endPoint: true, middle: true, bad: true},
		{kind: ExtensionPDCP, endPoint: true, middle: true},
		{kind: ExtensionUDPPort, drop: true},
	} {
		if got := row.kind; got.RequiredAtEndPoint() != row.endPoint || got.DroppedAtIntermediate() != row.drop || got.RequiredAtIntermediate() != row.middle {
			t.Errorf("%#x: %v, %v, %v", got, got.RequiredAtEndPoint(), got.DroppedAtIntermediate(), got.RequiredAtIntermediate())
		}
		x, _ := MakeExtensions(nil, list[0], Extension{row.kind, []byte{0, 0}})
		if kind, bad := x.Uncomprehended(); bad != row.bad || bad && kind != row.kind {
			t.Errorf("%#x: %#x, %v", row.kind, kind, bad)
		}
	}
	for name, list := range map[string][]Extension{
		"no type": {{ExtensionNone, []byte{0, 0}}}, "no content": {{ExtensionPDCP, nil}}, "one octet": {{ExtensionPDCP, []byte{0}}},
		"beyond the length": {{ExtensionPDCP, make([]byte, 1022)}}, "nine": slices.Repeat(list[:1], 9),
	} {
		if _, ok := MakeExtensions(nil, list...); ok {
			t.Errorf("%s makes a chain", name)
		}
	}
	if x, ok := MakeExtensions(nil); !ok || !x.Empty() {
		t.Error("no extension header is none")
	}
}

// TestPeek reads version and type where nothing else may be read (TS 29.060 section
// 11.1.1).
func TestPeek(t *testing.T) {
	for _, row := range []struct {
		name, wire string
		version    Version
		kind       MessageType
		ok         bool
	}{
		{name: "version 2", wire: "48 20 0004 00000000", version: 2, kind: 32, ok: true},
		{name: "version not supported of version 2", wire: "40 03 0004 00000100", version: 2, kind: TypeVersionNotSupported, ok: true},
		{name: "version 1 for the port of version 0", wire: "32 10 0004 00000000 0001 0000", version: 1, kind: TypeCreateRequest, ok: true},
		{name: "GTP'", wire: "0e 01 0000 0001 0000"},
		{name: "short", wire: "48 20 0004 000000"},
	} {
		if version, kind, ok := Peek(testutil.Unhex(t, row.wire)); version != row.version || kind != row.kind || ok != row.ok {
			t.Errorf("%s: %d, %v, %v", row.name, version, kind, ok)
		}
	}
}

// TestResponses knows which message answers which.
func TestResponses(t *testing.T) {
	for request := range MessageType(255) {
		response, ok := request.Response()
		if ok && (!request.Known() || !response.Known()) {
			t.Errorf("%d is answered by %d", request, response)
		}
		if _, again := response.Response(); ok && again {
			t.Errorf("%v answers and is answered", response)
		}
	}
	if r, ok := TypeCreateRequest.Response(); !ok || r != TypeCreateResponse {
		t.Errorf("%v, %v", r, ok)
	}
	if _, ok := TypeErrorIndication.Response(); ok {
		t.Error("an error indication is answered")
	}
	for kind, path := range map[MessageType]bool{TypeEchoRequest: true, TypeVersionNotSupported: true, TypeSupportedExtensions: true, TypeCreateRequest: false, TypeErrorIndication: false} {
		if kind.Path() != path {
			t.Errorf("%v: path %v", kind, kind.Path())
		}
	}
}

// TestFlagsAndOctets reads values of one octet by their bits.
func TestFlagsAndOctets(t *testing.T) {
	for octet, want := range map[byte]SelectionMode{0xfc: SelectionVerified, 0: SelectionVerified, 0xfd: SelectionMS, 0xfe: SelectionNetwork, 0xff: SelectionNetwork} {
		if got, _ := selectionMode.parse([]byte{octet}); got != want {
			t.Errorf("selection mode %#x is %d", octet, got)
		}
	}
	for octet, want := range map[byte]bool{0xff: true, 0xfe: false, 1: true, 0: false} {
		if got, _ := flag.parse([]byte{octet}); got != want {
			t.Errorf("flag %#x is %v", octet, got)
		}
	}
	if got, _ := nsapi.parse([]byte{0xf5}); got != 5 {
		t.Errorf("NSAPI %d", got)
	}
	if e := EvolvedARP(0x15); e.Level() != 5 || !e.PreemptionCapable() || e.PreemptionVulnerable() {
		t.Errorf("priority %d, %v, %v", e.Level(), e.PreemptionCapable(), e.PreemptionVulnerable())
	}
	for octet, want := range map[byte]int{0x40: 4, 0x80: 8, 0x0a: -20, 0x23: 32, 0x69: -16} {
		if got := (TimeZone{Octet: octet}).QuarterHours(); got != want {
			t.Errorf("time zone %#x is %d quarters of an hour", octet, got)
		}
	}
	for c, want := range map[Cause]bool{CauseAccepted: true, CauseNewPDPTypeNetwork: true, CauseNewPDPTypeSingle: true, 191: true, 127: false, CauseNonExistent: false, CauseRequestIMSI: false} {
		if c.Accepted() != want {
			t.Errorf("cause %d accepts: %v", c, c.Accepted())
		}
	}
}

// TestLocation reads the kinds that have fields, keeps the others, and refuses what is
// cut off (TS 29.060 section 7.7.51).
func TestLocation(t *testing.T) {
	for wire, want := range map[string]Location{
		"00 42f010 1234 5678":    {Kind: LocationCell, PLMN: samplePLMN, LAC: 0x1234, Code: 0x5678},
		"01 42f010 1234 5678 ff": {Kind: LocationService, PLMN: samplePLMN, LAC: 0x1234, Code: 0x5678},
		"02 42f010 1234 56ff":    {Kind: LocationRouting, PLMN: samplePLMN, LAC: 0x1234, Code: 0x56ff},
		"82 42f010 1234":         {Kind: 0x82, Rest: []byte{0x42, 0xf0, 0x10, 0x12, 0x34}},
	} {
		octets := testutil.Unhex(t, wire)
		got, ok := ParseLocation(octets)
		if !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is read as %+v, %v", wire, got, ok)
		}
		if again := got.Append(nil); !bytes.HasPrefix(octets, again) {
			t.Errorf("%s is written as %x", wire, again)
		}
	}
	for _, bad := range []string{"", "00 42f010 1234 56", "02"} {
		if got, ok := ParseLocation(testutil.Unhex(t, bad)); ok {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
}

// TestMSISDN keeps what a peer sends within the length that numbers have.
func TestMSISDN(t *testing.T) {
	for wire, want := range map[string]string{
		"91 6407123254f6": "46702123456", "a1 2143": "1234", "91": "", "91 ffff": "", "91 ba21": "*#12", "91 2143658709214365": "1234567890123456",
	} {
		octets := testutil.Unhex(t, wire)
		m, ok := MSISDNOf(octets)
		if !ok || !bytes.Equal(appendMSISDN(nil, m), octets) || !bytes.Equal(m.Octets(), octets) {
			t.Errorf("%s comes back as %x, %v", wire, appendMSISDN(nil, m), ok)
		}
		if want != m.String() {
			t.Errorf("%s is %q, want %q", wire, m, want)
		}
	}
	for _, bad := range []string{"", "91 214365870921436587"} {
		if m, ok := MSISDNOf(testutil.Unhex(t, bad)); ok {
			t.Errorf("%q is the number %s", bad, m)
		}
	}
}

// TestNames has a word for whatever a peer sends.
func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		TypeCreateRequest.String(): "Create PDP Context Request", MessageType(200).String(): "unknown message",
		ElementAPN.String(): "Access Point Name", ElementType(240).String(): "unknown element",
		PDPTypeIPv4.String() + PDPTypeIPv6.String() + PDPTypeIPv4v6.String() + PDPTypePPP.String(): "IPv4IPv6IPv4v6PPP",
		PDPType(0).String(): "unknown PDP type", CauseNoMemory.String(): "no memory is available", Cause(99).String(): "unknown cause",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
