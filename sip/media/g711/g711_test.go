// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package g711

import (
	"slices"
	"testing"
)

// rule is a law as the tables of G.711 give it: the decision values of the positive half, in
// units of so many of 16 bits, and the octet of the interval at a place, before its sign.
type rule struct {
	law       Law
	decisions []int
	unit      int
	octet     func(interval int, negative bool) byte
}

// segments appends decision values: so many of each step.
func segments(decisions []int, counts, steps []int) []int {
	for i, n := range counts {
		for range n {
			decisions = append(decisions, decisions[len(decisions)-1]+steps[i])
		}
	}
	return decisions
}

var rules = []rule{
	{ // Table 2: the first interval is half as wide as the others of its segment.
		PCMU,
		segments([]int{0, 1}, []int{15, 16, 16, 16, 16, 16, 16, 16}, []int{2, 4, 8, 16, 32, 64, 128, 256}), 4,
		func(n int, negative bool) byte {
			if negative {
				return 0x7f - byte(n)
			}
			return 0xff - byte(n)
		},
	},
	{ // Table 1
		PCMA,
		segments([]int{0}, []int{32, 16, 16, 16, 16, 16, 16}, []int{2, 4, 8, 16, 32, 64, 128}), 8,
		func(n int, negative bool) byte {
			if negative {
				return byte(n) ^ 0x55
			}
			return (byte(n) | 0x80) ^ 0x55
		},
	},
}

// output is the middle of an interval; of mu-law's first it is 0.
func (r *rule) output(n int) int {
	if r.law == PCMU && n == 0 {
		return 0
	}
	return (r.decisions[n] + r.decisions[n+1]) * r.unit / 2
}

func TestDecode(t *testing.T) {
	for _, r := range rules {
		if len(r.decisions) != 129 {
			t.Fatalf("%s: %d decision values", r.law, len(r.decisions))
		}
		for n := range 128 {
			for _, negative := range []bool{false, true} {
				want := r.output(n)
				if negative {
					want = -want
				}
				if got := r.law.Decode(r.octet(n, negative)); int(got) != want {
					t.Errorf("%s: octet %02x of interval %d is %d, want %d", r.law, r.octet(n, negative), n, got, want)
				}
			}
		}
	}
}

// TestEncode looks at every sample: its octet is that of the interval that it lies in. On a
// decision value either neighbour will do, since G.711 leaves that open.
func TestEncode(t *testing.T) {
	for _, r := range rules {
		for sample := -32768; sample <= 32767; sample++ {
			magnitude, negative := sample, sample < 0
			if negative {
				magnitude = -sample
			}
			var allowed []byte
			for n := range 128 {
				low, high := r.decisions[n]*r.unit, r.decisions[n+1]*r.unit
				if low <= magnitude && magnitude <= high || n == 127 && magnitude > high {
					allowed = append(allowed, r.octet(n, negative))
				}
			}
			if got := r.law.Encode(int16(sample)); !slices.Contains(allowed, got) {
				t.Fatalf("%s: %d becomes %02x, want one of %02x", r.law, sample, got, allowed)
			}
		}
	}
}

func TestThereAndBack(t *testing.T) {
	for _, law := range []Law{PCMU, PCMA} {
		for i := range 256 {
			octet := byte(i)
			want := octet
			if law == PCMU && octet == 0x7f {
				want = 0xff // mu-law has two octets for nothing
			}
			if got := law.Encode(law.Decode(octet)); got != want {
				t.Errorf("%s: %02x becomes %02x", law, octet, got)
			}
		}
		if s := law.Decode(law.Silence()); s < -8 || s > 8 {
			t.Errorf("%s: silence is %d", law, s)
		}
	}
	if got := PCMU.Translate(0xff, PCMA); got != 0xd5 {
		t.Errorf("silence of mu-law is %02x in A-law", got)
	}
	if got := PCMA.Translate(0x12, PCMA); got != 0x12 {
		t.Errorf("an octet of A-law is %02x in A-law", got)
	}
}
