// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package radius

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestAttributes writes each kind of value, type and length before it.
func TestAttributes(t *testing.T) {
	for name, row := range map[string]struct {
		add  func(a *Attributes)
		want string
	}{
		"text":                              {func(a *Attributes) { a.Text(UserName, "nemo") }, "01066e656d6f"},
		"no text is no attribute":           {func(a *Attributes) { a.Text(UserName, "") }, ""},
		"text that is too long, cut":        {func(a *Attributes) { a.Text(UserName, strings.Repeat("x", 300)) }, "01ff" + strings.Repeat("78", 253)},
		"a number":                          {func(a *Attributes) { a.Integer(NASPortType, PortWirelessOther) }, "3d0600000012"},
		"seconds":                           {func(a *Attributes) { a.Seconds(AcctSessionTime, 90*time.Second+999*time.Millisecond) }, "2e060000005a"},
		"a time before now":                 {func(a *Attributes) { a.Seconds(AcctSessionTime, -time.Second) }, "2e0600000000"},
		"more seconds than 32 bits":         {func(a *Attributes) { a.Seconds(AcctSessionTime, 200*365*24*time.Hour) }, "2e06ffffffff"},
		"a counter of 32 bits":              {func(a *Attributes) { a.Counter(AcctInputOctets, AcctInputGigawords, 1<<32-1) }, "2a06ffffffff"},
		"a counter that has come round":     {func(a *Attributes) { a.Counter(AcctOutputOctets, AcctOutputGigawords, 1<<32) }, "2b0600000000350600000001"},
		"a counter of all bits":             {func(a *Attributes) { a.Counter(AcctInputOctets, AcctInputGigawords, 1<<64-1) }, "2a06ffffffff3406ffffffff"},
		"an address of IPv4":                {func(a *Attributes) { a.Address(NASIPAddress, NASIPv6Address, netip.MustParseAddr("192.0.2.1")) }, "0406c0000201"},
		"an address of IPv6":                {func(a *Attributes) { a.Address(NASIPAddress, NASIPv6Address, netip.MustParseAddr("2001:db8::1")) }, "5f1220010db8000000000000000000000001"},
		"no address":                        {func(a *Attributes) { a.Address(NASIPAddress, NASIPv6Address, netip.Addr{}) }, ""},
		"a prefix of 64 bits":               {func(a *Attributes) { a.Prefix(FramedIPv6Prefix, netip.MustParsePrefix("2001:db8:6:1::/64")) }, "610c004020010db800060001"},
		"a prefix of 57 bits":               {func(a *Attributes) { a.Prefix(DelegatedIPv6Prefix, netip.MustParsePrefix("2001:db8:6:1ff::/57")) }, "7b0c003920010db800060180"},
		"a prefix of no bits":               {func(a *Attributes) { a.Prefix(FramedIPv6Prefix, netip.MustParsePrefix("::/0")) }, "61040000"},
		"a prefix of all bits":              {func(a *Attributes) { a.Prefix(FramedIPv6Prefix, netip.MustParsePrefix("2001:db8::1/128")) }, "6114008020010db8000000000000000000000001"},
		"3GPP's":                            {func(a *Attributes) { a.GPP(21, []byte{1}) }, "1a09000028af150301"},
		"3GPP's text":                       {func(a *Attributes) { a.GPPText(10, "5") }, "1a09000028af0a0335"},
		"no text of 3GPP's is no attribute": {func(a *Attributes) { a.GPPText(10, "") }, ""},
		"a number of 3GPP's":                {func(a *Attributes) { a.GPPInteger(2, 0xabcd) }, "1a0c000028af02060000abcd"},
		"3GPP's that is too long, cut":      {func(a *Attributes) { a.GPP(22, make([]byte, 300)) }, "1aff000028af16f9" + strings.Repeat("00", 247)},
	} {
		var a Attributes
		row.add(&a)
		b := a.Append(nil)
		if got := hex.EncodeToString(b); got != row.want || a.length() != len(b) {
			t.Errorf("%s: %s, want %s", name, got, row.want)
		}
		read, err := ParseAttributes(b)
		if err != nil || !bytes.Equal(read.Append(nil), b) {
			t.Errorf("%s: read again %v, %v", name, read, err)
		}
	}
}

// TestParsePrefix reads prefixes of RFC 3162 section 2.3, also with octets that they do not need, and none with bits beyond
// their length.
func TestParsePrefix(t *testing.T) {
	for value, want := range map[string]string{
		"004020010db800060001":                     "2001:db8:6:1::/64",
		"0040 20010db800060001 0000000000000000":   "2001:db8:6:1::/64",
		"0038 20010db8000601":                      "2001:db8:6:100::/56",
		"0040 20010db8":                            "2001:db8::/64", // zeros may be left out
		"0000":                                     "::/0",
		"0080 20010db8000000000000000000000001":    "2001:db8::1/128",
		"ff40 20010db800060001":                    "2001:db8:6:1::/64", // the first octet is for later
		"0040 20010db80006000100":                  "2001:db8:6:1::/64",
		"0038 20010db800060101":                    "",
		"0040 20010db8 00060001 00000000 00000001": "",
		"0081 20010db8000000000000000000000001":    "",
		"0040 20010db8000600010000000000000000 00": "",
		"00": "",
		"":   "",
	} {
		p, ok := ParsePrefix(octets(value))
		if ok != (want != "") || ok && p.String() != want {
			t.Errorf("%s: %v, %t; want %s", value, p, ok, want)
		}
	}
}

// TestFind3GPP finds an attribute of 3GPP's among others in one of them or more, and none that is cut short or another
// vendor's.
func TestFind3GPP(t *testing.T) {
	for name, row := range map[string]struct{ list, want string }{
		"alone":                  {"1a09000028af150301", "01"},
		"behind another one":     {"1a0c000028af0a0335150301", "01"},
		"in the second":          {"1a09000028af0a0335 1a09000028af150301", "01"},
		"another vendor's":       {"1a0900000009150301", "none"},
		"behind another vendor":  {"1a0900000009150302 1a09000028af150301", "01"},
		"cut short":              {"1a09000028af150901", "none"},
		"of no length":           {"1a09000028af150001", "none"},
		"behind one that is cut": {"1a0c000028af0a0935150301", "none"},
		"without octets":         {"1a08000028af1502", ""},
		"no vendor":              {"1a05000028", "none"},
	} {
		a, err := ParseAttributes(octets(row.list))
		if err != nil {
			t.Fatal(name, err)
		}
		v, ok := a.Find3GPP(21)
		if got := hex.EncodeToString(v); ok != (row.want != "none") || ok && got != row.want {
			t.Errorf("%s: %s, %t; want %s", name, got, ok, row.want)
		}
	}
}
