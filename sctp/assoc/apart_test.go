// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"net/netip"
	"testing"
	"time"
)

// twoFamilies are hosts of an address of IPv4 and one of IPv6 each.
func twoFamilies(t *testing.T) (w *world, four, six netip.Addr) {
	at := [2][]netip.Addr{addresses("192.0.2.1", "2001:db8::a"), addresses("198.51.100.1", "2001:db8::b")}
	w = newWorld(t, at, Defaults())
	w.connect(at[1]...)
	w.run(time.Second)
	return w, at[0][0], at[0][1]
}

// change has the first host change addresses.
func (w *world) change(list ...Change) error {
	h := w.hosts[0]
	err := h.a.Change(list, w.now, &h.out)
	h.flush()
	return err
}

// TestFamilyComesBack has the only address of IPv4 go, and that or another come, before the peer has answered and after: the
// peer's address of IPv4 is not forgotten meanwhile.
func TestFamilyComesBack(t *testing.T) {
	for name, wait := range map[string]time.Duration{"before the answer": 0, "after it": 5 * time.Second} {
		for _, comes := range addresses("192.0.2.1", "192.0.2.2") {
			t.Run(name+", "+comes.String(), func(t *testing.T) {
				w, four, _ := twoFamilies(t)
				mover, peer := w.hosts[0], w.hosts[1]
				if err := w.change(Change{DeleteAddress, four}); err != nil {
					t.Fatal(err)
				}
				w.run(wait)
				if err := w.change(Change{AddAddress, comes}, Change{PreferAddress, comes}); err != nil {
					t.Fatal(err)
				}
				w.talk(5*time.Second, 0, 1)
				p := mover.a.path(Pair{comes, addresses("198.51.100.1")[0]})
				if p == nil || !p.usable() || peer.a.current.Remote != comes || len(mover.a.paths) != 2 || len(mover.a.apart) != 0 {
					t.Errorf("the peer sends to %v; paths %v, apart %v", peer.a.current.Remote, mover.a.Status().Paths, mover.a.apart)
				}
			})
		}
	}
}

// TestApartEnds has the peer delete an address that none of ours reaches, and the association end with such a one: nothing is
// left of it.
func TestApartEnds(t *testing.T) {
	for name, deletes := range map[string]bool{"the peer deletes it": true, "the association ends": false} {
		t.Run(name, func(t *testing.T) {
			w, four, six := twoFamilies(t)
			mover, peer := w.hosts[0], w.hosts[1]
			if err := w.change(Change{DeleteAddress, four}); err != nil {
				t.Fatal(err)
			}
			w.run(time.Second)
			known, apart := len(mover.end.byPeer), len(mover.a.apart)
			if known != 2 || apart != 1 || !mover.a.Reaches(four) {
				t.Fatalf("%d addresses of the peer, %d apart", known, apart)
			}
			if deletes {
				if err := peer.a.Change([]Change{{DeleteAddress, addresses("198.51.100.1")[0]}}, w.now, &peer.out); err != nil {
					t.Fatal(err)
				}
				peer.flush()
				w.run(time.Second)
				if len(mover.a.apart) != 0 || len(mover.end.byPeer) != 1 || mover.a.Reaches(four) {
					t.Errorf("still apart: %v", mover.a.apart)
				}
				if err := w.change(Change{AddAddress, four}); err != ErrUnreachable {
					t.Errorf("adding an address that reaches none: %v", err)
				}
				return
			}
			mover.a.Abort("", &mover.out)
			mover.flush()
			if len(mover.end.byPeer) != 0 {
				t.Errorf("known still: %v, of %v", mover.end.byPeer, six)
			}
		})
	}
}

// TestApartBeginsAgain has the peer begin again at an address that none of ours reached: it is the peer's still, and no
// stranger's (RFC 9260 section 5.2.2).
func TestApartBeginsAgain(t *testing.T) {
	for _, from := range addresses("198.51.100.1", "2001:db8::b") {
		w, four, six := twoFamilies(t)
		mover, peer := w.hosts[0], w.hosts[1]
		if err := w.change(Change{DeleteAddress, four}); err != nil { // the host has it still
			t.Fatal(err)
		}
		w.run(time.Second)
		mover.end.config.Listen = true
		peer.end = New(peer.end.config)
		if from.Is4() {
			peer.end.SetAddresses([]netip.Addr{from})
			six = four
		}
		var err error
		if peer.a, err = peer.end.Connect([]netip.Addr{six}, 5000, w.udp, Defaults(), w.now, &peer.out); err != nil {
			t.Fatal(err)
		}
		peer.flush()
		if w.run(2 * time.Second); !mover.saw(Restarted) || peer.a.state != established {
			t.Errorf("from %v the peer comes to state %d", from, peer.a.state)
		}
	}
}
