// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pool

import (
	"errors"
	"net/netip"
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
