// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"errors"
	"net/netip"
	"testing"
	"testing/iotest"
	"time"
)

func newFair(t *testing.T, l Limit) *Fair {
	t.Helper()
	f, err := NewFair(l, DefaultBuckets, seed())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// hosts returns n hosts of the network of a.
func hosts(a string, n int) []netip.Addr {
	first := netip.MustParseAddr(a)
	list := make([]netip.Addr, 0, n)
	for range n {
		list = append(list, first)
		first = first.Next()
	}
	return list
}

// served counts how many of the sources get the token that they ask for.
func served(f *Fair, now time.Time, sources ...netip.Addr) (n int) {
	for _, a := range sources {
		if f.Allow(a, now) {
			n++
		}
	}
	return n
}

func TestFair(t *testing.T) {
	for _, tt := range []struct {
		name    string
		flood   []netip.Addr // in turn, for a second, ten times the rate
		victims []netip.Addr // one packet each, when the second has passed
		served  int
	}{
		{"others of the /64 beside one host", hosts("2001:db8::1", 1), hosts("2001:db8::1:1", 10), 10},
		{"others of the /64 beside three hosts", hosts("2001:db8::1", 3), hosts("2001:db8::1:1", 10), 10},
		{"others of the /64 beside all its hosts", hosts("2001:db8::1", 10_000), hosts("2001:db8::2:1", 10), 0},
		{"other networks beside all hosts of a /64", hosts("2001:db8::1", 10_000), hosts("2001:db8:1::1", 10), 10},
		{"others of the /24 beside one host", hosts("192.0.2.1", 1), hosts("192.0.2.9", 10), 10},
		{"the next /24", hosts("192.0.2.0", 256), hosts("192.0.3.0", 10), 10},
		{"IPv4 hosts of a whole /24", hosts("192.0.2.0", 200), hosts("192.0.2.220", 10), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const rate = 100
			f := newFair(t, PerSecond(rate, rate))
			taken, n := 0, 0
			for ms := range 1000 {
				taken += served(f, start.Add(time.Duration(ms)*time.Millisecond), tt.flood[n%len(tt.flood)])
				n++
			}
			if taken < rate || taken > 2*rate {
				t.Errorf("the flood took %d, the network has %d a second and as many at once", taken, rate)
			}
			if got := served(f, start.Add(999*time.Millisecond), tt.victims...); got != tt.served {
				t.Errorf("%d of %d others were served, want %d", got, len(tt.victims), tt.served)
			}
		})
	}
}

// A host that is alone in its network has the whole rate in the long run.
func TestFairAlone(t *testing.T) {
	f := newFair(t, PerSecond(100, 100))
	a := netip.MustParseAddr("2001:db8::1")
	got := 0
	for ms := range 10_000 {
		got += served(f, start.Add(time.Duration(ms)*time.Millisecond), a)
	}
	if got < 1000 {
		t.Errorf("%d tokens in 10 s of 100 each", got)
	}
}

// A source takes its share of what all have in common.
func TestTake(t *testing.T) {
	l := PerSecond(1, 10)
	for _, tt := range []struct {
		name  string
		share Share
		want  int
	}{{"none", NoShare, 0}, {"spare", Spare, 6}, {"its own", Own, 10}} {
		var b Bucket
		got := 0
		for range 20 {
			if b.Take(l, tt.share, start) {
				got++
			}
		}
		if got != tt.want {
			t.Errorf("%s: %d tokens, want %d", tt.name, got, tt.want)
		}
	}
	f := newFair(t, PerSecond(80, 80))
	a := netip.MustParseAddr("2001:db8::1")
	count := map[Share]int{}
	for range 100 {
		count[f.Take(a, start)]++
	}
	if count[Own] != 80/hostShare || count[Spare] != 80/2+1-80/hostShare || count[NoShare] != 100-80/2-1 {
		t.Errorf("one host took %v", count)
	}
	f.SetLimit(Limit{})
	if f.Take(a, start) != Own {
		t.Error("limited although the limit was lifted")
	}
}

func TestHeld(t *testing.T) {
	const limit = 800
	h, err := NewHeld(DefaultBuckets, seed())
	if err != nil {
		t.Fatal(err)
	}
	greedy, other, outside := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("2001:db8:1::1")
	fill := func(a netip.Addr) (held int) {
		for h.Share(a, 10, limit) != NoShare {
			h.Add(a, 10)
			held += 10
		}
		return held
	}
	if got := fill(greedy); got != limit/2 {
		t.Errorf("one host holds %d, want half of %d", got, limit)
	}
	if got := fill(other); got != limit/hostShare {
		t.Errorf("beside it another holds %d, want its part of %d", got, limit/hostShare)
	}
	if got := h.Share(outside, limit/hostShare, limit); got != Own {
		t.Errorf("another network has share %d", got)
	}
	h.Add(greedy, -limit/2)
	if got := fill(other); got != limit/2-limit/hostShare {
		t.Errorf("when the first has given back, the other takes %d more", got)
	}
}

