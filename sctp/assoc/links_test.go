// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

func TestLinkDownAndUp(t *testing.T) {
	for name, sender := range map[string]int{"sends": 0, "receives": 1} {
		t.Run(name, func(t *testing.T) { testLinkDownAndUp(t, sender) })
	}
}

// testLinkDownAndUp takes a link of the first host down and up again while one of both sends.
func testLinkDownAndUp(t *testing.T, sender int) {
	w := newWorld(t, dual(), Defaults())
	w.delay = delays(2*time.Millisecond, 100*time.Millisecond)
	w.connect(w.hosts[1].end.config.Addresses...)
	w.run(5 * time.Second)
	mover, h, other, sent := w.hosts[0], w.hosts[sender], w.hosts[1-sender], 0
	h.talkFor(time.Second, 5*time.Millisecond, &sent)
	other.gap = 0
	w.lost = cutFirst
	mover.a.LinkDown([]netip.Addr{dual()[0][0]}, w.now, &mover.out)
	mover.flush()
	h.talkFor(2*time.Second, 5*time.Millisecond, &sent)
	// As long takes the word to a peer that sends, and its data; and for all, slow start on the other way.
	most := 100*time.Millisecond + 20*time.Millisecond
	if other.gap > most {
		t.Errorf("nothing came for %v, at most %v is due", other.gap, most)
	}
	w.lost = nil
	back := w.now
	mover.a.LinkUp(dual()[0][0], w.now, &mover.out)
	mover.flush()
	var first time.Duration
	w.trace = func(from int, p Packet) {
		if _, data := firstTSN(p); data && first == 0 && from == sender && path1(p.Pair) {
			first = w.now.Sub(back)
		}
	}
	h.talkFor(2*time.Second, 5*time.Millisecond, &sent)
	w.run(time.Second)
	if most = 2*2*time.Millisecond + 100*time.Millisecond + 10*time.Millisecond; first == 0 || first > most {
		t.Errorf("data returns after %v, at most %v is due", first, most)
	}
	if len(other.got) != sent {
		t.Errorf("%d messages of %d have come", len(other.got), sent)
	}
}

// quickAndLong is a host with a quick way and a longer one to a peer with one address.
func quickAndLong(t *testing.T, par Parameters) (w *world, quick func(Pair) bool, first netip.Addr) {
	at := dual()
	at[1] = addresses("2001:db8:3::b")
	first = at[0][0]
	w = newWorld(t, at, par)
	quick = func(p Pair) bool { return p.Local == first || p.Remote == first }
	w.delay = func(p Pair) time.Duration {
		if quick(p) {
			return 500 * time.Microsecond
		}
		return 104 * time.Millisecond
	}
	w.connect(at[1]...)
	return w, quick, first
}

// TestReturn takes the quick way of a host down and up again, to a peer that sends. The host, which has nothing to send
// at that moment, asks it to come back by the way that is back, not by the longer one.
func TestReturn(t *testing.T) {
	w, quick, address := quickAndLong(t, Defaults())
	mover, peer, sent := w.hosts[0], w.hosts[1], 0
	peer.talkFor(2*time.Second, 5*time.Millisecond, &sent)
	w.lost = func(_ int, p Packet) bool { return quick(p.Pair) }
	mover.a.LinkDown([]netip.Addr{address}, w.now, &mover.out)
	mover.flush()
	peer.talkFor(2*time.Second, 5*time.Millisecond, &sent)
	w.lost = nil
	back, first := w.now, time.Duration(0)
	w.trace = func(from int, p Packet) {
		if _, data := firstTSN(p); data && first == 0 && from == 1 && quick(p.Pair) {
			first = w.now.Sub(back)
		}
	}
	mover.a.LinkUp(address, w.now, &mover.out)
	mover.flush()
	peer.talkFor(time.Second, 5*time.Millisecond, &sent)
	if most := 3*500*time.Microsecond + 5*time.Millisecond; first == 0 || first > most {
		t.Errorf("data returns after %v, at most %v is due", first, most)
	}
	if w.run(time.Second); len(mover.got) != sent {
		t.Errorf("%d messages of %d have come", len(mover.got), sent)
	}
}

