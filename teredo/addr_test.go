// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredo

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var oldPrefix = netip.MustParsePrefix("3ffe:831f::/32")

var compareNetip = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{})

func TestAddr(t *testing.T) {
	tests := []struct {
		name, ip string
		addr     Addr
	}{
		{
			"worked example of the first paper", "2001:0:303:303:8000:e148:fefe:fefe",
			Addr{Prefix, netip.MustParseAddr("3.3.3.3"), FlagCone, netip.MustParseAddrPort("1.1.1.1:7863")},
		},
		{
			"worked example with the older prefix", "3ffe:831f:303:303:8000:f7ff:fefe:fefe",
			Addr{oldPrefix, netip.MustParseAddr("3.3.3.3"), FlagCone, netip.MustParseAddrPort("1.1.1.1:2048")},
		},
		{
			"RFC 6081 figure 2, client A", "2001:0:cb00:7178:0:efff:3fff:fdfe",
			Addr{Prefix, netip.MustParseAddr("203.0.113.120"), 0, netip.MustParseAddrPort("192.0.2.1:4096")},
		},
		{
			"RFC 6081 figure 2, client B", "2001:0:c633:6476:0:dfff:3fff:fdf5",
			Addr{Prefix, netip.MustParseAddr("198.51.100.118"), 0, netip.MustParseAddrPort("192.0.2.10:8192")},
		},
		{
			"RFC 6081 figure 3, client A", "2001:0:cb00:7178:0:f000:39cc:9b89",
			Addr{Prefix, netip.MustParseAddr("203.0.113.120"), 0, netip.MustParseAddrPort("198.51.100.118:4095")},
		},
		{
			"RFC 6081 figure 3, client B", "2001:0:cb00:7178:0:efff:39cc:9b89",
			Addr{Prefix, netip.MustParseAddr("203.0.113.120"), 0, netip.MustParseAddrPort("198.51.100.118:4096")},
		},
		{
			"random flags", "2001:0:cb00:7101:3cff:f227:34ff:8ef5",
			Addr{Prefix, netip.MustParseAddr("203.0.113.1"), FlagsRandom, netip.MustParseAddrPort("203.0.113.10:3544")},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ip := netip.MustParseAddr(tt.ip)
			if got := tt.addr.IP(); got != ip {
				t.Errorf("IP() = %v, want %v", got, ip)
			}
			got, err := ParseAddr(ip, Prefix, oldPrefix)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.addr, got, compareNetip); diff != "" {
				t.Errorf("ParseAddr (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseAddrRefusesOtherPrefixes(t *testing.T) {
	for _, s := range []string{"2001:db8::1", "3ffe:831f::1", "fe80::8000:f227:34ff:8efe", "::", "192.0.2.1"} {
		if _, err := ParseAddr(netip.MustParseAddr(s), Prefix); err != FaultNotTeredo {
			t.Errorf("ParseAddr(%s) = %v, want %v", s, err, FaultNotTeredo)
		}
	}
}

// The server's link-local address as it was seen on the wire from Miredo.
func TestLinkLocal(t *testing.T) {
	got := LinkLocal(FlagCone, netip.MustParseAddrPort("203.0.113.1:3544"))
	if want := netip.MustParseAddr("fe80::8000:f227:34ff:8efe"); got != want {
		t.Errorf("LinkLocal = %v, want %v", got, want)
	}
}

func TestFlags(t *testing.T) {
	tests := []struct {
		name   string
		flags  Flags
		cone   bool
		random uint16
	}{
		{"none", 0, false, 0},
		{"cone alone", FlagCone, true, 0},
		{"all random bits", FlagsRandom, false, 0xfff},
		{"first random group", 0x2400, false, 0x900},
		{"reserved, universal and group bits are no random bits", 0x4300, false, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.flags.Cone(); got != tt.cone {
				t.Errorf("Cone() = %v, want %v", got, tt.cone)
			}
			if got := tt.flags.Random(); got != tt.random {
				t.Errorf("Random() = %#x, want %#x", got, tt.random)
			}
		})
	}
}

func TestGlobalCheck(t *testing.T) {
	lab := &GlobalCheck{
		Allow:      []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("0.0.0.0/0")},
		Broadcasts: []netip.Addr{netip.MustParseAddr("203.0.113.255")},
	}
	tests := []struct {
		addr         string
		plain, inLab bool
	}{
		{"203.0.113.1", true, true},
		{"8.8.8.8", true, true},
		{"100.63.255.255", true, true},
		{"100.64.0.1", false, true}, // newer than the list of RFC 4380 section 5.2.4
		{"100.127.255.255", false, true},
		{"192.0.0.1", false, true},
		{"198.18.0.1", false, true},
		{"192.0.2.1", true, true}, // examples
		{"198.51.100.1", true, true},
		{"203.0.113.255", true, false},
		{"0.1.2.3", false, false},
		{"127.0.0.1", false, false},
		{"10.1.2.3", false, true},
		{"172.16.0.1", false, true},
		{"172.31.255.1", false, true},
		{"172.32.0.1", true, true},
		{"192.168.1.2", false, true},
		{"169.254.1.1", false, true},
		{"192.88.99.1", false, true},
		{"224.0.0.253", false, false},
		{"240.0.0.1", false, false},
		{"255.255.255.255", false, false},
		{"::ffff:8.8.8.8", false, false},
		{"2001:db8::1", false, false},
	}
	for _, tt := range tests {
		a := netip.MustParseAddr(tt.addr)
		if got := new(GlobalCheck).OK(a); got != tt.plain {
			t.Errorf("zero check OK(%s) = %v, want %v", a, got, tt.plain)
		}
		if got := lab.OK(a); got != tt.inLab {
			t.Errorf("lab check OK(%s) = %v, want %v", a, got, tt.inLab)
		}
	}
}
