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
	w, bad := refuser(t)
	mover, good := w.hosts[0], addresses("2001:db8:2::a")[0]
	at := mover.end.config.Addresses
	for i, want := range [][]netip.Addr{at, append(at, good)} {
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

// TestFamilyOfOneEnd has a host get IPv6 whose peer had it, and said so, from the beginning: both use it. Then the peer begins
// again, with the address that it has named.
func TestFamilyOfOneEnd(t *testing.T) {
	six := addresses("2001:db8::a", "2001:db8::b")
	for moving := range 2 {
		at := [2][]netip.Addr{addresses("192.0.2.1"), addresses("198.51.100.1")}
		at[1-moving] = append(at[1-moving], six[1-moving])
		w := newWorld(t, at, Defaults())
		w.connect(at[1][0])
		w.run(5 * time.Second)
		mover, peer := w.hosts[moving], w.hosts[1-moving]
		mover.end.SetAddresses(append(at[moving], six[moving]))
		if err := mover.a.Change([]Change{{AddAddress, six[moving]}}, w.now, &mover.out); err != nil {
			t.Fatal(err)
		}
		mover.flush()
		w.run(5 * time.Second)
		for i, h := range w.hosts {
			if p := h.a.path(Pair{six[i], six[1-i]}); p == nil || !p.usable() || !p.confirmed || len(h.a.apart) != 0 {
				t.Errorf("%d moves: host %d has %+v, apart %v", moving, i, h.a.paths, h.a.apart)
			}
		}
		mover.end.config.Listen = true
		peer.end = New(peer.end.config)
		var err error
		if peer.a, err = peer.end.Connect(at[moving][:1], 5000, w.udp, Defaults(), w.now, &peer.out); err != nil {
			t.Fatal(err)
		}
		peer.flush()
		if w.run(2 * time.Second); !mover.saw(Restarted) || peer.a.state != established {
			t.Errorf("%d moves: its peer does not begin again: state %d", moving, peer.a.state)
		}
	}
}

// refuser is a world whose second host refuses an address of the first, for it knows that as another's.
func refuser(t *testing.T) (w *world, refused netip.Addr) {
	at := [2][]netip.Addr{addresses("2001:db8:1::a"), addresses("2001:db8:1::b", "2001:db8:2::b")}
	w, refused = newWorld(t, at, Defaults()), addresses("2001:db8:9::a")[0]
	w.connect(at[1]...)
	w.run(5 * time.Second)
	w.hosts[1].end.byPeer[netip.AddrPortFrom(refused, 5000)] = &Association{}
	return w, refused
}

// asksFor reports whether a packet has an ASCONF with a request.
func asksFor(p Packet, t chunk.ParameterType) bool {
	_, rest, _ := chunk.Open(p.Octets)
	for len(rest) > 0 {
		c, after, err := chunk.Next(rest)
		if err != nil {
			break
		}
		rest = after
		if asconf, err := chunk.ParseASCONF(c.Body); c.Type == chunk.TypeASCONF && err == nil {
			for list := asconf.Requests; len(list) > 0; {
				r, _, _, more, err := chunk.NextRequest(list)
				if list = more; err == nil && r.Type == t {
					return true
				}
			}
		}
	}
	return false
}

// TestRefusedAndGone has an address go while it is asked for, or before, and be refused: nothing is left of it.
func TestRefusedAndGone(t *testing.T) {
	for _, behind := range []bool{true, false} {
		w, x := refuser(t)
		h := w.hosts[0]
		requests := [][]Change{{{AddAddress, x}, {DeleteAddress, x}}}
		if behind {
			requests = [][]Change{{{AddAddress, x}}, {{DeleteAddress, x}}}
		}
		for i, list := range requests {
			if err := w.change(list...); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				h.a.LinkDown([]netip.Addr{x}, w.now, &h.out)
				h.flush()
				w.trace = func(from int, p Packet) {
					if from == 0 && asksFor(p, chunk.ParamDeleteIP) {
						t.Error("the peer is asked to delete what it does not have")
					}
				}
			}
		}
		w.run(5 * time.Second)
		ours := func(p *Path) bool { return p.Local == x }
		if slices.ContainsFunc(h.a.paths, ours) || len(h.a.down) != 0 || len(h.a.changes.waiting) != 0 || !h.saw(ChangeRefused) {
			t.Errorf("paths %v, down %v", h.a.Status().Paths, h.a.down)
		}
	}
}

// TestRefusedSwap has an address that was refused before take the place of the only one: when it is refused again that stays,
// and no one is asked to delete it (RFC 5061 section 5.3, F5).
func TestRefusedSwap(t *testing.T) {
	w, x := refuser(t)
	h, only := w.hosts[0], w.hosts[0].end.config.Addresses[0]
	w.trace = func(from int, p Packet) {
		if from == 0 && asksFor(p, chunk.ParamDeleteIP) {
			t.Error("the peer is asked to delete the last address")
		}
	}
	for _, list := range [][]Change{{{AddAddress, x}}, {{AddAddress, x}, {DeleteAddress, only}}} {
		if err := w.change(list...); err != nil {
			t.Fatal(err)
		}
		w.run(5 * time.Second)
	}
	if len(h.a.paths) != 2 || !slices.Equal(h.a.Locals(), []netip.Addr{only}) || h.a.changes.chunk != nil {
		t.Errorf("paths %v", h.a.Status().Paths)
	}
	h.say(0, []byte("x"), false)
	w.run(time.Second)
	w.expect(1, []string{"0:x"})
}

// TestUrgentGoesFirst has what is doubtful wait for what is not.
func TestUrgentGoesFirst(t *testing.T) {
	w, x := refuser(t)
	h, six, good := w.hosts[0], addresses("192.0.2.1", "192.0.2.2"), addresses("2001:db8:2::a")[0]
	for _, list := range [][]Change{{{AddAddress, six[0]}}, {{AddAddress, six[1]}}, {{AddAddress, good}}, {{PreferAddress, good}}, {{AddAddress, x}}} {
		if err := w.change(list...); err != nil {
			t.Fatal(err)
		}
	}
	want := []Change{{AddAddress, good}, {AddAddress, x}, {AddAddress, six[1]}, {PreferAddress, good}}
	if got := h.a.changes.waiting; !slices.Equal(got, want) {
		t.Errorf("waiting are %v", got)
	}
}

// TestCookieToAnotherAddress has the address go that the INIT came to, and the COOKIE ECHO come to another.
func TestCookieToAnotherAddress(t *testing.T) {
	at := dual()
	w := newWorld(t, at, Defaults())
	dead := false
	w.lost = func(_ int, p Packet) bool { return dead && (p.Local == at[1][0] || p.Remote == at[1][0]) }
	w.trace = func(from int, p Packet) {
		if from == 0 && has(p, chunk.TypeCookieEcho) && p.Remote == at[1][0] {
			dead = true
			w.hosts[1].end.SetAddresses(at[1][1:])
		}
	}
	h := w.hosts[0]
	if _, err := h.end.Connect(at[1], 5000, w.udp, Defaults(), w.now, &h.out); err != nil {
		t.Fatal(err)
	}
	h.flush()
	w.run(20 * time.Second)
	if !dead || w.hosts[1].a == nil || w.hosts[1].a.path(Pair{at[1][1], at[0][1]}) == nil {
		t.Errorf("no association by the other address: %+v", w.hosts[1].end.Counters)
	}
}
