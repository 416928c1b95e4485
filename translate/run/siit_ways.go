// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/port"
)

// prefixes are destinations, for look-ups both of what they are in and of what is in them.
type prefixes struct {
	set     map[netip.Prefix]uint32 // with the metric
	sorted  []netip.Prefix          // by address
	lengths [2][]int                // present, by family, longest first
}

// newPrefixes makes a list ready for look-ups.
func newPrefixes(list []netip.Prefix) *prefixes {
	p := &prefixes{set: make(map[netip.Prefix]uint32, len(list)), sorted: slices.Clone(list)}
	slices.SortFunc(p.sorted, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	for _, one := range list {
		p.add(one, 0)
	}
	return p
}

// add adds a destination that need not be found inside another.
func (p *prefixes) add(one netip.Prefix, metric uint32) {
	p.set[one] = metric
	lengths := &p.lengths[one.Addr().BitLen()/128]
	if at, found := slices.BinarySearchFunc(*lengths, one.Bits(), func(a, b int) int { return b - a }); !found {
		*lengths = slices.Insert(*lengths, at, one.Bits())
	}
}

// around returns the longest destination that q is in, or that is q.
func (p *prefixes) around(q netip.Prefix) (netip.Prefix, bool) {
	for _, n := range p.lengths[q.Addr().BitLen()/128] {
		if n > q.Bits() {
			continue
		}
		wide := netip.PrefixFrom(q.Addr(), n).Masked()
		if _, found := p.set[wide]; found {
			return wide, true
		}
	}
	return netip.Prefix{}, false
}

// overlaps tells whether q is in a destination, or one in it.
func (p *prefixes) overlaps(q netip.Prefix) bool {
	if _, found := p.around(q); found {
		return true
	}
	at, _ := slices.BinarySearchFunc(p.sorted, q.Addr(), func(a netip.Prefix, b netip.Addr) int { return a.Addr().Compare(b) })
	return at < len(p.sorted) && q.Contains(p.sorted[at].Addr())
}

// inTheWay says why packets that are to be translated would not all reach the device of
// that index, empty: they would. An address of this host and a more specific route win
// over the translator (RFC 7915 sections 4.6 and 5.6), whose programs look at neither.
func inTheWay(host *port.Host, want *prefixes, device int) string {
	led, others := newPrefixes(nil), []port.Way(nil)
	err := host.EachWay(func(w port.Way) {
		if w.Link == device {
			led.add(w.Dst, w.Metric)
		} else if want.overlaps(w.Dst) {
			others = append(others, w)
		}
	})
	if err != nil {
		return "what leads packets past the translator cannot be told: " + err.Error()
	}
	for _, p := range want.sorted {
		if _, found := led.around(p); !found {
			return fmt.Sprintf("no route leads packets for %s to the translator's device", p)
		}
	}
	return led.lost(others)
}

// lost says which of other ways wins over these, if one does.
func (p *prefixes) lost(others []port.Way) string {
	for _, w := range others {
		wide, inside := p.around(w.Dst)
		switch {
		case w.Local:
			return fmt.Sprintf("packets for %s end on this host, where no program may take them: take it out of pool6, pool4 and the mappings, or from its interface", w.Dst)
		case inside && (wide != w.Dst || w.Metric < p.set[wide]):
			return fmt.Sprintf("the route to %s leads packets past the translator, where the programs would not: remove it for the fast path", w.Dst)
		}
	}
	return ""
}

// wouldBeInTheWay says the same for a translator that has no device yet.
func wouldBeInTheWay(want *prefixes) string {
	host, err := port.OpenHost()
	if err != nil {
		return err.Error()
	}
	defer host.Close()
	var others []port.Way
	err = host.EachWay(func(w port.Way) {
		if want.overlaps(w.Dst) {
			others = append(others, w)
		}
	})
	if err != nil {
		return err.Error()
	}
	return want.lost(others)
}