// TestLeaveAgain has a host leave its quick way while that works, return, and leave again, while the peer sends less than a
// window holds: each time messages come one after the other, but for the difference of the ways. Nothing was lost, so that
// no window may be closed.
func TestLeaveAgain(t *testing.T) {
	w, _, address := quickAndLong(t, Defaults())
	mover, peer, sent := w.hosts[0], w.hosts[1], 0
	talk := func() {
		for end := w.now.Add(2 * time.Second); w.now.Before(end); w.run(10 * time.Millisecond) {
			if err := peer.a.Send(Message{User: make([]byte, 100)}, w.now, &peer.out); err != nil {
				t.Fatal(err)
			}
			peer.flush()
			sent++
		}
	}
	talk()
	for round := range 3 {
		mover.gap = 0
		mover.a.LinkDown([]netip.Addr{address}, w.now, &mover.out)
		mover.flush()
		talk()
		if most := 104*time.Millisecond + 10*time.Millisecond; mover.gap > most {
			t.Errorf("round %d: nothing came for %v, at most %v is due", round, mover.gap, most)
		}
		mover.a.LinkUp(address, w.now, &mover.out)
		mover.flush()
		talk()
	}
	if w.run(time.Second); len(mover.got) != sent {
		t.Errorf("%d messages of %d have come", len(mover.got), sent)
	}
}

// TestLostChange loses the request to send elsewhere that a host makes when its quick way goes down. It is made again by the
// longer way alone: when later data is acknowledged; without data, by T4.
func TestLostChange(t *testing.T) {
	for _, tt := range []struct {
		name  string
		talks bool
		most  time.Duration // until it is made again
	}{
		{"data", true, 208*time.Millisecond + 100*time.Millisecond},
		{"no data", false, time.Second + 10*time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, quick, address := quickAndLong(t, Defaults())
			mover, sent := w.hosts[0], 0
			mover.talkFor(2*time.Second, 10*time.Millisecond, &sent)
			w.run(time.Second)
			down := w.now
			var asked []time.Duration
			w.lost = func(_ int, p Packet) bool {
				_, chunks, _ := chunk.Open(p.Octets)
				if !movesAddress(chunks) {
					return quick(p.Pair)
				}
				if asked = append(asked, w.now.Sub(down)); quick(p.Pair) {
					t.Error("the way that is down is asked by")
				}
				return len(asked) == 1
			}
			mover.a.LinkDown([]netip.Addr{address}, w.now, &mover.out)
			mover.flush()
			if tt.talks {
				mover.talkFor(2*time.Second, 10*time.Millisecond, &sent)
			}
			w.run(2 * time.Second)
			if len(asked) != 2 || asked[0] != 0 || asked[1] > tt.most {
				t.Errorf("asked after %v, at most %v is due", asked, tt.most)
			}
			if mover.a.changes.chunk != nil || len(w.hosts[1].got) != sent {
				t.Errorf("%d messages of %d have come", len(w.hosts[1].got), sent)
			}
		})
	}
}

// TestChangeByLostLink takes a way down by which a request is out: it is made at once by the other.
func TestChangeByLostLink(t *testing.T) {
	w, quick, address := quickAndLong(t, Defaults())
	mover, asked := w.hosts[0], 0
	w.run(time.Second)
	w.lost = func(_ int, p Packet) bool {
		_, chunks, _ := chunk.Open(p.Octets)
		if movesAddress(chunks) && !quick(p.Pair) {
			asked++
		}
		return quick(p.Pair)
	}
	if err := mover.a.Change([]Change{{PreferAddress, address}}, w.now, &mover.out); err != nil {
		t.Fatal(err)
	}
	mover.flush()
	mover.a.LinkDown([]netip.Addr{address}, w.now, &mover.out)
	mover.flush()
	if w.run(500 * time.Millisecond); asked != 2 || mover.a.changes.chunk != nil {
		t.Errorf("asked %d times by the other way, want twice: again, and to send there", asked)
	}
}

