// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"net/netip"
	"strings"
	"testing"
)

func TestExamineNAT64Broadcast(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		name, address string
		refused       bool
	}{
		{"a host's address", "192.0.2.70", false},
		{"the network's broadcast address", "192.0.2.255", true},
		{"the network's first address", "192.0.2.0", true},
	} {
		c := nat64Config(t)
		c.Pool4 = []PoolRange{{Prefix: netip.PrefixFrom(netip.MustParseAddr(tt.address), 32), Transports: AllTransports, First: 1024, Last: 65535}}
		var err error
		w.gateway.Do(t, func() error { err = ExamineNAT64(c); return nil })
		if refused := err != nil && strings.Contains(err.Error(), "all hosts of 192.0.2.0/24"); refused != tt.refused {
			t.Errorf("%s: error %v", tt.name, err)
		}
	}
}

// TestAdviseOnHost tells of interfaces that are not there, and of the host's own addresses
// where they are to be translated one for one.
func TestAdviseOnHost(t *testing.T) {
	w := newWorld(t)
	n, s := nat64Config(t), defaultSIIT()
	n.AnnouncePREF64 = []string{"v6", "nope0"}
	s.Pool6 = []netip.Prefix{netip.MustParsePrefix("2001:db8:64::/96")}
	s.Pool4 = []netip.Prefix{netip.MustParsePrefix("192.0.2.64/32")}
	var told []string
	advise := func() {
		w.gateway.Do(t, func() error {
			told = append(AdviseNAT64(n), AdviseSIIT(s)...)
			return nil
		})
	}
	advise()
	if len(told) != 1 || !strings.Contains(told[0], "no network interface nope0") {
		t.Errorf("told %q", told)
	}
	n.AnnouncePREF64 = nil
	s.Pool4 = append(s.Pool4, netip.PrefixFrom(gateway4, 32))
	advise()
	if len(told) != 1 || !strings.Contains(told[0], "192.0.2.1 is an address of this host") {
		t.Errorf("told %q", told)
	}
}
