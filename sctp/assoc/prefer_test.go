// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// TestPreference has a host of three addresses, A, B and C, do and suffer all that concerns where the peer is to send. The
// primary path is of A; the longer the way the later the letter. D is an address that the association does not have.
func TestPreference(t *testing.T) {
	for name, tt := range map[string]struct{ steps, asked string }{
		"a link fails and returns":                                             {"down A, up A", "B A"},
		"another link fails":                                                   {"down C, up C", "A"},
		"another link fails, again":                                            {"down C, up C, down C, up C, down B, up B", "A"},
		"to and fro":                                                           {"down A, up A, down A, up A", "B A B A"},
		"two links fail, and return":                                           {"down A, down B, up B, up A", "B C A"},
		"two links fail, and return in another order":                          {"down A, down B, up A, up B", "B C A"},
		"two links fail at once":                                               {"down AB, up B, up A", "C A"},
		"all links fail, the last one returns":                                 {"down A, down B, down C, up C", "B C"},
		"all links fail, all return":                                           {"down A, down B, down C, up C, up B, up A", "B C A"},
		"what the user prefers stays":                                          {"prefer B, down A, up A, down C, up C", "B"},
		"what the user prefers fails and returns":                              {"prefer B, down B, up B", "B A B"},
		"the user prefers while a link is down":                                {"down A, prefer C, up A", "B C"},
		"the user prefers what is down":                                        {"prefer B, down A, prefer A, up A", "B A B A"},
		"our own primary path is not the peer's":                               {"down A, up A, primary B, primary A, primary C", "B A"},
		"our own primary path changes meanwhile":                               {"down A, primary C, up A", "B A"},
		"our own primary path fails, not the peer's":                           {"prefer B, primary C, down C, up C", "B"},
		"an address is deleted that is preferred":                              {"prefer C, delete C, down A, up A", "C B A"},
		"an address is deleted that was left":                                  {"down A, delete A, down B, up B", "B C B"},
		"an address is deleted whose link is down":                             {"prefer C, down C, delete C, delete A", "C A"},
		"an address goes, and is back before the peer knows":                   {"down A + delete A + add A, down BC, up B", "B A B"},
		"an address goes and comes twice before the peer knows":                {"down A + delete A + add A + down A + delete A + add A, down BC", "B A"},
		"an address goes, comes and goes before the peer knows":                {"down C + delete C + add C + down C + delete C, down A, up A", "A B A"},
		"an address goes and comes, and its link fails, before the peer knows": {"down A + delete A + add A + down A, up A, down BC", "B A"},
		"the only address is replaced and comes back at once":                  {"delete B, delete C, down A + replace AD + down D + replace DA", ""},
		"the only address is replaced and comes back later":                    {"delete B, delete C, down A + replace AD, down D + replace DA", ""},
		"the peer refuses":                                                     {"prefer D, down A, up A", "D B A"},
		"the peer refuses while it is elsewhere":                               {"prefer B, down B, prefer D, up B", "B A D"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPreferenceWorld(t, Defaults())
			for steps := range strings.SplitSeq(tt.steps, ", ") {
				for step := range strings.SplitSeq(steps, " + ") {
					w.do(step)
				}
				w.talk(2*time.Second, 0, 1)
			}
			w.wants(strings.Fields(tt.asked)...)
			if at := w.hosts[1].a.current.Remote; w.isDown(at) || w.hosts[0].a.path(Pair{at, w.hosts[1].a.current.Local}) == nil {
				t.Errorf("the peer sends to %v", at)
			}
		})
	}
}

// TestPreferenceRefused has a peer that does not know what a preference is: an idle path that is back is asked no more
// often for it.
func TestPreferenceRefused(t *testing.T) {
	par := Defaults()
	par.PotentiallyFailedMaxRetrans = par.PathMaxRetrans
	w := newPreferenceWorld(t, par)
	w.do("down A")
	w.run(2 * time.Second)
	w.hosts[0].a.setUnknown(PreferAddress)
	w.do("up A")
	w.down = w.addresses("A") // as the link would say that it is up before it is
	heartbeats := 0
	w.trace = func(_ int, p Packet) {
		if w.isDown(p.Local) && has(p, chunk.TypeHeartbeat) {
			heartbeats++
		}
	}
	if w.run(20 * time.Second); heartbeats != 0 {
		t.Errorf("%d more heartbeats in less than an interval", heartbeats)
	}
}

