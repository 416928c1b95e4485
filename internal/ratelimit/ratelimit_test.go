// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unsafe"
)

var start = time.Unix(1_700_000_000, 0)

func seed() io.Reader {
	return rand.NewChaCha8([32]byte{0x5a, 0xc3, 0x17})
}

// taken counts how many of n tokens a bucket gives at one moment.
func taken(b *Bucket, l Limit, n int, now time.Time) int {
	got := 0
	for range n {
		if b.Allow(l, now) {
			got++
		}
	}
	return got
}

func TestBucket(t *testing.T) {
	for _, tt := range []struct {
		name  string
		limit Limit
		wait  time.Duration // between the first taking of 100 and the second
		first int
		then  int
	}{
		{"new bucket is full, then as many as the time brought", PerSecond(10, 5), 300 * time.Millisecond, 5, 3},
		{"never more than the burst after a long rest", PerSecond(10, 5), time.Hour, 5, 5},
		{"nothing before the first token is back", PerSecond(10, 5), 99 * time.Millisecond, 5, 0},
		{"a token each minute", Every(time.Minute, 3), 2 * time.Minute, 3, 2},
		{"burst below one counts as one", PerSecond(10, 0), 100 * time.Millisecond, 1, 1},
		{"rate zero is no limit", PerSecond(0, 5), 0, 100, 100},
		{"negative rate is no limit", PerSecond(-1, 5), 0, 100, 100},
		{"zero value of Limit is no limit", Limit{}, 0, 100, 100},
		{"rate above one a nanosecond", PerSecond(math.MaxInt, 2), time.Second, 2, 2},
		{"burst that would overflow", PerSecond(1, math.MaxInt), 0, 100, 100},
		{"clock set back: full again", PerSecond(10, 5), -time.Hour, 5, 5},
		{"clock set back a little: still empty", PerSecond(10, 5), -time.Nanosecond, 5, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b Bucket
			if got := taken(&b, tt.limit, 100, start); got != tt.first {
				t.Errorf("at the start: %d tokens, want %d", got, tt.first)
			}
			if got := taken(&b, tt.limit, 100, start.Add(tt.wait)); got != tt.then {
				t.Errorf("after %v: %d tokens, want %d", tt.wait, got, tt.then)
			}
		})
	}
}

func TestBucketLongRunRate(t *testing.T) {
	var b Bucket
	l := PerSecond(200, 400)
	got := 0
	for i := range 10_000 { // one each millisecond for 10 s
		if b.Allow(l, start.Add(time.Duration(i)*time.Millisecond)) {
			got++
		}
	}
	// The burst, and then 200 a second over 9.999 s.
	if want := 400 + 1999; got != want {
		t.Errorf("%d tokens in 10 s, want %d", got, want)
	}
}

func TestAllowSpareLeavesHalf(t *testing.T) {
	for _, tt := range []struct {
		name         string
		limit        Limit
		spare, after int
	}{
		{"half of ten", PerSecond(10, 10), 6, 4}, // it looks before it takes
		{"a bucket of one", PerSecond(1, 1), 1, 0},
		{"no limit", Limit{}, 100, 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b Bucket
			got := 0
			for range 100 {
				if b.AllowSpare(tt.limit, start) {
					got++
				}
			}
			if got != tt.spare {
				t.Errorf("%d spare tokens, want %d", got, tt.spare)
			}
			if got := taken(&b, tt.limit, 100, start); got != tt.after {
				t.Errorf("then %d tokens for others, want %d", got, tt.after)
			}
			if !b.AllowSpare(tt.limit, start.Add(-time.Hour)) {
				t.Error("a clock set back closed the bucket")
			}
		})
	}
}

func TestPerSource(t *testing.T) {
	p, err := NewPerSource(PerSecond(1, 2), DefaultBuckets, seed())
	if err != nil {
		t.Fatal(err)
	}
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for i, want := range []bool{true, true, false} {
		if got := p.Allow(a, start); got != want {
			t.Errorf("token %d of one source: %v, want %v", i, got, want)
		}
	}
	if !p.Allow(b, start) {
		t.Error("a source pays for another one")
	}
	if !p.Allow(a, start.Add(time.Second)) {
		t.Error("no token came back after a second")
	}
	p.SetLimit(Limit{})
	if !p.Allow(a, start.Add(time.Second)) {
		t.Error("limited although the limit was lifted")
	}
}

func TestPerSourceZeroValue(t *testing.T) {
	var p PerSource
	for range 10 {
		if !p.Allow(netip.MustParseAddr("192.0.2.1"), start) {
			t.Fatal("the zero value limits")
		}
	}
}

