// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/translate"
)

// crossed warns of mappings that take an address which means something else already: that
// of the translator itself, or an IPv4 host by a prefix.
func crossed(cfg *Settings, mappings []translate.Mapping) []string {
	inPool6 := func(q netip.Prefix) bool { return slices.ContainsFunc(cfg.Pool6, q.Overlaps) }
	var sentences []string
	sentences = append(sentences, each(mappings, func(m translate.Mapping) bool {
		return cfg.Address4.IsValid() && m.IPv4.Contains(cfg.Address4)
	}, "gives address4, from which the translator sends its own ICMP errors, to a host, as whose they are taken: choose another address4, or another address for the host")...)
	sentences = append(sentences, each(mappings, func(m translate.Mapping) bool { return inPool6(m.IPv6) },
		"has IPv6 addresses in pool6, which stand for IPv4 hosts, so that packets to them come back to the translator unless a longer route leads to the host: give the host an address outside of pool6")...)
	if a := cfg.Address6; a.IsValid() && inPool6(netip.PrefixFrom(a, a.BitLen())) {
		sentences = append(sentences, fmt.Sprintf("address6 %s lies in pool6, so ICMP errors of the translator itself seem to come from an IPv4 host: choose another address of this host", a))
	}
	return sentences
}

// each is one sentence about all mappings that are such, by the first of them.
func each(mappings []translate.Mapping, such func(translate.Mapping) bool, what string) []string {
	first := slices.IndexFunc(mappings, such)
	if first < 0 {
		return nil
	}
	more := 0
	for _, m := range mappings[first+1:] {
		if such(m) {
			more++
		}
	}
	others := ""
	if more > 0 {
		others = fmt.Sprintf(" (and %d more)", more)
	}
	return []string{fmt.Sprintf("the mapping %s%s %s", mappings[first], others, what)}
}
