// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pool

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"
)

var start = time.Unix(1_700_000_000, 0)

// make4 returns a pool of IPv4 ranges.
func make4(t testing.TB, hold time.Duration, ranges ...string) (*Pool, Settings) {
	t.Helper()
	s := Settings{Length: 32, Hold: hold}
	for _, text := range ranges {
		r, err := ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		s.Ranges = append(s.Ranges, r)
	}
	p, err := New(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	return p, s
}

// take takes leases and returns them as text.
func take(t *testing.T, p *Pool, n int, now time.Time) (got []string) {
	t.Helper()
	for range n {
		l, err := p.Take(now)
		if err != nil {
			t.Fatalf("after %v: %v", got, err)
		}
		got = append(got, l.String())
	}
	return got
}

func free(t *testing.T, p *Pool, now time.Time, leases ...string) {
	t.Helper()
	for _, l := range leases {
		if !p.Free(netip.MustParsePrefix(l), now) {
			t.Fatalf("%s was not used", l)
		}
	}
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("leases %v, want %v", got, want)
	}
}

func exhausted(t *testing.T, p *Pool, now time.Time) {
	t.Helper()
	if l, err := p.Take(now); !errors.Is(err, ErrExhausted) {
		t.Errorf("%v, %v of a pool that is exhausted", l, err)
	}
}

// TestLeasesGoRound gives none again before the others have had their turn.
func TestLeasesGoRound(t *testing.T) {
	p, _ := make4(t, 0, "192.0.2.8/29")
	same(t, take(t, p, 2, start), "192.0.2.9/32", "192.0.2.10/32")
	free(t, p, start, "192.0.2.9/32", "192.0.2.10/32")
	same(t, take(t, p, 6, start), "192.0.2.11/32", "192.0.2.12/32", "192.0.2.13/32", "192.0.2.14/32", "192.0.2.9/32", "192.0.2.10/32")
	exhausted(t, p, start)
	free(t, p, start, "192.0.2.12/32")
	same(t, take(t, p, 1, start), "192.0.2.12/32")
	exhausted(t, p, start)
}

// TestHoldTime keeps freed leases from others, and not from their owner.
func TestHoldTime(t *testing.T) {
	p, _ := make4(t, time.Minute, "192.0.2.10-192.0.2.11")
	take(t, p, 2, start)
	free(t, p, start, "192.0.2.10/32")
	exhausted(t, p, start.Add(time.Minute-1))
	if c := p.Counters(); c != (Counters{Size: 2, Used: 1, Held: 1}) {
		t.Errorf("%+v", c)
	}
	same(t, take(t, p, 1, start.Add(time.Minute)), "192.0.2.10/32")

	free(t, p, start.Add(2*time.Minute), "192.0.2.11/32")
	owned := netip.MustParsePrefix("192.0.2.11/32")
	if err := p.TakeExact(owned, start.Add(2*time.Minute+time.Second)); err != nil {
		t.Error("held from its owner:", err)
	}
	if err := p.TakeExact(owned, start.Add(time.Hour)); !errors.Is(err, ErrUsed) {
		t.Error("taken twice:", err)
	}
	free(t, p, start.Add(2*time.Minute+30*time.Second), "192.0.2.11/32")
	exhausted(t, p, start.Add(3*time.Minute+29*time.Second)) // the second hold counts, not the first
	same(t, take(t, p, 1, start.Add(3*time.Minute+30*time.Second)), "192.0.2.11/32")
}

// TestHoldChanges: what rests does so by the hold time of now, longer or shorter than when it was freed.
func TestHoldChanges(t *testing.T) {
	for _, row := range []struct{ before, now time.Duration }{{time.Minute, time.Hour}, {time.Hour, time.Minute}, {time.Hour, 0}} {
		p, s := make4(t, row.before, "192.0.2.10-192.0.2.10")
		free(t, p, start, take(t, p, 1, start)...)
		s.Hold = row.now
		if err := p.Resize(s); err != nil {
			t.Fatal(err)
		}
		if row.now > 0 {
			exhausted(t, p, start.Add(row.now-1))
		}
		same(t, take(t, p, 1, start.Add(row.now)), "192.0.2.10/32")
	}
}

// TestClockSetBack: leases that are freed after the clock was set back rest no shorter than those before them, and keep
// none of them.
func TestClockSetBack(t *testing.T) {
	p, _ := make4(t, time.Minute, "192.0.2.10-192.0.2.11")
	take(t, p, 2, start)
	free(t, p, start, "192.0.2.10/32")
	free(t, p, start.Add(-time.Hour), "192.0.2.11/32")
	for l := range p.Leases() {
		if !l.Freed.Equal(start) {
			t.Errorf("%v was freed at %v, want %v", l.Prefix, l.Freed, start)
		}
	}
	exhausted(t, p, start.Add(-time.Hour+time.Minute))
	exhausted(t, p, start.Add(time.Minute-1))
	same(t, take(t, p, 2, start.Add(time.Minute)), "192.0.2.10/32", "192.0.2.11/32")
}