func TestPerSourceNoSeed(t *testing.T) {
	cause := errors.New("no entropy")
	_, err := NewPerSource(PerSecond(1, 1), 2, iotest.ErrReader(cause))
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), "random seed") {
		t.Errorf("error %v", err)
	}
}

// Neighbouring addresses are what one network sends from: they must not crowd
// into few buckets.
func TestPerSourceSpread(t *testing.T) {
	p, err := NewPerSource(PerSecond(1, 1), DefaultBuckets, seed())
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint32(DefaultBuckets) {
		var ip [4]byte
		binary.BigEndian.PutUint32(ip[:], 0xc6336400+i)
		p.Allow(netip.AddrFrom4(ip), start)
	}
	for i, table := range p.tables {
		used := 0
		for _, b := range table {
			if b != (Bucket{}) {
				used++
			}
		}
		// n keys in n buckets fill n(1-1/e) of them on average: 2589; a good hash
		// stays within a few dozen.
		if used < 2400 {
			t.Errorf("%d neighbours share %d buckets of table %d", DefaultBuckets, used, i)
		}
	}
}

// Sources above their rate leave nearly all others theirs: who shares a bucket with one of
// them has another.
func TestBesideManyGreedy(t *testing.T) {
	const greedy, others = 100, 1000
	// Hosts of many networks; who is limited by himself is each of them.
	host := func(network, n int) netip.Addr {
		return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, byte(network >> 8), byte(network), 15: byte(n)})
	}
	limit := PerSecond(10, 10)
	alone, err := NewPerSource(limit, DefaultBuckets, seed())
	if err != nil {
		t.Fatal(err)
	}
	fair := newFair(t, limit)
	held, err := NewHeld(DefaultBuckets, seed())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		hosts int // of each that is greedy
		take  func(netip.Addr) bool
	}{
		{"a limit for each source", 1, func(a netip.Addr) bool { return alone.Allow(a, start) }},
		{"a limit for each network", 10, func(a netip.Addr) bool { return fair.Take(a, start) != NoShare }},
		{"a part of a store", 10, func(a netip.Addr) bool {
			may := held.Share(a, 1, 10) != NoShare
			if may {
				held.Add(a, 1)
			}
			return may
		}},
	} {
		for n := range 20 {
			for i := range greedy {
				tt.take(host(i, n%tt.hosts))
			}
		}
		refused := 0
		for i := range others {
			if !tt.take(host(greedy+i, 0)) {
				refused++
			}
		}
		// By one table 24 of them are on average, by two less than one.
		if refused > 5 {
			t.Errorf("%s: %d of %d others were refused", tt.name, refused, others)
		}
	}
}

// A source that shares its buckets with others is never richer than one alone: however the
// two were drawn apart, they do not serve it in turn.
func TestTwoBucketsGiveOneRate(t *testing.T) {
	const rate, burst, seconds = 10, 5, 100
	random, seeds := rand.New(rand.NewPCG(1, 2)), seed()
	for trial := range 20 {
		p, err := NewPerSource(PerSecond(rate, burst), 2, seeds)
		if err != nil {
			t.Fatal(err)
		}
		got := map[netip.Addr]int{}
		sources := hosts("192.0.2.1", 4)
		for ms := range seconds * 1000 {
			a := sources[random.IntN(len(sources))]
			if p.Allow(a, start.Add(time.Duration(ms)*time.Millisecond)) {
				got[a]++
			}
		}
		for a, n := range got {
			if n > burst+rate*seconds {
				t.Errorf("trial %d: %s got %d tokens of %d", trial, a, n, burst+rate*seconds)
			}
		}
	}
}

func TestBudget(t *testing.T) {
	if got := unsafe.Sizeof(Bucket{}); got != 8 {
		t.Errorf("a bucket takes %d bytes, want 8", got)
	}
	p, err := NewPerSource(PerSecond(1, 1), 1000, seed())
	if err != nil {
		t.Fatal(err)
	}
	if len(p.tables[0]) != 1024 || len(p.tables[1]) != 1024 {
		t.Errorf("1000 buckets were rounded to %d and %d, want 1024", len(p.tables[0]), len(p.tables[1]))
	}
	a := netip.MustParseAddr("2001:db8::1")
	if n := testing.AllocsPerRun(1000, func() { p.Allow(a, start) }); n != 0 {
		t.Errorf("%v allocations per packet", n)
	}
}

func BenchmarkPerSource(b *testing.B) {
	p, err := NewPerSource(PerSecond(1_000_000, 1000), DefaultBuckets, seed())
	if err != nil {
		b.Fatal(err)
	}
	a := netip.MustParseAddr("192.0.2.1")
	b.ReportAllocs()
	for b.Loop() {
		p.Allow(a, start)
	}
}
