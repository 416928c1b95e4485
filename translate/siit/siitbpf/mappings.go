// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitbpf

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/translate"
)

// Names of the tables of mappings in the object.
const (
	siitMappings4 = "mappings4"
	siitMappings6 = "mappings6"
)

// siitMappings are the programs' tables of explicit mappings, one for each direction.
type siitMappings struct {
	four, six *ebpf.Map
	room      int

	current []translate.Mapping // in the tables
	torn    []translate.Mapping // of a change that failed: some of them may be there
}

// set has the tables hold these mappings alone. It touches those that differ from before.
func (t *siitMappings) set(next []translate.Mapping) error {
	if len(next) > t.room {
		return t.full(len(next))
	}
	gone, fresh := changed(t.current, next)
	if t.torn != nil {
		gone, fresh = t.torn, next
	}
	if err := errors.Join(t.remove(gone), t.add(fresh)); err != nil {
		t.torn, t.current = slices.Concat(gone, t.current, next), nil
		return fmt.Errorf("the mappings cannot be given to the fast path: %w", err)
	}
	t.torn, t.current = nil, next
	return nil
}

// full says that there is no room for so many.
func (t *siitMappings) full(n int) error {
	if t.room == MaxMappings {
		return fmt.Errorf("the fast path has room for %d mappings, and there are %d: join some to shorter prefixes", t.room, n)
	}
	return fmt.Errorf("the fast path has room for %d mappings, and there are %d: restart isthmus, and it makes room", t.room, n)
}

// changed returns what of one list is not in the other. Lists that are alike but for a few
// beside each other, as when one is added or removed, are compared without effort.
func changed(was, is []translate.Mapping) (gone, fresh []translate.Mapping) {
	for len(was) > 0 && len(is) > 0 && was[0] == is[0] {
		was, is = was[1:], is[1:]
	}
	for len(was) > 0 && len(is) > 0 && was[len(was)-1] == is[len(is)-1] {
		was, is = was[:len(was)-1], is[:len(is)-1]
	}
	return without(was, is), without(is, was)
}

// without returns what of a list is not among the others.
func without(list, others []translate.Mapping) []translate.Mapping {
	if len(others) == 0 {
		return list
	}
	among := make(map[translate.Mapping]struct{}, len(others))
	for _, m := range others {
		among[m] = struct{}{}
	}
	var left []translate.Mapping
	for _, m := range list {
		if _, ok := among[m]; !ok {
			left = append(left, m)
		}
	}
	return left
}

// remove takes mappings out, as far as they are there.
func (t *siitMappings) remove(list []translate.Mapping) error {
	for _, m := range list {
		err4, err6 := t.four.Delete(key4(m)), t.six.Delete(key6(m))
		for _, err := range []error{err4, err6} {
			if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return err
			}
		}
	}
	return nil
}

// batch is how many mappings the kernel takes at once.
const batch = 1024

// add puts mappings in.
func (t *siitMappings) add(list []translate.Mapping) error {
	n := min(len(list), batch)
	keys4, values6 := make([]siitMapping4, 0, n), make([]siitMapped6, 0, n)
	keys6, values4 := make([]siitMapping6, 0, n), make([]siitMapped4, 0, n)
	for some := range slices.Chunk(list, batch) {
		keys4, values6, keys6, values4 = keys4[:0], values6[:0], keys6[:0], values4[:0]
		for _, m := range some {
			suffix := 32 - m.IPv4.Bits()
			shift := 128 - m.IPv6.Bits() - suffix
			keys4 = append(keys4, *key4(m))
			values6 = append(values6, siitMapped6{Base: fastpath.IPv6Words(m.IPv6.Masked().Addr().As16()), Suffix: uint32(suffix), Shift: uint32(shift)})
			keys6 = append(keys6, *key6(m))
			values4 = append(values4, siitMapped4{Base: fastpath.IPv4Word(m.IPv4.Masked().Addr()), Suffix: uint16(suffix), Shift: uint16(shift)})
		}
		if _, err := t.four.BatchUpdate(keys4, values6, nil); err != nil {
			return err
		}
		if _, err := t.six.BatchUpdate(keys6, values4, nil); err != nil {
			return err
		}
	}
	return nil
}

func key4(m translate.Mapping) *siitMapping4 {
	return &siitMapping4{Bits: uint32(m.IPv4.Bits()), Address: fastpath.IPv4Word(m.IPv4.Masked().Addr())}
}

func key6(m translate.Mapping) *siitMapping6 {
	return &siitMapping6{Address: fastpath.IPv6Words(m.IPv6.Masked().Addr().As16()), Bits: uint64(m.IPv6.Bits())}
}
