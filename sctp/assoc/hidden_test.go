// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// newHiddenWorld is a world whose first host is behind a NAT.
func newHiddenWorld(t *testing.T, at [2][]netip.Addr) *world {
	w := newWorld(t, at, Defaults())
	w.hosts[0].end.config.Hidden = true
	return w
}

// change has a host ask for changes of its addresses.
func (h *host) change(list ...Change) {
	h.w.t.Helper()
	if err := h.a.Change(list, h.w.now, &h.out); err != nil {
		h.w.t.Fatal(err)
	}
	h.flush()
}

// TestHiddenDeadEnd has a host behind a NAT begin by one address, add another from which nothing arrives, or to which no answer
// does, and add it again when it works: in between it counts as refused, and the association lives.
func TestHiddenDeadEnd(t *testing.T) {
	for name, arrives := range map[string]bool{"nothing arrives": false, "no answer arrives": true} {
		t.Run(name, func(t *testing.T) {
			at := dual()
			w := newHiddenWorld(t, at)
			h, second := w.hosts[0], at[0][1]
			h.end.config.Parameters.AssociationMaxRetrans = 5 // it is not the peer that does not answer
			w.trace = func(from int, p Packet) {
				if from == 0 && p.Local == second {
					t.Errorf("%v leaves from where the peer does not know the host", types(p))
				}
			}
			w.connect(at[1]...)
			w.run(30 * time.Second)
			w.trace = nil
			w.lost = func(from int, p Packet) bool { return from == 0 && p.Local == second && !arrives || p.Remote == second }
			for _, tt := range []struct {
				want  EventKind
				paths int
			}{{ChangeRefused, 2}, {ChangeDone, 4}} {
				h.events = nil
				h.change(Change{AddAddress, second})
				w.run(30 * time.Second)
				if !h.saw(tt.want) || len(h.a.paths) != tt.paths || h.a.changes.chunk != nil {
					t.Errorf("%d paths, want %d: %v", len(h.a.paths), tt.paths, h.events)
				}
				h.say(0, []byte("alive"), false)
				w.run(time.Second)
				w.expect(1, []string{"0:alive"})
				w.hosts[1].got, w.lost = nil, nil
			}
			if got := len(w.hosts[1].a.paths); got != 4 {
				t.Errorf("the peer has %d paths", got)
			}
		})
	}
}

// TestHiddenLastWay leaves a host behind a NAT nothing but an address that it adds, from where nothing arrives: the association
// ends as one does whose peer is gone.
func TestHiddenLastWay(t *testing.T) {
	at := dual()
	w := newHiddenWorld(t, at)
	h := w.hosts[0]
	w.connect(at[1]...)
	w.lost = func(from int, p Packet) bool { return from == 0 && p.Local == at[0][1] }
	h.change(Change{AddAddress, at[0][1]})
	h.a.LinkDown(at[0][:1], w.now, &h.out)
	h.flush()
	if w.run(time.Hour); h.a.state != closed || !h.saw(Failed) {
		t.Errorf("state %d: %v", h.a.state, h.events)
	}
}

// TestHiddenOtherFamily adds an address of a family that the association does not use yet, to a peer whose address of it the
// user has named, or which the peer itself names.
func TestHiddenOtherFamily(t *testing.T) {
	at := [2][]netip.Addr{addresses("192.0.2.1", "2001:db8:2::a"), addresses("192.0.2.2", "2001:db8:2::b")}
	for name, named := range map[string][]netip.Addr{"named by the user": at[1], "named by the peer": at[1][:1]} {
		t.Run(name, func(t *testing.T) {
			w := newHiddenWorld(t, at)
			w.connect(named...)
			h := w.hosts[0]
			h.change(Change{AddAddress, at[0][1]})
			w.run(10 * time.Second)
			if p := h.a.path(Pair{at[0][1], at[1][1]}); p == nil || !p.carries() || !h.saw(ChangeDone) {
				t.Errorf("the new path is %+v: %v", p, h.events)
			}
		})
	}
}

// TestHiddenDeadEndHasNoProtocol has a box on the way from an address that is added say that there is no SCTP, again and again.
func TestHiddenDeadEndHasNoProtocol(t *testing.T) {
	at := dual()
	w := newHiddenWorld(t, at)
	h := w.hosts[0]
	w.connect(at[1]...)
	var quoted Packet
	w.lost = func(from int, p Packet) bool {
		lost := from == 0 && p.Local == at[0][1]
		if lost {
			quoted = p
		}
		return lost
	}
	h.change(Change{AddAddress, at[0][1]})
	for range 10 {
		h.end.HandleICMP(ICMP{Kind: NoProtocol, Pair: quoted.Pair, Quoted: quoted.Octets}, w.now, &h.out)
		h.flush()
		w.run(2 * time.Second)
	}
	if h.a.state != established || h.end.Counters.BadICMP > 0 {
		t.Errorf("state %d, %d messages are not the association's", h.a.state, h.end.Counters.BadICMP)
	}
}

