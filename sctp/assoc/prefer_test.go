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
// primary path is of A; the longer the way the later the letter.
func TestPreference(t *testing.T) {
	for name, tt := range map[string]struct{ steps, asked string }{
		"a link fails and returns":                    {"down A, up A", "B A"},
		"another link fails":                          {"down C, up C", "A"},
		"another link fails, again":                   {"down C, up C, down C, up C, down B, up B", "A"},
		"to and fro":                                  {"down A, up A, down A, up A", "B A B A"},
		"two links fail, and return":                  {"down A, down B, up B, up A", "B C A"},
		"two links fail, and return in another order": {"down A, down B, up A, up B", "B C A"},
		"all links fail, the last one returns":        {"down A, down B, down C, up C", "B C"},
		"all links fail, all return":                  {"down A, down B, down C, up C, up B, up A", "B C A"},
		"what the user prefers stays":                 {"prefer B, down A, up A, down C, up C", "B"},
		"what the user prefers fails and returns":     {"prefer B, down B, up B", "B A B"},
		"the user prefers while a link is down":       {"down A, prefer C, up A", "B C"},
		"our own primary path is not the peer's":      {"down A, up A, primary B, primary A, primary C", "B A"},
		"our own primary path changes meanwhile":      {"down A, primary C, up A", "B A"},
		"our own primary path fails, not the peer's":  {"prefer B, primary C, down C, up C", "B"},
		"an address is deleted that is preferred":     {"prefer C, delete C, down A, up A", "C B A"},
		"an address is deleted that was left":         {"down A, delete A, up A", "B"},
		"an address is deleted whose link is down":    {"prefer C, down C, delete C, delete A", "C A"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPreferenceWorld(t, Defaults())
			for step := range strings.SplitSeq(tt.steps, ", ") {
				w.do(step)
				w.talk(2*time.Second, 0, 1)
			}
			if got := strings.Join(w.asked, " "); got != tt.asked {
				t.Errorf("the peer was asked to send to %q, want %q", got, tt.asked)
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
	heartbeats := 0
	w.lost = func(_ int, p Packet) bool {
		if p.Local == w.address("A") && has(p, chunk.TypeHeartbeat) {
			heartbeats++
		}
		return p.Local == w.address("A") || p.Remote == w.address("A")
	}
	w.do("up A")
	if w.run(20 * time.Second); heartbeats != 1 || len(w.asked) != 1 {
		t.Errorf("%d heartbeats in less than an interval, %q asked for", heartbeats, w.asked)
	}
}

// TestPreferenceOfFailed takes the link of an idle host down whose other paths have failed: the peer is asked when one
// answers, and not before, since each timeout of the request would count against the association.
func TestPreferenceOfFailed(t *testing.T) {
	w := newPreferenceWorld(t, Defaults())
	mover := w.hosts[0].a
	for _, p := range mover.paths {
		if p.Local != w.address("A") {
			p.state = Inactive
		}
	}
	w.lost = func(int, Packet) bool { return true }
	w.do("down A")
	if w.run(2 * time.Second); len(w.asked) != 0 || mover.errors != 0 {
		t.Errorf("%q asked for, %d timeouts", w.asked, mover.errors)
	}
	w.lost = nil
	if w.run(2 * time.Minute); !slices.Equal(w.asked, []string{"B"}) {
		t.Errorf("%q asked for, want B", w.asked)
	}
}

// preferenceWorld is a world whose first host has three addresses, and its second one.
type preferenceWorld struct {
	*world
	asked []string // addresses that the peer was asked to send to, in their order
}

var preferenceAddresses = addresses("2001:db8:1::a", "2001:db8:2::a", "2001:db8:3::a")

func newPreferenceWorld(t *testing.T, par Parameters) *preferenceWorld {
	peer := addresses("2001:db8:4::b")
	w := &preferenceWorld{world: newWorld(t, [2][]netip.Addr{preferenceAddresses, peer}, par)}
	w.delay = func(p Pair) time.Duration {
		return time.Duration(5*(1+slices.IndexFunc(preferenceAddresses, func(a netip.Addr) bool { return a == p.Local || a == p.Remote }))) * time.Millisecond
	}
	w.connect(peer...)
	w.run(time.Second)
	w.trace = w.note
	return w
}

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

// address is that of a name.
func (w *preferenceWorld) address(name string) netip.Addr { return preferenceAddresses[name[0]-'A'] }

// do has the first host do something with an address: "prefer A", say.
func (w *preferenceWorld) do(step string) {
	w.t.Helper()
	h := w.hosts[0]
	verb, name, _ := strings.Cut(step, " ")
	at, err := w.address(name), error(nil)
	switch verb {
	case "down":
		h.a.LinkDown(at, w.now, &h.out)
	case "up":
		h.a.LinkUp(at, w.now, &h.out)
	case "prefer":
		err = h.a.Change([]Change{{PreferAddress, at}}, w.now, &h.out)
	case "delete":
		err = h.a.Change([]Change{{DeleteAddress, at}}, w.now, &h.out)
	case "primary":
		if !h.a.SetPrimary(Pair{at, h.a.primary.Remote}) {
			w.t.Fatalf("%s has no path", name)
		}
	}
	if err != nil {
		w.t.Fatal(err)
	}
	h.flush()
}