// TestFreedAtOnce has leases that were freed together free together again.
func TestFreedAtOnce(t *testing.T) {
	p, _ := make4(t, time.Minute, "192.0.2.10-192.0.2.12")
	free(t, p, start, take(t, p, 3, start)...)
	exhausted(t, p, start.Add(time.Minute-1))
	take(t, p, 3, start.Add(time.Minute))
}

// TestOwnerComesAndGoes does so more often than the queue of held leases has places.
func TestOwnerComesAndGoes(t *testing.T) {
	p, _ := make4(t, time.Hour, "192.0.2.0/24")
	l := netip.MustParsePrefix("192.0.2.7/32")
	for i := range 10_000 {
		now := start.Add(time.Duration(i) * time.Second / 10)
		if err := p.TakeExact(l, now); err != nil || !p.Free(l, now) {
			t.Fatal(err)
		}
	}
	if n := len(p.queue); n > queueSpare+2 {
		t.Errorf("%d entries for one lease", n)
	}
	if c := p.Counters(); c.Held != 1 || c.Used != 0 {
		t.Errorf("%+v", c)
	}
}

// TestResize keeps what is used.
func TestResize(t *testing.T) {
	p, s := make4(t, time.Minute, "192.0.2.10-192.0.2.12")
	take(t, p, 3, start)
	s.Ranges = []Range{{netip.MustParseAddr("192.0.2.12"), netip.MustParseAddr("192.0.2.13")}}
	if err := p.Resize(s); err != nil {
		t.Fatal(err)
	}
	if c := p.Counters(); c != (Counters{Size: 2, Used: 3, Free: 1, Draining: 2}) {
		t.Errorf("%+v", c)
	}
	if err := p.TakeExact(netip.MustParsePrefix("192.0.2.10/32"), start); !errors.Is(err, ErrOutside) {
		t.Error("one that is to drain:", err)
	}
	same(t, take(t, p, 1, start), "192.0.2.13/32")
	free(t, p, start, "192.0.2.10/32", "192.0.2.11/32")
	exhausted(t, p, start.Add(time.Hour))
	if c := p.Counters(); c != (Counters{Size: 2, Used: 2}) {
		t.Errorf("%+v", c)
	}
	for name, wrong := range map[string]Settings{
		"another family": {Length: 64, Ranges: []Range{PrefixRange(netip.MustParsePrefix("2001:db8::/48"))}},
		"nothing":        {Length: 32},
	} {
		if err := p.Resize(wrong); err == nil {
			t.Error(name, "is taken")
		}
	}
	if c := p.Counters(); c.Size != 2 {
		t.Errorf("%+v after settings that were refused", c)
	}
	s.Ranges[0].First = netip.MustParseAddr("192.0.2.10")
	if err := p.Resize(s); err != nil {
		t.Fatal(err)
	}
	same(t, take(t, p, 2, start.Add(time.Hour)), "192.0.2.10/32", "192.0.2.11/32")
}

// TestFreeOfWhatIsNotUsed changes nothing.
func TestFreeOfWhatIsNotUsed(t *testing.T) {
	p, _ := make4(t, time.Minute, "192.0.2.0/24")
	take(t, p, 1, start)
	free(t, p, start, "192.0.2.1/32")
	for _, l := range []string{"192.0.2.1/32", "192.0.2.2/32", "192.0.2.0/24", "198.51.100.1/32", "2001:db8::/64"} {
		if p.Free(netip.MustParsePrefix(l), start) || p.Used(netip.MustParsePrefix(l)) {
			t.Error(l, "was used")
		}
	}
	if p.Free(netip.Prefix{}, start) {
		t.Error("nothing was used")
	}
	if c := p.Counters(); c != (Counters{Size: 254, Held: 1, Free: 253}) {
		t.Errorf("%+v", c)
	}
}

// TestRestart takes leases over to another pool, with what is left of their hold time.
func TestRestart(t *testing.T) {
	p, s := make4(t, time.Minute, "192.0.2.10-192.0.2.13")
	take(t, p, 4, start)
	free(t, p, start, "192.0.2.13/32")
	free(t, p, start.Add(time.Second), "192.0.2.11/32")
	s.Ranges[0].First = netip.MustParseAddr("192.0.2.11")
	next, err := New(s, 1<<63+5)
	if err != nil {
		t.Fatal(err)
	}
	for l := range p.Leases() {
		if err := next.Adopt(l, start.Add(2*time.Second)); err != nil {
			t.Error(l, err)
		}
		if err := next.Adopt(l, start.Add(2*time.Second)); !errors.Is(err, ErrUsed) {
			t.Error(l, "twice:", err)
		}
	}
	if err := next.Adopt(Lease{Prefix: netip.MustParsePrefix("2001:db8::/64")}, start); !errors.Is(err, ErrOutside) {
		t.Error("another family:", err)
	}
	if c := next.Counters(); c != (Counters{Size: 3, Used: 2, Held: 2, Draining: 1}) {
		t.Errorf("%+v", c)
	}
	exhausted(t, next, start.Add(time.Minute-1))
	same(t, take(t, next, 1, start.Add(time.Minute)), "192.0.2.13/32")
	exhausted(t, next, start.Add(time.Minute+time.Second-1))
	same(t, take(t, next, 1, start.Add(time.Minute+time.Second)), "192.0.2.11/32")
	if !next.Used(netip.MustParsePrefix("192.0.2.10/32")) {
		t.Error("one of no range any more is lost")
	}
}