// TestHiddenUrgent takes a link down while an address is asked for from where nothing arrives: that the peer is to send to the
// link which is left does not wait for all tries.
func TestHiddenUrgent(t *testing.T) {
	at := dual()
	w := newHiddenWorld(t, at)
	h, dead := w.hosts[0], addresses("2001:db8:3::a")[0]
	w.connect(at[1]...)
	h.change(Change{AddAddress, at[0][1]})
	w.run(5 * time.Second)
	w.lost = func(from int, p Packet) bool { return from == 0 && p.Local == dead }
	h.change(Change{AddAddress, dead})
	w.run(1500 * time.Millisecond)
	h.a.LinkDown(at[0][:1], w.now, &h.out)
	h.flush()
	if w.run(100 * time.Millisecond); w.hosts[1].a.primary.Remote != at[0][1] {
		t.Errorf("the peer sends to %v", w.hosts[1].a.primary.Remote)
	}
}

// TestHiddenRefusedYields asks again for an address from where nothing arrives, and for another right behind: that does not wait for
// all tries.
func TestHiddenRefusedYields(t *testing.T) {
	at := dual()
	w := newHiddenWorld(t, at)
	h, third := w.hosts[0], addresses("2001:db8:3::a")[0]
	w.connect(at[1]...)
	w.lost = func(from int, p Packet) bool { return from == 0 && p.Local == at[0][1] }
	for range 2 {
		h.change(Change{AddAddress, at[0][1]})
		if w.run(100 * time.Millisecond); !h.a.HasRefused(at[0][1]) {
			w.run(30 * time.Second)
		}
	}
	h.change(Change{AddAddress, third})
	if w.run(2 * time.Second); !slices.Contains(h.a.locals, third) || !h.a.HasRefused(at[0][1]) {
		t.Errorf("the association has %v", h.a.locals)
	}
}

// TestHiddenFlap has the link of an address go and come while the peer is asked to add it: the association has it, with no more
// changes of the host.
func TestHiddenFlap(t *testing.T) {
	at := dual()
	w := newHiddenWorld(t, at)
	h := w.hosts[0]
	w.connect(at[1]...)
	w.lost = func(_ int, p Packet) bool { return p.Local == at[0][1] || p.Remote == at[0][1] }
	h.change(Change{AddAddress, at[0][1]})
	h.a.LinkDown(at[0][1:], w.now, &h.out)
	h.flush()
	w.lost = nil
	h.a.LinkUp(at[0][1], w.now, &h.out)
	h.flush()
	w.run(5 * time.Second)
	if !h.saw(ChangeDone) || h.saw(ChangeRefused) || len(h.a.paths) != 4 {
		t.Errorf("%d paths, %v", len(h.a.paths), h.events)
	}
}

// TestHiddenDeletionBeforeAddition loses a request to delete an address, behind which another waits to be added: the deletion is
// not repeated from there, where it would stand for the one that is to stay.
func TestHiddenDeletionBeforeAddition(t *testing.T) {
	at := dual()
	w := newHiddenWorld(t, at)
	h, third := w.hosts[0], addresses("2001:db8:3::a")[0]
	w.connect(at[1]...)
	h.change(Change{AddAddress, at[0][1]})
	w.run(5 * time.Second)
	w.lost = func(from int, p Packet) bool { return from == 0 && has(p, chunk.TypeASCONF) }
	h.change(Change{DeleteAddress, at[0][0]})
	h.change(Change{AddAddress, third})
	w.trace = func(from int, p Packet) {
		if from == 0 && p.Local == third && h.a.changes.pending(Change{DeleteAddress, at[0][0]}) {
			t.Error("the deletion leaves from the address that comes")
		}
	}
	w.run(5 * time.Second)
	w.lost = nil
	w.run(30 * time.Second)
	if got := h.a.Locals(); !slices.Equal(got, []netip.Addr{at[0][1], third}) {
		t.Errorf("the host has %v", got)
	}
}

// TestHiddenCollision has both ends begin at once, the peer at another address than the host behind the NAT begins from, and
// loses the answers to the host: nothing is left of the address that the peer does not know.
func TestHiddenCollision(t *testing.T) {
	at := dual()
	w := newHiddenWorld(t, at)
	w.hosts[0].end.config.Listen = true
	w.lost = func(from int, p Packet) bool { return from == 1 && has(p, chunk.TypeInitAck) }
	for i, to := range []netip.Addr{at[1][0], at[0][1]} {
		h := w.hosts[i]
		var err error
		if h.a, err = h.end.Connect([]netip.Addr{to}, 5000, w.udp, Defaults(), w.now, &h.out); err != nil {
			t.Fatal(err)
		}
		h.flush()
	}
	w.run(2 * time.Second)
	h := w.hosts[0]
	if h.a.state != established || h.a.primary.Local != at[0][1] || slices.ContainsFunc(h.a.paths, func(p *Path) bool { return p.Local != at[0][1] }) {
		t.Errorf("state %d, from %v, %d paths", h.a.state, h.a.primary.Pair, len(h.a.paths))
	}
}

// TestMissWithoutChange has an acknowledgement that would have a request sent again come when none is out any more.
func TestMissWithoutChange(t *testing.T) {
	w := pair(t, Defaults())
	h := w.hosts[0]
	h.a.par.EarlyProbe, h.a.changes.passed = true, true
	if h.a.missChange(w.now, &h.out); h.end.Counters.EarlyChanges > 0 {
		t.Error("a request is sent again")
	}
}
