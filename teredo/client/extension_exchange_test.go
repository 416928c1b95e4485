// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/teredo/nattest"
)

var withoutNonce = regexp.MustCompile(` nonce \d+`)

// exchange has A send data to B, each behind a NAT, until it is there, and
// compares the datagrams and the time.
func exchange(t *testing.T, from, to nattest.Kind, took time.Duration, want []string) {
	t.Helper()
	w := newWorld(t)
	a := w.qualified(nattest.NewNAT(from, natA))
	b := w.qualified(nattest.NewNAT(to, natB))
	compare(t, w, a, b, took, want)
}

func compare(t *testing.T, w *world, a, b *clientNode, took time.Duration, want []string) {
	t.Helper()
	r := record(w, a, b)
	since := w.net.Now()
	a.say(b.address(), "data")
	w.net.RunUntil(10*time.Second, func() bool { return len(b.got) > 0 })
	if diff := cmp.Diff(want, r.lines); diff != "" {
		t.Errorf("exchange (-want +got):\n%s", diff)
	}
	if got := w.net.Now().Sub(since); got != took {
		t.Errorf("the data took %v, want %v", got, took)
	}
}

// RFC 6081 section 6.3: two port-preserving symmetric NATs. The numbers are the
// RFC's; steps 8 and 9 are not waited for.
func TestExchangePortPreserving(t *testing.T) {
	exchange(t, nattest.SymmetricPreserving, nattest.SymmetricPreserving, 7*delay, []string{
		"NAT A -> NAT B: bubble A -> B (dropped)",                            // 1
		"NAT A -> server: bubble A -> B nonce 1 announces 1",                 // 2
		"server -> NAT B: bubble A -> B nonce 1 announces 1",                 //
		"NAT B -> NAT A: bubble B -> A nonce 1 (dropped)",                    // 3
		"NAT B -> NAT A port 1: bubble B -> A nonce 1 announces 2 (dropped)", // 4
		"NAT B -> server: bubble B -> A nonce 2 announces 2",                 // 5
		"server -> NAT A: bubble B -> A nonce 2 announces 2",                 //
		"NAT A -> NAT B: bubble A -> B nonce 2 (dropped)",                    // 6
		"NAT A port 1 -> NAT B port 2: bubble A -> B nonce 2 announces 1",    // 7
		"NAT B port 2 -> NAT A port 1: bubble B -> A nonce 1",                // 9
		"NAT A port 1 -> NAT B port 2: bubble A -> B nonce 2",
		"NAT A port 1 -> NAT B port 2: data A -> B",
	})
}

// The same with a port-restricted NAT at the other end, which announces no port.
func TestExchangePortPreservingToPortRestricted(t *testing.T) {
	exchange(t, nattest.SymmetricPreserving, nattest.PortRestricted, 7*delay, []string{
		"NAT A -> NAT B: bubble A -> B (dropped)",
		"NAT A -> server: bubble A -> B nonce 1 announces 1",
		"server -> NAT B: bubble A -> B nonce 1 announces 1",
		"NAT B -> NAT A: bubble B -> A nonce 1 (dropped)",
		"NAT B -> NAT A port 1: bubble B -> A nonce 1 (dropped)",
		"NAT B -> server: bubble B -> A nonce 2",
		"server -> NAT A: bubble B -> A nonce 2",
		"NAT A -> NAT B: bubble A -> B nonce 2 (dropped)",
		"NAT A port 1 -> NAT B: bubble A -> B nonce 2 announces 1",
		"NAT B -> NAT A port 1: bubble B -> A nonce 1",
		"NAT A port 1 -> NAT B: bubble A -> B nonce 2",
		"NAT A port 1 -> NAT B: data A -> B",
	})
}

// RFC 6081 section 6.4: from a sequential NAT to a port-restricted one. The RFC
// counts the direct bubble of step 10 before the indirect one of step 9 is there;
// until then A keeps in mind that it heard B.
func TestExchangeSequential(t *testing.T) {
	exchange(t, nattest.SymmetricSequential, nattest.PortRestricted, 7*delay, []string{
		"NAT A -> NAT B: bubble A -> B (dropped)",            // 1
		"NAT A -> server: solicitation",                      // 2
		"NAT A -> NAT B: bubble A -> B (dropped)",            // 4
		"NAT A -> secondary: solicitation",                   // 5
		"server -> NAT A: advertisement",                     // 3
		"secondary -> NAT A: advertisement",                  // 6
		"NAT A -> server: bubble A -> B nonce 1 announces 1", // 7
		"server -> NAT B: bubble A -> B nonce 1 announces 1", //
		"NAT B -> NAT A: bubble B -> A nonce 1 (dropped)",    // 8
		"NAT B -> NAT A port 1: bubble B -> A nonce 1",       // 10
		"NAT B -> server: bubble B -> A nonce 2",             // 9
		"server -> NAT A: bubble B -> A nonce 2",             //
		"NAT A port 1 -> NAT B: bubble A -> B nonce 2",       // 11
		"NAT A port 1 -> NAT B: data A -> B",
	})
}