// Who has all networks of a site spends no more of what all have in common than is spare,
// beyond what one network may have.
func TestSites(t *testing.T) {
	const greedy = 1000 // networks of the site
	for _, tt := range []struct {
		name          string
		network       func(n int) netip.Addr
		inside, other string
		length        int
	}{
		{"networks of a /48", func(n int) netip.Addr {
			return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, 1, byte(n >> 8), byte(n), 15: 1})
		}, "2001:db8:1:ffff::1", "2001:db8:2::1", 64},
		{"clients of a /48 that are smaller than a /64", func(n int) netip.Addr {
			return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, 1, 0, byte(n >> 4), byte(n << 4), 15: 1})
		}, "2001:db8:1:ffff::1", "2001:db8:2::1", 72},
		{"clients of more than a /48", func(n int) netip.Addr {
			return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 5: byte(n), 6: byte(n >> 8), 15: 1})
		}, "2001:db8:ff:ff::1", "2001:db9::1", 32},
		{"networks of a /16", func(n int) netip.Addr {
			return netip.AddrFrom4([4]byte{198, 18, byte(n), 1})
		}, "198.18.255.255", "198.19.0.1", 64},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const limit = 16
			f, own := newFair(t, PerSecond(limit, limit)), 0
			f.SetClientLength(tt.length)
			h, err := NewHeld(DefaultBuckets, seed())
			if err != nil {
				t.Fatal(err)
			}
			for n := range greedy {
				if f.Take(tt.network(n), start) == Own {
					own++
				}
				h.Add(tt.network(n), 1)
			}
			if own == 0 || own > siteShare*limit {
				t.Errorf("%d as its own, one network has %d", own, limit)
			}
			inside, other := netip.MustParseAddr(tt.inside), netip.MustParseAddr(tt.other)
			if got := f.Take(other, start); got != Own {
				t.Errorf("another site takes by share %d", got)
			}
			if tt.length != 64 {
				return
			}
			if got := f.Take(inside, start); got != Spare {
				t.Errorf("the next of the site takes by share %d", got)
			}
			if got, outside := h.Share(inside, 1, limit), h.Share(other, 1, limit); got != Spare || outside != Own {
				t.Errorf("the site may hold more by share %d, another by %d", got, outside)
			}
		})
	}
}

// TestClientLength: all of a client is one, whatever its size.
func TestClientLength(t *testing.T) {
	for _, tt := range []struct {
		name          string
		length        int
		of            func(n int) netip.Addr
		want          Share // of the client that has asked for all that there is
		neighbor      string
		neighborShare Share
	}{
		{"a /56 with all its networks", 56, func(n int) netip.Addr {
			return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, 1, 1, byte(n), 15: byte(n)})
		}, NoShare, "2001:db8:1:200::1", Own},
		{"a /96 with all its hosts", 96, func(n int) netip.Addr {
			return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, 1, 15: byte(n)})
		}, NoShare, "2001:db8:1::1:0:1", Own},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFair(t, PerSecond(16, 16))
			f.SetClientLength(tt.length)
			for n := range 200 {
				f.Take(tt.of(n), start)
			}
			if got := f.Take(tt.of(200), start); got != tt.want {
				t.Errorf("the client has share %d", got)
			}
			if got := f.Take(netip.MustParseAddr(tt.neighbor), start); got != tt.neighborShare {
				t.Errorf("its neighbor has share %d, want %d", got, tt.neighborShare)
			}
		})
	}
}

func TestFairNoSeed(t *testing.T) {
	cause := errors.New("no entropy")
	if _, err := NewFair(Limit{}, 2, iotest.ErrReader(cause)); !errors.Is(err, cause) {
		t.Errorf("error %v", err)
	}
	if _, err := NewHeld(2, iotest.ErrReader(cause)); !errors.Is(err, cause) {
		t.Errorf("error %v", err)
	}
}

func BenchmarkFair(b *testing.B) {
	f, err := NewFair(PerSecond(1_000_000, 1000), DefaultBuckets, seed())
	if err != nil {
		b.Fatal(err)
	}
	a := netip.MustParseAddr("2001:db8::1")
	b.ReportAllocs()
	for b.Loop() {
		f.Allow(a, start)
	}
}
