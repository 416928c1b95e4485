// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pool

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestParts gives leases of a part by its name alone, each in its own round, and keeps them over a change
// of the settings.
func TestParts(t *testing.T) {
	_, s := make4(t, 0, "10.45.0.0-10.45.0.7")
	s.Parts = []Part{{"gold", netip.MustParsePrefix("10.45.0.2/31")}, {"gold", netip.MustParsePrefix("10.45.0.6/32")}, {"last", netip.MustParsePrefix("10.45.0.7/32")}}
	p, err := New(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	takeOf := func(name string) string {
		l, err := p.TakeOf(name, start)
		if err != nil {
			return err.Error()
		}
		return l.String()
	}
	same(t, take(t, p, 2, start), "10.45.0.0/32", "10.45.0.1/32")
	same(t, []string{takeOf("gold"), takeOf("gold"), takeOf("gold"), takeOf("gold"), takeOf("none")},
		"10.45.0.2/32", "10.45.0.3/32", "10.45.0.6/32", ErrExhausted.Error(), ErrNoPart.Error())
	free(t, p, start, "10.45.0.3/32")
	same(t, take(t, p, 2, start.Add(time.Second)), "10.45.0.4/32", "10.45.0.5/32")
	if _, err := p.Take(start.Add(time.Second)); !errors.Is(err, ErrExhausted) {
		t.Errorf("of no part: %v", err)
	}
	if p.HasOf("gold", netip.MustParsePrefix("10.45.0.7/32")) || !p.HasOf("last", netip.MustParsePrefix("10.45.0.7/32")) || !p.HasOf("", netip.MustParsePrefix("10.45.0.0/32")) {
		t.Error("leases are of other parts")
	}
	s.Parts = s.Parts[:1]
	if err := p.Resize(s); err != nil {
		t.Fatal(err)
	}
	same(t, []string{takeOf("gold"), takeOf("last"), takeOf("")}, "10.45.0.3/32", ErrNoPart.Error(), "10.45.0.7/32")
	if c := p.Counters(); c.Used != 8 || c.Free != 0 {
		t.Errorf("%+v", c)
	}
}

// TestPartCounters counts what of each part is used, rests and is free, over changes of the settings, too.
func TestPartCounters(t *testing.T) {
	_, s := make4(t, time.Minute, "10.45.0.0-10.45.0.31")
	p, err := New(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	if list := p.Parts(); len(list) != 0 {
		t.Errorf("without names: %v", list)
	}
	s.Parts = []Part{{"gold", netip.MustParsePrefix("10.45.0.16/28")}}
	if err := p.Resize(s); err != nil {
		t.Fatal(err)
	}
	want := func(when string, list ...PartCounters) {
		t.Helper()
		if got := p.Parts(); !slices.Equal(got, list) {
			t.Errorf("%s: %v, want %v", when, got, list)
		}
	}
	takeAll := func(n int, at time.Time) (all []netip.Prefix) {
		t.Helper()
		for range n {
			l, err := p.TakeOf("gold", at)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, l)
		}
		return all
	}
	other, err := p.Take(start)
	if err != nil {
		t.Fatal(err)
	}
	gold := takeAll(16, start)
	want("one and a full part", PartCounters{"", 1, 0, 15}, PartCounters{"gold", 16, 0, 0})
	for _, l := range append(gold[:15:15], other) {
		p.Free(l, start)
	}
	want("freed", PartCounters{"", 0, 1, 15}, PartCounters{"gold", 1, 15, 0})
	if err := p.TakeExact(gold[0], start); err != nil {
		t.Fatal(err)
	}
	want("taken while it rests", PartCounters{"", 0, 1, 15}, PartCounters{"gold", 2, 14, 0})
	s.Parts = append(s.Parts, Part{"last", netip.MustParsePrefix("10.45.0.0/28")})
	if err := p.Resize(s); err != nil {
		t.Fatal(err)
	}
	want("another part, of all the rest", PartCounters{"gold", 2, 14, 0}, PartCounters{"last", 0, 1, 15})
	if !p.Expire(start.Add(time.Hour), 4) { // the first of which does not rest any more
		t.Error("nothing rests")
	}
	s.Parts = s.Parts[:1]
	if err := p.Resize(s); err != nil {
		t.Fatal(err)
	}
	want("three have rested", PartCounters{"", 0, 1, 15}, PartCounters{"gold", 2, 11, 3})
	takeAll(3, start.Add(time.Second))
	takeAll(1, start.Add(time.Hour)) // as many have rested as one call looks at
	want("rested", PartCounters{"", 0, 1, 15}, PartCounters{"gold", 6, 3, 7})
}

// TestFullPartWaits: a part that is full has its own leases back as soon as they have rested, however many of
// others rest before them.
func TestFullPartWaits(t *testing.T) {
	_, s := make4(t, time.Minute, "10.45.0.0-10.45.0.31")
	s.Parts = []Part{{"gold", netip.MustParsePrefix("10.45.0.16/32")}}
	p, err := New(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := take(t, p, 12, start)
	gold, err := p.TakeOf("gold", start)
	if err != nil {
		t.Fatal(err)
	}
	free(t, p, start, append(all, gold.String())...)
	if got, err := p.TakeOf("gold", start.Add(time.Minute)); err != nil || got != gold {
		t.Errorf("%v, %v", got, err)
	}
}

// TestPartsRefused: parts are of the pool, and each lease is of one at most.
func TestPartsRefused(t *testing.T) {
	_, s := make4(t, 0, "10.45.0.0/24")
	for _, row := range []struct {
		name  string
		parts []Part
	}{
		{"outside", []Part{{"gold", netip.MustParsePrefix("10.46.0.0/28")}}},
		{"without a name", []Part{{"", netip.MustParsePrefix("10.45.0.0/28")}}},
		{"of another family", []Part{{"gold", netip.MustParsePrefix("2001:db8::/64")}}},
		{"overlapping", []Part{{"gold", netip.MustParsePrefix("10.45.0.0/28")}, {"last", netip.MustParsePrefix("10.45.0.8/29")}}},
		{"none", []Part{{Name: "gold"}}},
	} {
		if s.Parts = row.parts; s.Check() == nil {
			t.Errorf("%s: it is a part", row.name)
		}
	}
}