// The same, begun at the port-restricted end.
func TestExchangePortRestrictedToSequential(t *testing.T) {
	exchange(t, nattest.PortRestricted, nattest.SymmetricSequential, 9*delay, []string{
		"NAT A -> NAT B: bubble A -> B (dropped)",
		"NAT A -> server: bubble A -> B nonce 1",
		"server -> NAT B: bubble A -> B nonce 1",
		"NAT B -> NAT A: bubble B -> A nonce 1 (dropped)",
		"NAT B -> server: solicitation",
		"NAT B -> NAT A: bubble B -> A nonce 1 (dropped)",
		"NAT B -> secondary: solicitation",
		"server -> NAT B: advertisement",
		"secondary -> NAT B: advertisement",
		"NAT B -> server: bubble B -> A nonce 2 announces 1",
		"server -> NAT A: bubble B -> A nonce 2 announces 1",
		"NAT A -> NAT B: bubble A -> B nonce 2 (dropped)",
		"NAT A -> NAT B port 1: bubble A -> B nonce 2",
		"NAT B port 1 -> NAT A: bubble B -> A nonce 1",
		"NAT A -> NAT B port 1: bubble A -> B nonce 2",
		"NAT A -> NAT B port 1: data A -> B",
	})
}

// RFC 6081 sections 3.5 and 6.5, with one NAT and without port mappings: two
// clients behind a NAT that does not hairpin.
func TestExchangeHairpin(t *testing.T) {
	w := newWorld(t)
	nat := nattest.NewNAT(nattest.PortRestricted, natA)
	a, b := w.qualified(nat), w.qualified(nat)
	compare(t, w, a, b, 5*delay, []string{
		"NAT A -> NAT A: bubble A -> B (dropped)",         // 1
		"NAT A -> server: bubble A -> B nonce 1",          // 2
		"server -> NAT A: bubble A -> B nonce 1",          //
		"NAT A -> NAT A: bubble B -> A nonce 1 (dropped)", // 3
		"host B -> host A: bubble B -> A nonce 1",         // 5
		"NAT A -> server: bubble B -> A nonce 2",          // 6
		"server -> NAT A: bubble B -> A nonce 2",          //
		"host A -> host B: bubble A -> B nonce 2",         // 7
		"host A -> host B: data A -> B",
	})
}

// RFC 6081 section 6.6: after a silence one direct bubble and its answer do.
func TestExchangeLoadReduction(t *testing.T) {
	for _, kinds := range [][2]nattest.Kind{
		{nattest.PortRestricted, nattest.FullCone},
		{nattest.SymmetricRandom, nattest.AddressRestricted},
		{nattest.AddressRestricted, nattest.SymmetricRandom},
	} {
		t.Run(kinds[0].Name+" to "+kinds[1].Name, func(t *testing.T) {
			w := newWorld(t)
			a := w.qualified(nattest.NewNAT(kinds[0], natA))
			b := w.qualified(nattest.NewNAT(kinds[1], natB))
			a.say(b.address(), "first")
			w.net.Run(100 * time.Second)
			b.got = nil
			r := record(w, a, b)
			a.say(b.address(), "data")
			since := w.net.Now()
			w.net.RunUntil(time.Second, func() bool { return len(b.got) > 0 })
			for i := range r.lines {
				// The nonce of the time before is still known at both ends.
				r.lines[i] = withoutNonce.ReplaceAllString(r.lines[i], "")
			}
			if diff := cmp.Diff([]string{
				"NAT A -> NAT B: bubble A -> B solicits",
				"NAT B -> NAT A: bubble B -> A advertises",
				"NAT A -> NAT B: data A -> B",
			}, r.lines); diff != "" {
				t.Errorf("exchange (-want +got):\n%s", diff)
			}
			if took := w.net.Now().Sub(since); took != 3*delay {
				t.Errorf("the data took %v", took)
			}
		})
	}
}