// TestPreferenceOfFailed takes the link of an idle host down whose other paths have failed: the peer is asked when one
// answers, and not before, since each timeout of the request would count against the association.
func TestPreferenceOfFailed(t *testing.T) {
	for primary, want := range map[string]string{"A": "B", "C": "C"} {
		w := newPreferenceWorld(t, Defaults())
		mover := w.hosts[0].a
		w.do("primary " + primary)
		for _, p := range mover.paths {
			if p.Local != w.addresses("A")[0] {
				p.state = Inactive
			}
		}
		w.down = w.addresses("ABC")
		w.do("down A")
		if w.run(2 * time.Second); len(w.asked) != 0 || mover.errors != 0 {
			t.Errorf("%q asked for, %d timeouts", w.asked, mover.errors)
		}
		w.down = w.addresses("A")
		w.run(2 * time.Minute)
		if w.asked[len(w.asked)-1] != want || w.hosts[1].a.primary.Remote == w.down[0] {
			t.Errorf("%q asked for, want %s at last", w.asked, want)
		}
	}
}

// TestPreferenceRefusedOnce has a peer refuse one address of several, as it has no path of it: it is asked for another.
func TestPreferenceRefusedOnce(t *testing.T) {
	w := newPreferenceWorld(t, Defaults())
	b := Change{PreferAddress, w.addresses("B")[0]}
	w.hosts[0].a.changes.settle(b, false)
	w.hosts[0].a.setLink(w.addresses("A")[0], false)
	w.down = w.addresses("A")
	w.talk(2*time.Second, 0, 1)
	w.wants("C")
}

// TestDeletionRefused has the peer refuse an address, and with it the deletion of another (RFC 5061 section 5.3, F11), which
// comes back: it is used again.
func TestDeletionRefused(t *testing.T) {
	w := newPreferenceWorld(t, Defaults())
	mover, peer := w.hosts[0], w.hosts[1]
	peer.end.byPeer[netip.AddrPortFrom(w.addresses("D")[0], 5000)] = &Association{}
	w.do("down A")
	w.do("replace AD")
	w.run(time.Second)
	w.do("add A")
	w.talk(2*time.Second, 0, 1)
	if at := peer.a.current.Pair; at.Remote != w.addresses("A")[0] || !mover.a.path(Pair{at.Remote, at.Local}).usable() {
		t.Errorf("the peer's data goes by %v", at)
	}
}

// TestDeletionWhereThePeerIs deletes the address to which the peer was asked to send, of an idle host whose first link is
// down: it is asked for another at once.
func TestDeletionWhereThePeerIs(t *testing.T) {
	w := newPreferenceWorld(t, Defaults())
	w.do("down A")
	w.run(time.Second)
	w.do("delete B")
	w.run(time.Second)
	w.wants("B", "C")
}

// TestChangeWhenLinkReturns has all links of an idle host fail with a request on its way, for so long that T4 is far away: the
// first one that is back takes the request at once. A link that is said to be down again changes nothing.
func TestChangeWhenLinkReturns(t *testing.T) {
	w := newPreferenceWorld(t, Defaults())
	for _, step := range []string{"down A", "down B", "down C"} {
		w.do(step)
	}
	w.run(40 * time.Second)
	mover, sent := w.hosts[0], 0
	w.trace = func(_ int, p Packet) {
		if has(p, chunk.TypeASCONF) {
			sent++
		}
	}
	for range 10 {
		w.do("down A")
	}
	if sent != 0 {
		t.Errorf("%d requests since nothing has changed", sent)
	}
	w.do("up C")
	if w.run(100 * time.Millisecond); w.hosts[1].a.primary.Remote != w.addresses("C")[0] || mover.a.changes.chunk != nil {
		t.Errorf("the peer sends to %v", w.hosts[1].a.primary.Remote)
	}
}

