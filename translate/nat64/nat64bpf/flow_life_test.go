// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
)

func TestSessionLimit(t *testing.T) {
	r := newFlowRig(t, someSizes)
	c := r.client(flowHost, 3)
	for i := range 3 {
		r.expect(outward(state.UDP, 5000, uint16(1+i)), To4Forwarded)
	}
	full := outward(state.UDP, 5000, 4)
	r.expect(full, Reason(nat64ReasonREASON_SESSION_LIMIT))
	r.table.ViewSubscriber(c.Index, &c)
	if c.Sessions != 3 || c.Bindings != 1 {
		t.Errorf("the client is %+v", c)
	}
	s := r.session(outward(state.UDP, 5000, 2))
	if o := r.table.End(&s); o != state.Made {
		t.Fatal(o)
	}
	r.expect(full, To4Forwarded)
	r.table.SetSessionLimit(&c, 0)
	r.expect(outward(state.UDP, 5000, 5), To4Forwarded)
}

// What anybody may send from the IPv4 side leaves half of a client's sessions, and a quarter
// of the table, to those that clients open.
func TestSessionsOfTheIPv4SideAreFewer(t *testing.T) {
	r := newFlowRig(t, someSizes)
	c := r.client(flowHost, 5)
	r.expect(outward(state.UDP, 5000, 1), To4Forwarded)
	bound := r.session(outward(state.UDP, 5000, 1)).PoolPort
	r.expect(inward(state.UDP, bound, 2), To6Forwarded)
	r.expect(inward(state.UDP, bound, 3), To6Forwarded)
	r.expect(inward(state.UDP, bound, 4), Reason(nat64ReasonREASON_SESSION_LIMIT))
	r.expect(inward(state.UDP, bound, 3), To6Forwarded)
	r.expect(outward(state.UDP, 5000, 4), To4Forwarded)
	r.expect(outward(state.UDP, 5000, 5), To4Forwarded)
	r.expect(outward(state.UDP, 5000, 6), Reason(nat64ReasonREASON_SESSION_LIMIT))

	r.table.SetSessionLimit(&c, 0)
	room := someSizes.Sessions - someSizes.Sessions/4
	for i := range 2 * someSizes.Sessions {
		r.run(inward(state.UDP, bound, uint16(1000+i)), 1)
	}
	flooded := r.table.Counts().Sessions
	if flooded > room || flooded < room*7/8 {
		t.Fatalf("%d sessions, want %d", flooded, room)
	}
	r.expect(inward(state.UDP, bound, 999), Reason(nat64ReasonREASON_SESSIONS_FULL))
	// Some buckets of an index are full, where the engine would make room.
	for i := range someSizes.Sessions / 4 {
		r.run(outward(state.UDP, 5000, uint16(20000+i)), 1)
	}
	if n := r.table.Counts().Sessions - flooded; n < someSizes.Sessions/8 {
		t.Errorf("the client got %d sessions of the %d that are left", n, someSizes.Sessions/4)
	}
}

// A lock that is held is not waited for.
func TestLocksThatAreHeld(t *testing.T) {
	r := newFlowRig(t, someSizes)
	c := r.client(flowHost, 0)
	p := outward(state.UDP, 5000, 53)
	lock := &recordAt[nat64Subscriber](r.Memory()[state.SlabSubscribers], c.Index).Lock
	atomic.StoreUint32(lock, 1)
	r.expect(p, Reason(nat64ReasonREASON_BUSY))
	if *lock != 1 {
		t.Error("a lock of another was given back")
	}
	atomic.StoreUint32(lock, 0)
	r.expect(p, To4Forwarded)
	if *lock != 0 {
		t.Error("the lock was kept")
	}
	s := r.session(p)
	lock = &recordAt[nat64Binding](r.Memory()[state.SlabBindings], s.Binding).Lock
	atomic.StoreUint32(lock, 1)
	r.expect(p, To4Forwarded) // needs no lock
	other := outward(state.UDP, 5000, 54)
	r.expect(other, Reason(nat64ReasonREASON_BUSY))
	atomic.StoreUint32(lock, 0)
	r.expect(other, To4Forwarded)
	if *lock != 0 {
		t.Error("the lock was kept")
	}
}

func TestSessionsThatHaveExpired(t *testing.T) {
	r := newFlowRig(t, someSizes, func(s *Settings) {
		// So long that a machine that stands still does not end a session.
		s.Lifetimes[state.UDP][state.Opened] = 4000 * state.StampUnit
		s.Lifetimes[state.TCP][state.Trans] = 2000 * state.StampUnit
	})
	r.client(flowHost, 0)
	for _, tt := range []struct {
		name      string
		transport state.Transport
		status    state.Status
		age       uint32
		want      Reason
	}{
		{"UDP in time", state.UDP, state.Opened, 3600, To4Forwarded},
		{"UDP too late", state.UDP, state.Opened, 4001, Reason(nat64ReasonREASON_EXPIRED)},
		{"TCP of a long state", state.TCP, state.Established, 4001, To4Forwarded},
		{"TCP of a short state in time", state.TCP, state.Trans, 1600, To4Forwarded},
		{"TCP of a short state too late", state.TCP, state.Trans, 2001, Reason(nat64ReasonREASON_EXPIRED)},
		{"of a core whose clock is ahead", state.UDP, state.Opened, ^uint32(99), To4Forwarded},
	} {
		p := outward(tt.transport, 5000, uint16(len(tt.name)))
		p.flags = 16
		_, s := r.make(p, state.Fresh{Status: tt.status, Stamp: stampNow() - tt.age})
		if got := r.send(p); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		after := r.session(p)
		if refreshed := after.Word != s.Word; refreshed != (tt.want == To4Forwarded && tt.age < 1<<20) {
			t.Errorf("%s: the word was %x and is %x", tt.name, s.Word, after.Word)
		}
		r.table.End(&after)
	}
}

