// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestOrder has data of several streams come in every mixture, and leave in order.
func TestOrder(t *testing.T) {
	want := make([]byte, 10_000)
	for i := range want {
		want[i] = byte(i * i)
	}
	dice := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var all []*Data
		for at := 0; at < len(want); {
			n := min(1+dice.IntN(300), len(want)-at)
			all = append(all, &Data{Offset: uint64(at), Media: want[at : at+n]})
			at += n
		}
		dice.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
		var got []byte
		o := Order{Limit: len(want) + waitingCost*len(all)}
		for _, d := range all {
			if err := o.Add(d, func(b []byte) error { got = append(got, b...); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) || o.Held() != 0 || o.Next() != uint64(len(want)) {
			t.Fatalf("%d octets left, %d wait", len(got), o.Held())
		}
	}
}

// TestOrderIsBounded: a peer that sends ahead, or twice, is refused.
func TestOrderIsBounded(t *testing.T) {
	take := func([]byte) error { return nil }
	o := Order{Limit: 10 + waitingCost}
	ten := make([]byte, 10)
	for _, step := range []struct {
		what string
		d    Data
		ok   bool
	}{
		{"the first", Data{Media: ten}, true},
		{"the first again", Data{Media: ten}, false},
		{"ahead", Data{Offset: 20, Media: ten}, true},
		{"ahead again", Data{Offset: 20, Media: ten}, false},
		{"too far ahead", Data{Offset: 31, Media: ten[:1]}, false},
		{"the missing one", Data{Offset: 10, Media: ten}, true},
		{"room again", Data{Offset: 40, Media: ten}, true},
	} {
		if err := o.Add(&step.d, take); (err == nil) != step.ok {
			t.Errorf("%s: %v", step.what, err)
		}
	}
	full := errors.New("the disk is full")
	if err := o.Add(&Data{Offset: 30, Media: ten}, func([]byte) error { return full }); err != full {
		t.Errorf("the error is %v", err)
	}
}
