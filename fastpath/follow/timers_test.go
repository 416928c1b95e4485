// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
)

// countingTable counts bumps; everything happens in one goroutine.
type countingTable struct {
	classes [slots4]byte
	bumps   int
}

func (c *countingTable) Bump()                                   { c.bumps++ }
func (c *countingTable) Routes4() []byte                         { return c.classes[:] }
func (c *countingTable) Neighbours() ([]fastpath.NextHop, error) { return nil, nil }

// still is a follower whose time is told, and that hears of nothing.
func still() (*Follower, *countingTable) {
	table := new(countingTable)
	f := &Follower{table: table, dirty: new(marks4)}
	f.numbers.reset()
	for i := range table.classes {
		table.classes[i] = 1
	}
	return f, table
}

var dawn = time.Unix(1_000_000_000, 0)

func TestRouteTakesItsClassesAtOnce(t *testing.T) {
	f, table := still()
	r := route("198.18.0.0/15", "")
	f.event(event{kind: routesChanged, routes: r.covers()}, dawn)
	for addr, want := range map[string]byte{"198.17.0.0": 1, "198.18.0.0": 0, "198.19.0.0": 0, "198.20.0.0": 1} {
		b := netip.MustParseAddr(addr).As4()
		if got := table.classes[int(b[0])<<8|int(b[1])]; got != want {
			t.Errorf("%s has class %d, want %d", addr, got, want)
		}
	}
	if table.bumps != 1 {
		t.Errorf("%d bumps", table.bumps)
	}
}

func TestBurstIsOneBumpEachFewMilliseconds(t *testing.T) {
	f, table := still()
	for i := range 100 {
		f.event(event{kind: lookupChanged}, dawn.Add(time.Duration(i)*10*time.Microsecond))
	}
	if table.bumps != 1 {
		t.Errorf("%d bumps at once", table.bumps)
	}
	for _, at := range []struct {
		after time.Duration
		bumps int
	}{
		{bumpSpacing - time.Millisecond, 1},
		{bumpSpacing, 2},
		{echoDelay - time.Millisecond, 2},
		{echoDelay, 3},
		{time.Hour, 3},
	} {
		f.timers(t.Context(), dawn.Add(at.after))
		if table.bumps != at.bumps {
			t.Errorf("%d bumps after %v, want %d", table.bumps, at.after, at.bumps)
		}
	}
	if next := f.next(); !next.IsZero() {
		t.Errorf("a timer is left, %v after the burst", next.Sub(dawn))
	}
}

// TestEveryChangeHasAnEcho has a change come just before the echo of another.
func TestEveryChangeHasAnEcho(t *testing.T) {
	f, table := still()
	f.event(event{kind: lookupChanged}, dawn)
	f.event(event{kind: lookupChanged}, dawn.Add(echoDelay-time.Millisecond))
	f.timers(t.Context(), dawn.Add(echoDelay))
	before := table.bumps
	f.timers(t.Context(), dawn.Add(2*echoDelay))
	if table.bumps == before {
		t.Error("the second change had no echo")
	}
}

// TestScansBumpSeldom has unknown neighbours fail, as a scan of a local network
// makes them.
func TestScansBumpSeldom(t *testing.T) {
	f, table := still()
	now := dawn
	for i := range 10_000 {
		now = now.Add(100 * time.Microsecond)
		key := neighbourKey{4, 2, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}
		f.event(event{kind: neighbourChanged, neighbour: key}, now)
		f.timers(t.Context(), now)
	}
	if most := int(time.Second/lazyDelay) + 1; table.bumps == 0 || table.bumps > most {
		t.Errorf("%d bumps in a second of a scan, want 1 to %d", table.bumps, most)
	}
	before := table.bumps
	f.event(event{kind: neighbourChanged, neighbour: neighbourKey{4, 2, netip.MustParseAddr("198.51.100.1")}, valid: true}, now.Add(bumpSpacing))
	if table.bumps != before+1 {
		t.Error("a neighbour that can be sent to waits for those that cannot")
	}
}

func TestRecountsWaitForQuiet(t *testing.T) {
	f, _ := still()
	change := func(at time.Duration) {
		f.event(event{kind: routesChanged, routes: everything4}, dawn.Add(at))
	}
	change(0)
	if got := f.recountAt().Sub(dawn); got != quietDelay {
		t.Errorf("recount after %v, want %v", got, quietDelay)
	}
	change(90 * time.Millisecond)
	if got := f.recountAt().Sub(dawn); got != 90*time.Millisecond+quietDelay {
		t.Errorf("recount after %v, want %v of quiet", got, quietDelay)
	}
	change(patience - time.Millisecond)
	if got := f.recountAt().Sub(dawn); got != patience {
		t.Errorf("recount after %v, want no later than %v", got, patience)
	}
	f.restUntil = dawn.Add(time.Minute)
	if got := f.recountAt().Sub(dawn); got != time.Minute {
		t.Errorf("recount after %v, in the time of rest", got)
	}
	f.running = true
	if !f.recountAt().IsZero() {
		t.Error("a recount would start beside another")
	}
}

// TestPublishSparesWhatChanged publishes a count during which routes changed.
func TestPublishSparesWhatChanged(t *testing.T) {
	f := newStage(t).follower
	classes := f.table.Routes4()
	hop := hop4{link: 2, via: netip.MustParseAddr("192.0.2.2")}
	all := make([]uint32, slots4)
	for i := range all {
		all[i] = 1
	}
	if err := f.publish(snapshot4{hops: []hop4{hop}, of: all}); err != nil {
		t.Fatal(err)
	}
	if classes[0xc612] != 0 {
		t.Error("a class was published although nothing has been counted since the start")
	}
	f.dirty.clear()
	r := route("198.18.0.0/24", "")
	f.mark(r.covers(), time.Now())
	if err := f.publish(snapshot4{hops: []hop4{hop}, of: all}); err != nil {
		t.Fatal(err)
	}
	if classes[0xc612] != 0 || classes[0xc613] != 1 {
		t.Errorf("what changed has class %d, what did not %d", classes[0xc612], classes[0xc613])
	}
	f.firstDirty = time.Time{}
	failed := time.Now()
	if err := f.publish(snapshot4{err: unix.EPERM}); err != nil {
		t.Fatal(err)
	}
	if f.firstDirty.IsZero() || f.recountAt().Before(failed.Add(retryClasses)) {
		t.Error("a count that failed is not tried again later")
	}
}

// endingTable ends its follower at the first bump.
type endingTable struct {
	*fakeTable
	end func()
}

func (e *endingTable) Bump() { e.end() }

// TestEndIsNoFailure ends a follower while it reads the events that came during a count of
// classes. What wakes it for the end must not be taken for a failure: a successor goes on with
// the classes.
func TestEndIsNoFailure(t *testing.T) {
	stage := newStage(t)
	f := stage.follower
	ctx, cancel := context.WithCancel(t.Context())
	f.table = &endingTable{stage.table, func() {
		cancel()
		f.wake()
	}}
	f.jobs <- snapshot4{of: make([]uint32, slots4)}
	stage.ns.Do(t, func() error { return netlink.RouteAdd(routeTo("2001:db8:2::/48", "2001:db8:1::2")) })
	if err := f.Run(ctx); err != nil {
		t.Errorf("the end is called a failure: %v", err)
	}
}
