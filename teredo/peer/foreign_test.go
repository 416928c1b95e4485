// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peer

import (
	"net/netip"
	"testing"
)

// contents are the mappings of a table.
func (t *ForeignTable) contents() map[[16]byte]netip.AddrPort {
	all := map[[16]byte]netip.AddrPort{}
	t.Walk(func(key [16]byte, mapped netip.AddrPort) { all[key] = mapped })
	return all
}

// TestForeignTable writes a table and opens it again, also spoilt.
func TestForeignTable(t *testing.T) {
	a, b, c := [16]byte{1}, [16]byte{2}, [16]byte{3}
	first, second := netip.MustParseAddrPort("198.51.100.8:50000"), netip.MustParseAddrPort("198.51.100.8:50001")
	memory := make([]byte, 2*foreignBytes)
	table, err := OpenForeign(memory)
	if err != nil {
		t.Fatal(err)
	}
	if !table.Put(a, first) || !table.Put(b, first) || table.Put(c, first) {
		t.Error("two places were not for two")
	}
	table.Delete(a)
	if !table.Put(c, second) || !table.Put(b, second) {
		t.Error("a place that is free again was not taken")
	}
	open := func(want map[[16]byte]netip.AddrPort) *ForeignTable {
		t.Helper()
		table, err := OpenForeign(memory)
		if err != nil {
			t.Fatal(err)
		}
		got := table.contents()
		if len(got) != len(want) {
			t.Errorf("%v, want %v", got, want)
		}
		for key, mapped := range want {
			if got[key] != mapped {
				t.Errorf("the mapping of %x is %v, want %v", key, got[key], mapped)
			}
		}
		return table
	}
	open(map[[16]byte]netip.AddrPort{b: second, c: second})
	table.Delete(b)
	if !open(map[[16]byte]netip.AddrPort{c: second}).Put(b, first) {
		t.Error("the place between was not taken")
	}
	memory[0]++ // the address of c
	open(map[[16]byte]netip.AddrPort{b: first})
	memory[foreignBytes+16+4]++ // the mapping of b
	open(nil)
	if _, err := OpenForeign(memory[:foreignBytes-1]); err == nil {
		t.Error("a table of no records was opened")
	}
}