func TestSessionsOfTheEngine(t *testing.T) {
	r := newFlowRig(t, someSizes)
	r.client(flowHost, 0)
	for i, flags := range []state.Flags{state.Slow, state.Expected, state.Detoured} {
		p := outward(state.UDP, 5000, uint16(10+i))
		_, s := r.make(p, state.Fresh{Status: state.Opened, Flags: flags, Stamp: stampNow()})
		r.expect(p, Reason(nat64ReasonREASON_ENGINE_SESSION))
		r.expect(inward(state.UDP, s.PoolPort, uint16(10+i)), Reason(nat64ReasonREASON_ENGINE_SESSION))
	}
}

// Stamps are renewed once a second, by the side that may.
func TestStamps(t *testing.T) {
	rig := newFlowRig(t, someSizes)
	for _, tt := range []struct {
		name     string
		outbound bool
		from4    bool
		age      uint32
		want     bool
	}{
		{"from IPv6", false, false, 10, true},
		{"from IPv4", false, true, 10, true},
		{"from IPv6, lately", false, false, 2, false},
		{"from IPv6, where that side alone may", true, false, 10, true},
		{"from IPv4, where it may not", true, true, 10, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := rig.renewed(t, func(s *Settings) { s.OutboundOnly = tt.outbound })
			r.client(flowHost, 0)
			for _, transport := range []state.Transport{state.UDP, state.ICMP} {
				p := outward(transport, 5000, 80)
				var start uint32
				var s state.Session
				for conclusive := false; !conclusive; {
					start = stampNow()
					_, s = r.make(p, state.Fresh{Status: state.Opened, Stamp: start - tt.age})
					sent := p
					if tt.from4 {
						sent = inward(transport, s.PoolPort, 80)
					}
					if got := r.send(sent); got.Verdict() != fastpath.Forward {
						t.Fatalf("%s", got)
					}
					// A machine that stood still has made what was there lately old.
					if conclusive = tt.want || tt.outbound || stampNow() == start; !conclusive {
						s = r.session(p)
						if o := r.table.End(&s); o != state.Made {
							t.Fatal(o)
						}
					}
				}
				after := r.session(p)
				if got := after.Word.Stamp() != s.Word.Stamp(); got != tt.want {
					t.Errorf("%s: renewed: %t, want %t", transport, got, tt.want)
				}
				if tt.want && !isStampOf(after.Word, start) {
					t.Errorf("%s: renewed at stamp %d or later, it has %d", transport, start, after.Word.Stamp())
				}
			}
		})
	}
}

// Programs that may not run leave state alone.
func TestFlowsWhileAsleep(t *testing.T) {
	r := newFlowRig(t, someSizes)
	r.client(flowHost, 0)
	r.Sleep()
	r.expect(outward(state.UDP, 5000, 53), Reason(nat64ReasonREASON_ASLEEP))
	if c := r.table.Counts(); c.Sessions != 0 {
		t.Errorf("%+v", c)
	}
	r.Beat(time.Hour)
	r.expect(outward(state.UDP, 5000, 53), To4Forwarded)
}

// Of a client that the engine guards the programs make nothing, and go on with what is there.
func TestGuardedClients(t *testing.T) {
	r := newFlowRig(t, someSizes)
	c := r.client(flowHost, 0)
	for _, transport := range allTransports {
		p := outward(transport, 5000, 53)
		r.expect(p, To4Forwarded)
		port := r.session(p).PoolPort
		stranger := inward(transport, port, 54)
		stranger.peer = netip.MustParseAddr("198.51.100.10")
		other := p
		other.peer = stranger.peer
		r.table.SetGuarded(&c, true)
		r.expect(p, To4Forwarded)
		r.expect(outward(transport, 5001, 53), Reason(nat64ReasonREASON_NO_CLIENT))
		r.expect(other, Reason(nat64ReasonREASON_NO_CLIENT))
		if transport != state.ICMP { // a request of the IPv4 side makes nothing in any case
			r.expect(stranger, Reason(nat64ReasonREASON_NO_CLIENT))
		}
		r.table.SetGuarded(&c, false)
		r.expect(outward(transport, 5001, 53), To4Forwarded)
		r.expect(other, To4Forwarded)
	}
}

// A prefix that is no longer named is not chosen for who comes first from the IPv4 side.
func TestLeavingPrefixIsNotChosen(t *testing.T) {
	two := func(leaving bool) func(*Settings) {
		return func(s *Settings) {
			s.Pool6[0].Leaving = leaving
			s.Pool6 = append(s.Pool6, translatebpf.Prefix{Prefix: netip.MustParsePrefix("2001:db8:65::/96")})
		}
	}
	r := newFlowRig(t, someSizes, two(false))
	r.client(flowHost, 0)
	p := outward(state.UDP, 5000, 53)
	r.expect(p, To4Forwarded)
	port := r.session(p).PoolPort
	r.expect(inward(state.UDP, port, 54), To6Forwarded)
	s := flowSettings()
	s.Tunnel = r.tunnel
	two(true)(&s)
	if err := r.Set(s); err != nil {
		t.Fatal(err)
	}
	r.expect(inward(state.UDP, port, 54), To6Forwarded) // is there
	r.expect(inward(state.UDP, port, 55), Reason(nat64ReasonREASON_OTHER_PREFIX))
}