// TestPreferenceHidden takes links of a host behind a NAT down, whose request for an address goes by that alone. The link of
// what is asked for fails, too; then any other may ask.
func TestPreferenceHidden(t *testing.T) {
	for name, answer := range map[string]bool{"the request is lost": false, "the answer is lost": true} {
		t.Run(name, func(t *testing.T) {
			w := newPreferenceWorld(t, Defaults())
			w.hosts[0].end.config.Hidden = true
			lost := w.lost
			w.lost = func(from int, p Packet) bool {
				return lost(from, p) || has(p, chunk.TypeASCONFAck) || !answer && has(p, chunk.TypeASCONF)
			}
			w.do("down A")
			w.run(100 * time.Millisecond)
			w.lost = lost
			w.do("down B")
			if w.talk(5*time.Second, 0); w.hosts[1].a.primary.Remote != w.addresses("C")[0] || w.hosts[0].a.changes.chunk != nil {
				t.Errorf("the peer sends to %v", w.hosts[1].a.primary.Remote)
			}
		})
	}
}

// TestPeerAddsWhileDown has the peer add an address, and begin again, while a link of ours is down: by that nothing leaves.
func TestPeerAddsWhileDown(t *testing.T) {
	w := newPreferenceWorld(t, Defaults())
	mover, peer := w.hosts[0], w.hosts[1]
	w.do("down A")
	w.run(time.Second)
	w.trace = func(from int, p Packet) {
		if from == 0 && w.isDown(p.Local) {
			t.Errorf("%v leaves by the link that is down", types(p))
		}
	}
	if err := peer.a.Change([]Change{{AddAddress, addresses("2001:db8:5::b")[0]}}, w.now, &peer.out); err != nil {
		t.Fatal(err)
	}
	peer.flush()
	if w.talk(3*time.Second, 0, 1); len(mover.a.paths) != 6 {
		t.Fatalf("%d paths", len(mover.a.paths))
	}
}

// TestPeerBeginsAgainWhileDown has the peer begin again while a link of ours is down, whose address the host has, or has not
// for that time: nothing leaves there until it is up, and the peer sends there when others fail.
func TestPeerBeginsAgainWhileDown(t *testing.T) {
	for name, tt := range map[string]struct{ present, back string }{"the address stays": {"ABC", "up A"}, "the address goes": {"BC", "add A"}} {
		t.Run(name, func(t *testing.T) {
			w := newPreferenceWorld(t, Defaults())
			mover, peer := w.hosts[0], w.hosts[1]
			w.do("down A")
			w.run(time.Second)
			mover.end.SetAddresses(w.addresses(tt.present))
			mover.end.config.Listen = true
			peer.end = New(peer.end.config)
			var err error
			if peer.a, err = peer.end.Connect(w.addresses("B"), 5000, w.udp, Defaults(), w.now, &peer.out); err != nil {
				t.Fatal(err)
			}
			peer.flush()
			w.trace = func(from int, p Packet) {
				if from == 0 && w.isDown(p.Local) {
					t.Errorf("%v leaves by the link that is down", types(p))
				}
			}
			w.run(3 * time.Second)
			if !mover.saw(Restarted) {
				t.Fatal("the peer has not begun again")
			}
			w.trace = nil
			w.do(tt.back)
			w.talk(2*time.Second, 0, 1)
			w.do("down BC")
			if w.talk(2*time.Second, 0, 1); peer.a.current.Remote != w.addresses("A")[0] || !mover.a.current.usable() {
				t.Errorf("the peer's data goes by %v", peer.a.current.Pair)
			}
		})
	}
}

// TestReturnWithoutHeartbeats loses the only heartbeat of a path that is back and has no others: it is asked again until it
// answers, for the peer is to return.
func TestReturnWithoutHeartbeats(t *testing.T) {
	for _, dead := range []time.Duration{50 * time.Millisecond, 100 * time.Second} {
		par := Defaults()
		par.HeartbeatInterval = -1
		w := newPreferenceWorld(t, par)
		w.do("down A")
		w.talk(2*time.Second, 1)
		w.do("up A")
		w.down = w.addresses("A")
		w.talk(dead, 1)
		w.down = nil
		w.talk(5*time.Second+dead, 1)
		w.wants("B", "A")
	}
}

