// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package differ_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo/peer"
	"github.com/isthmus-net/isthmus/teredo/teredobpf"
)

// raceTime is how long writer and programs run beside each other, at each hook.
const raceTime = time.Second

// The crowd fills the table to the brim, so that insertions move peers about. Each
// may be at home or at one of some foreign mappings, and every mapping is one
// peer's alone.
const (
	raceBuckets = 256
	crowd       = raceBuckets * peer.SlotsPerBucket
	mappings    = 4
	doomed      = crowd / 10 // the first are deleted once, for good
	resident    = crowd / 5  // the last are never deleted, only moved
)

// homeOf and foreignOf are the mappings of a peer of the crowd.
func homeOf(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, 200}), uint16(1024+i))
}

func foreignOf(i, k int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(200 + k)}), uint16(1024+i))
}

// TestConcurrentWriter lets the engine's table insert, move, delete and stamp peers
// while programs look them up and stamp them. No packet goes to a mapping that is
// not its peer's, none is taken from one, and no peer comes back that is gone.
func TestConcurrentWriter(t *testing.T) {
	w := newWorldOf(t, raceBuckets)
	w.clear()
	w.reopen()
	seen := &crowdView{}
	for i := crowd - resident; i < crowd; i++ {
		key := client(homeOf(i)).As16()
		w.hot.Insert(&key, homeOf(i), w.instant(), time.Hour, false)
	}
	for _, p := range runtest.Hooks {
		t.Run(string(p), func(t *testing.T) {
			stop, done := make(chan struct{}), make(chan string, 1)
			go func() { done <- w.disturb(stop, seen) }()
			w.ns.Do(t, func() error {
				err := w.useCrowd(t, p, seen)
				close(stop)
				return err
			})
			t.Log(<-done)
		})
	}
	for i := range crowd {
		key := client(homeOf(i)).As16()
		w.hot.Delete(&key)
	}
	w.hot.Walk(0, w.hot.Buckets(), func(key [16]byte, _ peer.Ref) bool {
		t.Errorf("%s came back", netip.AddrFrom16(key))
		return true
	})
	if n := w.fast.Foreign().Len(); n != 0 {
		t.Errorf("%d foreign mappings are left", n)
	}
}

// crowdView is what the readers may rely on while the writer works.
type crowdView struct {
	gone [crowd]atomic.Bool // deleted, and never to come back
}

// disturb changes the table at random until stop.
func (w *world) disturb(stop <-chan struct{}, seen *crowdView) string {
	rng := rand.New(rand.NewPCG(3, 4))
	var inserted, refused, deleted, stamped int
	for n := 0; ; n++ {
		if n%64 == 0 {
			select {
			case <-stop:
				return fmt.Sprintf("%d insertions, %d of them refused, %d deletions, %d stamps", inserted, refused, deleted, stamped)
			default:
			}
		}
		i := rng.IntN(crowd - resident)
		key := client(homeOf(i)).As16()
		switch {
		case seen.gone[i].Load():
		case i < doomed && rng.IntN(2000) == 0:
			w.hot.Delete(&key)
			seen.gone[i].Store(true)
			deleted++
		case rng.IntN(8) == 0:
			w.hot.Delete(&key)
			deleted++
		case rng.IntN(4) == 0:
			if r, ok := w.hot.Lookup(&key); ok {
				w.hot.Touch(r, w.instant())
				stamped++
			}
		default:
			mapped := homeOf(i)
			if rng.IntN(3) == 0 {
				mapped = foreignOf(i, rng.IntN(mappings))
			}
			// Two seconds old, so that programs stamp it.
			if w.hot.Insert(&key, mapped, w.instant().Add(-2*time.Second), time.Hour, rng.IntN(8) == 0) != peer.Accepted {
				refused++
			}
			inserted++
		}
	}
}