// TestRoundBeginsAnywhere begins where the random number says, in any of the ranges.
func TestRoundBeginsAnywhere(t *testing.T) {
	_, s := make4(t, 0, "192.0.2.10-192.0.2.11", "192.0.2.20-192.0.2.21")
	for random, want := range []string{"192.0.2.10/32", "192.0.2.11/32", "192.0.2.20/32", "192.0.2.21/32", "192.0.2.10/32"} {
		p, err := New(s, uint64(random))
		if err != nil {
			t.Fatal(err)
		}
		same(t, take(t, p, 1, start), want)
		take(t, p, 3, start)
		exhausted(t, p, start)
	}
}

// TestManyAreReleasedAFewAtATime shows the bound of what one call does.
func TestManyAreReleasedAFewAtATime(t *testing.T) {
	p, _ := make4(t, time.Minute, "198.51.0.0/16")
	leases := take(t, p, 1000, start)
	free(t, p, start, leases...)
	take(t, p, 1, start.Add(time.Hour))
	if c := p.Counters(); c.Held != 1000-releaseMost {
		t.Errorf("%+v", c)
	}
}

// TestReturned: a lease that no one has had is free at once, whatever the hold time, and the
// hold of others goes on.
func TestReturned(t *testing.T) {
	p, _ := make4(t, time.Minute, "192.0.2.10-192.0.2.12")
	take(t, p, 3, start)
	free(t, p, start, "192.0.2.10/32")
	if !p.Return(netip.MustParsePrefix("192.0.2.11/32")) {
		t.Error("it was used")
	}
	for _, lease := range []string{"192.0.2.10/32", "192.0.2.11/32", "192.0.2.99/32", "2001:db8::/64"} {
		if p.Return(netip.MustParsePrefix(lease)) {
			t.Errorf("%s is not used", lease)
		}
	}
	if c := p.Counters(); c != (Counters{Size: 3, Used: 1, Held: 1, Free: 1}) {
		t.Errorf("%+v", c)
	}
	same(t, take(t, p, 1, start), "192.0.2.11/32")
	exhausted(t, p, start)
}

func TestUses(t *testing.T) {
	p, _ := make4(t, time.Minute, "10.45.0.0/24", "10.46.0.0/30")
	got := take(t, p, 66, start)
	for prefix, want := range map[string]bool{
		"10.45.0.0/24": true, "10.45.0.0/26": true, "10.45.0.64/29": true, "10.45.0.128/25": false, "10.46.0.0/30": false, "10.0.0.0/8": true,
		"10.45.0.66/32": true, "10.45.0.67/32": false, "2001:db8::/32": false,
	} {
		if p.Uses(netip.MustParsePrefix(prefix)) != want {
			t.Errorf("%s: not %v, of %v", prefix, want, got)
		}
	}
	if free(t, p, start, got...); p.Uses(netip.MustParsePrefix("10.45.0.0/24")) {
		t.Error("leases that are held are used")
	}
}

// TestExpire ends holds where nobody asks for leases, a part of them at a time.
func TestExpire(t *testing.T) {
	p, err := New(Settings{Ranges: []Range{PrefixRange(netip.MustParsePrefix("10.45.0.0/24"))}, Length: 32, Hold: time.Minute}, 0)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_700_000_000, 0)
	for range 100 {
		lease, err := p.Take(now)
		if err != nil || !p.Free(lease, now) {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		after time.Duration
		most  int
		held  uint64
	}{{59 * time.Second, 1000, 100}, {time.Minute, 30, 70}, {time.Minute, 30, 40}, {time.Minute, 1000, 0}, {time.Hour, 1, 0}} {
		if more := p.Expire(now.Add(tt.after), tt.most); more != (tt.held > 0) || p.Counters().Held != tt.held {
			t.Errorf("after %v: %v, %+v", tt.after, more, p.Counters())
		}
	}
}

// TestHas: a lease is one of the settings', whoever has it, and not for being used.
func TestHas(t *testing.T) {
	p, _ := make4(t, 0, "192.0.2.10-192.0.2.11")
	take(t, p, 1, start)
	gone := netip.MustParsePrefix("192.0.2.9/32")
	if err := p.Adopt(Lease{Prefix: gone}, start); err != nil {
		t.Fatal(err)
	}
	for lease, want := range map[string]bool{"192.0.2.10/32": true, "192.0.2.11/32": true, gone.String(): false, "192.0.2.10/31": false, "2001:db8::/64": false} {
		if p.Has(netip.MustParsePrefix(lease)) != want {
			t.Errorf("%s: %v", lease, !want)
		}
	}
}