// preferenceWorld is a world whose first host has three addresses, and its second one.
type preferenceWorld struct {
	*world
	down  []netip.Addr // by which nothing passes
	asked []string     // addresses that the peer was asked to send to, in their order
}

var preferenceAddresses = addresses("2001:db8:1::a", "2001:db8:2::a", "2001:db8:3::a", "2001:db8:6::a")

func newPreferenceWorld(t *testing.T, par Parameters) *preferenceWorld {
	peer := addresses("2001:db8:4::b")
	w := &preferenceWorld{world: newWorld(t, [2][]netip.Addr{preferenceAddresses[:3], peer}, par)}
	w.delay = func(p Pair) time.Duration {
		return time.Duration(5*(1+slices.IndexFunc(preferenceAddresses, func(a netip.Addr) bool { return a == p.Local || a == p.Remote }))) * time.Millisecond
	}
	w.lost = func(_ int, p Packet) bool { return w.isDown(p.Local) || w.isDown(p.Remote) }
	w.connect(peer...)
	w.run(time.Second)
	w.trace = w.note
	return w
}

// isDown reports whether nothing passes by an address.
func (w *preferenceWorld) isDown(a netip.Addr) bool { return slices.Contains(w.down, a) }

// note notes what a packet of the first host asks for, and did not before.
func (w *preferenceWorld) note(from int, p Packet) {
	_, rest, _ := chunk.Open(p.Octets)
	for len(rest) > 0 {
		c, after, err := chunk.Next(rest)
		if err != nil {
			return
		}
		if rest = after; c.Type != chunk.TypeASCONF {
			continue
		}
		asconf, err := chunk.ParseASCONF(c.Body)
		if err != nil {
			w.t.Fatal(err)
		}
		one, _, _, _, err := chunk.NextRequest(asconf.Requests)
		if err != nil || one.Type != chunk.ParamSetPrimary {
			continue
		}
		if name := string(rune('A' + slices.Index(preferenceAddresses, one.Address))); len(w.asked) == 0 || w.asked[len(w.asked)-1] != name {
			w.asked = append(w.asked, name)
		}
	}
}

// wants checks what the peer was asked for.
func (w *preferenceWorld) wants(asked ...string) {
	w.t.Helper()
	if !slices.Equal(w.asked, asked) {
		w.t.Errorf("the peer was asked to send to %q, want %q", w.asked, asked)
	}
}

// addresses are those of names.
func (w *preferenceWorld) addresses(names string) (list []netip.Addr) {
	for _, name := range names {
		list = append(list, preferenceAddresses[name-'A'])
	}
	return list
}

// heal has an address work again.
func (w *preferenceWorld) heal(at netip.Addr) {
	w.down = slices.DeleteFunc(w.down, func(a netip.Addr) bool { return a == at })
}

// do has the first host do something with addresses, or suffer it: "prefer A", say, or "down AB".
func (w *preferenceWorld) do(step string) {
	w.t.Helper()
	h := w.hosts[0]
	verb, names, _ := strings.Cut(step, " ")
	list := w.addresses(names)
	at, err := list[0], error(nil)
	switch verb {
	case "down":
		w.down = append(w.down, list...)
		h.a.LinkDown(list, w.now, &h.out)
	case "up":
		w.heal(at)
		h.a.LinkUp(at, w.now, &h.out)
	case "add":
		w.heal(at)
		err = h.a.Change([]Change{{AddAddress, at}}, w.now, &h.out)
	case "replace":
		w.heal(list[1])
		err = h.a.Change([]Change{{AddAddress, list[1]}, {DeleteAddress, at}}, w.now, &h.out)
	case "prefer":
		err = h.a.Change([]Change{{PreferAddress, at}}, w.now, &h.out)
	case "delete":
		err = h.a.Change([]Change{{DeleteAddress, at}}, w.now, &h.out)
	case "primary":
		if !h.a.SetPrimary(Pair{at, h.a.primary.Remote}) {
			w.t.Fatalf("%s has no path", names)
		}
	}
	if err != nil {
		w.t.Fatal(err)
	}
	h.flush()
}
