// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
)

// Ranges of this host are joined where one record holds them, and come before all others.
func TestPoolIsJoined(t *testing.T) {
	type ports = [state.Transports]PortRange
	host, routed := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("198.51.100.0/28")
	none := PortRange{First: 1}
	tcp := func(first, last uint16) Range { return Range{host, ports{{first, last}, none, none}, true} }
	udp := func(first, last uint16) Range { return Range{host, ports{none, {first, last}, none}, true} }
	whole := Range{Prefix: routed, Ports: ports{{1024, 2000}, none, none}}
	for _, tt := range []struct {
		name       string
		pool, want []Range
	}{
		{"one run of each transport", []Range{tcp(2000, 2999), udp(4000, 4999)}, []Range{{host, ports{{2000, 2999}, {4000, 4999}, none}, true}}},
		{"neighbours", []Range{tcp(2000, 2999), tcp(3000, 3999), tcp(1000, 1999)}, []Range{tcp(1000, 3999)}},
		{"a gap", []Range{tcp(2000, 2999), tcp(3001, 3999)}, []Range{tcp(2000, 2999), tcp(3001, 3999)}},
		{"a gap, and another transport", []Range{tcp(2000, 2999), tcp(3001, 3999), udp(1, 2)}, []Range{{host, ports{{2000, 2999}, {1, 2}, none}, true}, tcp(3001, 3999)}},
		{"all ports", []Range{tcp(0, 65535), tcp(1, 1)}, []Range{tcp(0, 65535)}},
		{"behind others", []Range{whole, {Prefix: routed}, tcp(1, 2)}, []Range{tcp(1, 2), whole}},
	} {
		if got := Join(tt.pool); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// The programs know an own address also behind as many others as they hold.
func TestOwnAddressBehindOthers(t *testing.T) {
	s := flowSettings()
	s.Pool4 = nil
	for i := range byte(translatebpf.MaxPool4) {
		s.Pool4 = append(s.Pool4, Range{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, 113, i}), 32)})
	}
	own := netip.MustParseAddr("192.0.2.1")
	s.Pool4 = append(s.Pool4, Range{netip.PrefixFrom(own, 32), [state.Transports]PortRange{{20000, 29999}, {First: 1}, {First: 1}}, true})
	var c nat64Nat64Settings
	s.fillPool4(&c)
	if first := c.Pool4[0]; first.Address != fastpath.IPv4Word(own) || first.Flags != pool4Own || first.First[state.TCP] != 20000 || c.Pool4Count != translatebpf.MaxPool4 {
		t.Errorf("first of %d is %+v", c.Pool4Count, first)
	}
}
