// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"fmt"
	"testing"
	"time"
)

// offer offers packets of a size at twice a rate for a time, and returns how many octets passed.
func offer(p *policer, rate uint32, size int, from, d time.Duration) (octets int) {
	gap := time.Duration(size) * 8 * time.Millisecond / time.Duration(rate) / 2
	for at := from; at < from+d; at += gap {
		if p.take(size, at) {
			octets += size
		}
	}
	return octets
}

// TestPolicedRate: of twice the rate the rate passes, and no more ahead than is stated.
func TestPolicedRate(t *testing.T) {
	for _, rate := range []uint32{8, 128, 2000, 50_000, 1_000_000} {
		for _, size := range []int{64, 1280} {
			t.Run(fmt.Sprint(rate, size), func(t *testing.T) {
				var p policer
				p.setRate(rate, true)
				const d = 10 * time.Second
				want := int(rate) * 1250 // octets in 10 s
				burst := max(int(rate)*1000/8/5, 2*policedMTU)
				if got := offer(&p, rate, size, time.Hour, d); got < want*998/1000-size || got > want*1002/1000+burst {
					t.Errorf("%d octets passed, want %d and %d ahead", got, want, burst)
				}
				// Once it is spent there is the rate and nothing more.
				if got := offer(&p, rate, size, time.Hour+d, d); got < want*998/1000-size || got > want*1002/1000+size {
					t.Errorf("%d octets passed in the next 10 s, want %d", got, want)
				}
			})
		}
	}
}

func TestPolicerLimits(t *testing.T) {
	var p policer
	if !p.take(65535, 0) || p.Arrival != 0 {
		t.Error("no limit stops a packet, or counts it")
	}
	p.setRate(0, true)
	if p.open(time.Hour) || p.take(1, time.Hour) {
		t.Error("at no rate a packet passes")
	}
	p.setRate(1, true) // the largest cost that there is
	if !p.take(65535, time.Hour) || p.take(1, time.Hour+8*65535*time.Millisecond-p.ahead()-time.Millisecond) || !p.take(1, time.Hour+8*65535*time.Millisecond) {
		t.Error("65535 octets at 1 kbit/s do not take 524 s")
	}
	p.setRate(1000, true)
	if p.Arrival == 0 {
		t.Error("another rate forgets what was spent")
	}
}

// ahead is slack as a duration.
func (p *policer) ahead() time.Duration { return time.Duration(p.slack()) }

// BenchmarkPolicer is what the rates of a context and of its session cost a packet, with limits and
// without.
func BenchmarkPolicer(b *testing.B) {
	for _, limited := range []bool{false, true} {
		b.Run(fmt.Sprintf("limited=%v", limited), func(b *testing.B) {
			var w way
			var all policer
			w.setRate(10_000_000, limited)
			all.setRate(10_000_000, limited)
			c := call{at: time.Hour}
			for b.Loop() {
				c.at += 1000
				if !w.pass(&w.policer, &all, 64, c) {
					b.Fatal("dropped below the rate")
				}
			}
		})
	}
}
