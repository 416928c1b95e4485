// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import (
	"bytes"
	"net/netip"
	"reflect"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// wholeTFT has every component and a parameter.
const wholeTFT = `
	32
	31 07 28 10 c0000200 ffffff00 11 cb007105 ffffffff 30 11 41 13c4 13ce 50 1388 60 01020304 70 b8fc 80 0abcde
	12 08 24 21 20010db8000000000000000000000000 20 23 20010db8000600010000000000000000 40
	01 02 0506`

func wholeTemplate() TFT {
	return TFT{
		Operation: TFTCreate,
		Filters: []PacketFilter{
			{
				ID: 1, Direction: FilterBoth, Precedence: 7,
				Remote:    Match{netip.MustParseAddr("192.0.2.0"), netip.MustParseAddr("255.255.255.0")},
				Local:     Match{sampleUE, netip.MustParseAddr("255.255.255.255")},
				Protocol:  Some[uint8](17),
				LocalPort: Some(PortRange{5060, 5070}), RemotePort: Some(PortRange{5000, 5000}),
				SPI: Some[uint32](0x01020304), Class: Some(MaskedOctet{0xb8, 0xfc}), FlowLabel: Some[uint32](0xabcde),
			}, {
				ID: 2, Direction: FilterDown, Precedence: 8,
				Remote: Match{netip.MustParseAddr("2001:db8::"), netip.MustParseAddr("ffff:ffff::")},
				Local:  Match{netip.MustParseAddr("2001:db8:6:1::"), netip.MustParseAddr("ffff:ffff:ffff:ffff::")},
			},
		},
		Parameters: []TFTParameter{{ID: 1, Value: []byte{5, 6}}},
	}
}

func TestTFT(t *testing.T) {
	mask6 := "20 20010db8000000000000000000000001 ffff0000000000000000000000000001"
	for _, row := range []struct {
		name, wire string
		want       TFT
	}{
		{"every component", wholeTFT, wholeTemplate()},
		{"delete the template", "40", TFT{Operation: TFTDelete}},
		{"delete filters", "a2 01 0f", TFT{Operation: TFTDeleteFilters, Filters: []PacketFilter{{ID: 1}, {ID: 15}}}},
		{"parameters alone", "d0 02 00", TFT{Operation: TFTNone, Parameters: []TFTParameter{{ID: 2, Value: []byte{}}}}},
		{
			"mask that is no prefix", "61 00 00 21" + mask6,
			TFT{Operation: TFTAddFilters, Filters: []PacketFilter{{Remote: Match{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("ffff::1")}}}},
		}, {
			"single port here, several there", "81 00 00 08 40 1388 51 0001 ffff",
			TFT{Operation: TFTReplaceFilters, Filters: []PacketFilter{{LocalPort: Some(PortRange{5000, 5000}), RemotePort: Some(PortRange{1, 65535})}}},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			wire := testutil.Unhex(t, row.wire)
			got, cause, ok := ParseTFT(wire)
			if !ok || !reflect.DeepEqual(got, row.want) {
				t.Fatalf("read\n%+v, %v, want\n%+v", got, cause, row.want)
			}
			if written := got.Append(nil); !bytes.Equal(written, wire) {
				t.Errorf("written\n%x, want\n%x", written, wire)
			}
		})
	}
}

// TestTFTRefused shows the cause of each fault (TS 29.060 section 7.7.1).
func TestTFTRefused(t *testing.T) {
	for _, row := range []struct {
		name, wire string
		want       Cause
	}{
		{"nothing", "", CauseTFTSyntax},
		{"reserved operation", "e1 00", CauseTFTSyntax},
		{"create without a filter", "20", CauseTFTSyntax},
		{"delete with a filter", "41 00", CauseTFTSyntax},
		{"filter missing", "21", CauseTFTSyntax},
		{"filter cut off", "21 00 00", CauseTFTSyntax},
		{"content cut off", "21 00 00 02 30", CauseTFTSyntax},
		{"one filter of two", "22 00 00 02 30 11", CauseTFTSyntax},
		{"identifier missing", "a2 01", CauseTFTSyntax},
		{"octets behind the filters", "21 00 00 02 30 11 00", CauseTFTSyntax},
		{"parameter cut off", "d0 02", CauseTFTSyntax},
		{"parameter's value cut off", "d0 02 01", CauseTFTSyntax},
		{"empty filter", "21 00 00 00", CauseFilterSyntax},
		{"unknown component", "21 00 00 02 31 11", CauseFilterSyntax},
		{"component cut off", "21 00 00 02 40 11", CauseFilterSyntax},
		{"component repeated", "21 00 00 04 30 11 30 06", CauseFilterSyntax},
		{"port and range of ports", "21 00 00 08 40 1388 41 0001 ffff", CauseFilterSyntax},
		{"two families", "21 00 00 1b 10 c0000200 ffffff00 21 20010db8000000000000000000000000 20", CauseFilterSyntax},
		{"prefix of 129 bits", "21 00 00 12 21 20010db8000000000000000000000000 81", CauseFilterSyntax},
		{"two filters of one identifier", "22 01 00 02 30 11 01 01 02 30 06", CauseFilterSyntax},
	} {
		if got, cause, ok := ParseTFT(testutil.Unhex(t, row.wire)); ok || cause != row.want {
			t.Errorf("%s: %v, want %v (%+v)", row.name, cause, row.want, got)
		}
	}
}

// TestTFTUnsendable writes of what has no form nothing that another would read.
func TestTFTUnsendable(t *testing.T) {
	six, mask := netip.MustParseAddr("2001:db8::"), netip.MustParseAddr("ffff::ffff")
	for name, filter := range map[string]PacketFilter{
		"IPv6 without a mask":                {Remote: Match{Address: six}},
		"IPv4 without a mask":                {Remote: Match{Address: netip.MustParseAddr("192.0.2.0")}},
		"own address by a mask of two parts": {Local: Match{Address: six, Mask: mask}},
	} {
		template := TFT{Operation: TFTCreate, Filters: []PacketFilter{filter}}
		if got, _, ok := ParseTFT(template.Append(nil)); ok {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
	long := TFT{Operation: TFTNone, Parameters: []TFTParameter{{ID: 1, Value: make([]byte, 256)}, {ID: 2, Value: make([]byte, 255)}}}
	if got, _, ok := ParseTFT(long.Append(nil)); ok {
		t.Errorf("a parameter of 256 octets: read as %+v", got)
	}
}

func TestMatch(t *testing.T) {
	remote := wholeTemplate().Filters[0].Remote
	for address, want := range map[string]bool{"192.0.2.77": true, "192.0.3.77": false, "2001:db8::1": false} {
		if got := remote.Contains(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
	if six := wholeTemplate().Filters[1].Remote; !six.Contains(netip.MustParseAddr("2001:db8:ffff::1")) || six.Contains(netip.MustParseAddr("2001:db9::1")) {
		t.Error("prefix of 32 bits")
	}
	if !(Match{}).Contains(sampleUE) {
		t.Error("no component excludes an address")
	}
}
