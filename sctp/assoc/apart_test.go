// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
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

// TestFamilyComesLater has two hosts of IPv4 get IPv6, one after the other or both at once: each asks for its address although
// none of the peer's is reached from there yet, and nothing leaves there before the peer has it, which would abort an
// association that it does not know.
func TestFamilyComesLater(t *testing.T) {
	at := [2][]netip.Addr{addresses("192.0.2.1"), addresses("198.51.100.1")}
	six := addresses("2001:db8::a", "2001:db8::b")
	for name, tt := range map[string]struct {
		first int
		wait  time.Duration
	}{"the one who asked for it first": {0, 5 * time.Second}, "the other first": {1, 5 * time.Second}, "at once": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, at, Defaults())
			w.connect(at[1]...)
			w.run(5 * time.Second)
			for i, h := range w.hosts {
				h.end.SetAddresses([]netip.Addr{at[i][0], six[i]})
			}
			w.trace = func(from int, p Packet) {
				if p.Local == six[from] && !w.hosts[1-from].a.has(p.Local) && !has(p, chunk.TypeASCONF) {
					t.Errorf("%v leaves from an address that the peer does not have", types(p))
				}
			}
			for _, i := range []int{tt.first, 1 - tt.first} {
				h := w.hosts[i]
				if err := h.a.Change([]Change{{AddAddress, six[i]}}, w.now, &h.out); err != nil {
					t.Fatal(err)
				}
				h.flush()
				w.run(tt.wait)
			}
			w.run(5 * time.Second)
			for i, h := range w.hosts {
				p := h.a.path(Pair{six[i], six[1-i]})
				if p == nil || !p.usable() || !p.confirmed || len(h.a.apart) != 0 || h.end.Counters.Stranger+h.end.Counters.OutOfTheBlue != 0 {
					t.Errorf("host %d: path %+v, apart %v, %+v", i, p, h.a.apart, h.end.Counters)
				}
			}
		})
	}
}

// TestAddressComesDuringSetUp gives a host another address between its INIT or INIT ACK and the peer's answer to that: the peer
// does not know of it, so nothing leaves there before it is asked for.
func TestAddressComesDuringSetUp(t *testing.T) {
	for _, one := range []struct {
		name   string
		host   int
		behind chunk.Type
	}{{"behind the INIT", 0, chunk.TypeInit}, {"behind the INIT ACK", 1, chunk.TypeInitAck}} {
		t.Run(one.name, func(t *testing.T) {
			at := dual()
			comes := at[one.host][1]
			at[one.host] = at[one.host][:1]
			w := newWorld(t, at, Defaults())
			h := w.hosts[one.host]
			w.trace = func(from int, p Packet) {
				switch {
				case from != one.host:
				case has(p, one.behind):
					h.end.SetAddresses(append(at[one.host], comes))
				case p.Local == comes && !w.hosts[1-one.host].a.has(comes) && !has(p, chunk.TypeASCONF):
					t.Errorf("%v leaves from an address that the peer does not have", types(p))
				}
			}
			w.connect(at[1]...)
			w.run(5 * time.Second)
			if slices.Contains(h.a.Locals(), comes) {
				t.Fatalf("the association has %v", h.a.Locals())
			}
			if err := h.a.Change([]Change{{AddAddress, comes}}, w.now, &h.out); err != nil {
				t.Fatal(err)
			}
			h.flush()
			if w.run(5 * time.Second); !h.saw(ChangeDone) || !slices.Contains(h.a.Locals(), comes) {
				t.Errorf("the association has %v", h.a.Locals())
			}
		})
	}
}

// TestRefusedIsAskedAlone has the peer refuse an address, and for that reason all behind it in the request (RFC 5061 section
// 5.3, F11). When they are asked for again each goes alone.
func TestRefusedIsAskedAlone(t *testing.T) {
	at := [2][]netip.Addr{addresses("2001:db8:1::a"), addresses("2001:db8:1::b", "2001:db8:9::1")}
	w := newWorld(t, at, Defaults())
	w.connect(at[1]...)
	w.run(5 * time.Second)
	mover, bad, good := w.hosts[0], at[1][1], addresses("2001:db8:2::a")[0] // the first is the peer's own
	for i, want := range [][]netip.Addr{at[0], append(at[0], good)} {
		if err := w.change(Change{AddAddress, bad}, Change{AddAddress, good}); err != nil {
			t.Fatal(err)
		}
		if w.run(5 * time.Second); !slices.Equal(mover.a.Locals(), want) {
			t.Errorf("asked for %d times: the association has %v, not %v", i+1, mover.a.Locals(), want)
		}
	}
	if slices.Contains(mover.a.changes.refused, Change{AddAddress, good}) || !slices.Contains(mover.a.changes.refused, Change{AddAddress, bad}) {
		t.Errorf("refused: %v", mover.a.changes.refused)
	}
}

// TestLinkStaysDown has the peer take its only address away that one of ours reaches, while the link of that is down, and give
// it back: by the link nothing leaves.
func TestLinkStaysDown(t *testing.T) {
	w, four, _ := twoFamilies(t)
	mover, peer := w.hosts[0], w.hosts[1]
	w.lost = func(_ int, p Packet) bool { return p.Local == four || p.Remote == four }
	mover.a.LinkDown([]netip.Addr{four}, w.now, &mover.out)
	mover.flush()
	w.run(time.Second)
	w.trace = func(from int, p Packet) {
		if from == 0 && p.Local == four {
			t.Errorf("%v leaves by the link that is down", types(p))
		}
	}
	for _, kind := range []ChangeKind{DeleteAddress, AddAddress} {
		if err := peer.a.Change([]Change{{kind, addresses("198.51.100.1")[0]}}, w.now, &peer.out); err != nil {
			t.Fatal(err)
		}
		peer.flush()
		w.run(5 * time.Second)
	}
	p := mover.a.path(Pair{four, addresses("198.51.100.1")[0]})
	if p == nil || !p.down {
		t.Fatalf("path %+v", p)
	}
	w.trace, w.lost = nil, nil
	mover.a.LinkUp(four, w.now, &mover.out)
	mover.flush()
	if w.run(5 * time.Second); !p.usable() || !p.confirmed {
		t.Errorf("path %+v", p)
	}
}