// useCrowd gives packets of the crowd to the program at a place.
func (w *world) useCrowd(t *testing.T, p runtest.Hook, seen *crowdView) error {
	r, rng := w.runner(p), rand.New(rand.NewPCG(5, 6))
	var verdicts [3]int
	// A busy machine takes longer to show anything.
	for end := time.Now().Add(raceTime); ; {
		if now := time.Now(); now.After(end) && verdicts[fastpath.Forward] >= 1000 || now.After(end.Add(testutil.Patience)) {
			break
		}
		i := rng.IntN(crowd)
		gone := seen.gone[i].Load() // before the program runs
		addr := client(homeOf(i))
		frame, expected := ethernet(etherIPv6, whole(udp, 64, 90, native, addr)), netip.AddrPort{}
		if rng.IntN(2) == 0 {
			expected = homeOf(i)
			if rng.IntN(3) == 0 {
				// Now and then from the mapping of a neighbour, which is never right.
				expected = foreignOf((i+rng.IntN(2))%crowd, rng.IntN(mappings))
			}
			frame = fromClient(expected, whole(udp, 64, 90, addr, native))
		}
		res, err := r.Run(frame)
		if err != nil {
			return err
		}
		verdicts[res.Verdict]++
		if i >= crowd-resident && res.Verdict == fastpath.Drop && (!expected.IsValid() || expected == homeOf(i)) {
			t.Errorf("a packet of peer %d, which never was away, was dropped", i)
		}
		if res.Verdict != fastpath.Forward {
			continue
		}
		if gone {
			t.Errorf("a packet of peer %d, which is gone, was forwarded", i)
		}
		if !expected.IsValid() {
			ip := res.Out[ethLen:]
			expected = netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[16:20])), binary.BigEndian.Uint16(ip[22:]))
		}
		if !ownsMapping(i, expected) {
			t.Errorf("a packet of peer %d was forwarded with the mapping %s", i, expected)
		}
	}
	t.Logf("%d packets forwarded, %d punted, %d dropped", verdicts[0], verdicts[1], verdicts[2])
	if verdicts[fastpath.Forward] < 1000 {
		t.Error("hardly a packet was forwarded: this shows nothing")
	}
	return nil
}

func ownsMapping(i int, m netip.AddrPort) bool {
	if m == homeOf(i) {
		return true
	}
	for k := range mappings {
		if m == foreignOf(i, k) {
			return true
		}
	}
	return false
}

// TestStampsOfPrograms checks that what a peer sends makes it younger, once a second
// at most, and that nothing else does.
func TestStampsOfPrograms(t *testing.T) {
	w := newWorld(t)
	key := client(good).As16()
	age := func() time.Duration {
		r, ok := w.hot.Lookup(&key)
		if !ok {
			t.Fatal("the peer is gone")
		}
		return r.Age(w.instant())
	}
	w.each(t, func(t *testing.T, r *runtest.Runner) {
		for _, tt := range []struct {
			name    string
			age     time.Duration
			frame   []byte
			younger bool
		}{
			{"a packet of its own", 20 * time.Second, from(good, udp, 64, 100, native), true},
			{"a packet soon after another", 800 * time.Millisecond, from(good, udp, 64, 100, native), false},
			{"a packet to it", 20 * time.Second, to(good, udp, 64, 100), false},
			{"a packet from elsewhere", 20 * time.Second, fromClient(other, whole(udp, 64, 100, client(good), native)), false},
			{"a packet to a destination not served", 20 * time.Second, from(good, udp, 64, 100, unserved), false},
			{"a damaged packet", 20 * time.Second, edit(from(good, udp, 64, 100, native), func(f []byte) { f[40]++ }), false},
		} {
			var before, after time.Duration
			for conclusive := false; !conclusive; {
				start := fastpath.Monotonic()
				w.hot.Insert(&key, good, w.instant().Add(-tt.age), 0, false)
				before = age()
				if _, err := r.Run(tt.frame); err != nil {
					t.Fatal(err)
				}
				after = age()
				took := fastpath.Monotonic() - start
				after -= took
				// A machine that stood still has made a young one old.
				conclusive = tt.age > time.Second || tt.age+took < time.Second
			}
			if (after <= teredoStamp) != tt.younger {
				t.Errorf("%s: %s old before, %s after", tt.name, before, after)
			}
		}
	})
}

// teredoStamp is the age of a peer heard just now: the clock of programs is coarse.
const teredoStamp = teredobpf.StampUnit