// TestReturnThroughLoss loses what asks a quick way that is back, and tells so: whoever sends, the peer is asked to return
// as soon as anything has been answered there.
func TestReturnThroughLoss(t *testing.T) {
	tolerant := Defaults()
	tolerant.PotentiallyFailedMaxRetrans = tolerant.PathMaxRetrans
	for _, tt := range []struct {
		name    string
		par     Parameters
		talkers []int
		lost    int
		most    time.Duration
	}{
		{"both talk", Defaults(), []int{0, 1}, 1, 100 * time.Millisecond},
		{"the mover talks", Defaults(), []int{0}, 1, 300 * time.Millisecond},
		{"the peer talks", Defaults(), []int{1}, 1, 1100 * time.Millisecond},
		{"no one talks", Defaults(), nil, 1, 1100 * time.Millisecond},
		{"no one talks, and four misses are borne", tolerant, nil, 2, 3100 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, quick, first := quickAndLong(t, tt.par)
			mover, peer := w.hosts[0], w.hosts[1]
			w.talk(2*time.Second, tt.talkers...)
			w.lost = func(_ int, p Packet) bool { return quick(p.Pair) }
			mover.a.LinkDown([]netip.Addr{first}, w.now, &mover.out)
			mover.flush()
			w.talk(2*time.Second, tt.talkers...)
			heartbeats := 0
			w.lost = func(_ int, p Packet) bool {
				if quick(p.Pair) && has(p, chunk.TypeHeartbeat) {
					heartbeats++
					return heartbeats <= tt.lost
				}
				return false
			}
			mover.a.LinkUp(first, w.now, &mover.out)
			mover.flush()
			back := w.now
			for peer.a.primary.Remote != first && w.now.Sub(back) < time.Minute {
				w.talk(10*time.Millisecond, tt.talkers...)
			}
			if took := w.now.Sub(back); took > tt.most {
				t.Errorf("the peer returns after %v, at most %v is due", took, tt.most)
			}
		})
	}
}

// TestLeaveToDoubted takes a way down while the other has missed an answer: the peer is asked to send there all the same.
func TestLeaveToDoubted(t *testing.T) {
	w, quick, first := quickAndLong(t, Defaults())
	mover, peer := w.hosts[0], w.hosts[1]
	w.run(2 * time.Second)
	mover.a.path(Pair{dual()[0][1], peer.a.primary.Local}).state = Failing
	w.lost = func(_ int, p Packet) bool { return quick(p.Pair) }
	mover.a.LinkDown([]netip.Addr{first}, w.now, &mover.out)
	mover.flush()
	if w.run(300 * time.Millisecond); peer.a.primary.Remote == first {
		t.Error("the peer was not asked to send elsewhere")
	}
}

// TestLeaveToNone takes the ways of a host down one after the other, and the second one up again: the peer is asked to send
// there.
func TestLeaveToNone(t *testing.T) {
	w, _, first := quickAndLong(t, Defaults())
	mover, peer, second := w.hosts[0], w.hosts[1], dual()[0][1]
	w.run(2 * time.Second)
	w.lost = func(int, Packet) bool { return true }
	for _, a := range []netip.Addr{second, first} {
		mover.a.LinkDown([]netip.Addr{a}, w.now, &mover.out)
		mover.flush()
		w.run(time.Second)
	}
	w.lost = nil
	mover.a.LinkUp(second, w.now, &mover.out)
	mover.flush()
	if w.run(time.Second); peer.a.primary.Remote != second {
		t.Errorf("the peer sends to %v", peer.a.primary.Remote)
	}
}

// TestHandoversInLoss has a host go to and fro a hundred times while a hundredth of all packets is lost: each time both
// ends send by the way that is to be used, within seconds.
func TestHandoversInLoss(t *testing.T) {
	for seed := uint64(20); seed < 27; seed++ { // of which four lose a heartbeat of a return, or its answer
		w, quick, first := quickAndLong(t, Defaults())
		mover, peer, cut := w.hosts[0], w.hosts[1], false
		dice := rand.New(rand.NewPCG(seed, 0))
		w.lost = func(_ int, p Packet) bool { return cut && quick(p.Pair) || dice.Float64() < 0.01 }
		for i := range 100 {
			cut = !cut
			if w.talk(time.Duration(dice.IntN(100))*time.Millisecond, 0, 1); cut {
				mover.a.LinkDown([]netip.Addr{first}, w.now, &mover.out)
			} else {
				mover.a.LinkUp(first, w.now, &mover.out)
			}
			mover.flush()
			began := w.now
			there := func() bool { return (mover.a.current.Local == first) != cut && (peer.a.current.Remote == first) != cut }
			for w.talk(time.Second, 0, 1); !there() && w.now.Sub(began) < 10*time.Second; {
				w.talk(10*time.Millisecond, 0, 1)
			}
			if !there() {
				t.Fatalf("seed %d, handover %d: the host sends by %v, its peer by %v", seed, i, mover.a.current.Pair, peer.a.current.Pair)
			}
		}
	}
}

// talk has hosts send a short message each 10 ms.
func (w *world) talk(d time.Duration, hosts ...int) {
	w.t.Helper()
	for end := w.now.Add(d); w.now.Before(end); w.run(10 * time.Millisecond) {
		for _, i := range hosts {
			h := w.hosts[i]
			if err := h.a.Send(Message{User: make([]byte, 100)}, w.now, &h.out); err != nil && err != ErrBlocked {
				w.t.Fatal(err)
			}
			h.flush()
		}
	}
}
