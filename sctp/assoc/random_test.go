// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// packetsEnv says how many packets TestRandomPackets has engines meet; 10000000 is the long form.
const packetsEnv = "ISTHMUS_SCTP_PACKETS"

func packetCount(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv(packetsEnv))
	switch {
	case os.Getenv(packetsEnv) == "":
		return 40_000
	case err != nil || n <= 0:
		t.Fatalf("%s is no number of packets", packetsEnv)
	}
	return n
}

// perWorld is after how many packets an association ends, and another begins.
const perWorld = 20_000

// TestRandomPackets has two engines talk while packets come between that neither has sent. Those of outsiders, who do not
// know the tags but may have seen all that passed, change nothing: no message is lost, changed or comes twice. Those of
// insiders, who know the tags, may end the association, and nothing more: the books are right, and nothing is left.
func TestRandomPackets(t *testing.T) {
	n := packetCount(t)
	t.Run("outsiders", func(t *testing.T) {
		for round := 0; round*perWorld < n/2; round++ {
			testOutsiders(t, round, min(perWorld, n/2))
		}
	})
	t.Run("insiders", func(t *testing.T) {
		for sent, round := 0, 0; sent < n/2; round++ {
			sent += testInsiders(t, round, min(perWorld, n/2-sent))
		}
	})
}

// busyWorld is one in which some packets get lost, and each is kept for a while.
func busyWorld(t *testing.T, round int) (w *world, seen *[]Packet) {
	par := fuzzed(byte(round))
	par.AssociationMaxRetrans = 100
	w = newWorld(t, dual(), par)
	for range round % 1000 { // other numbers each time
		w.dice.Uint64()
		w.hosts[0].end.random64()
		w.hosts[1].end.random64()
	}
	seen = &[]Packet{}
	w.trace = func(_ int, p Packet) {
		p.Octets, p.Pair = slices.Clone(p.Octets), Pair{p.Remote, p.Local}
		if len(*seen) < 200 {
			*seen = append(*seen, p)
			return
		}
		(*seen)[w.dice.IntN(len(*seen))] = p
	}
	w.connect(w.hosts[1].end.config.Addresses...)
	w.lost = func(int, Packet) bool { return w.dice.IntN(100) == 0 }
	return w, seen
}

// inject has the host that a packet is for take it.
func (w *world) inject(p Packet) {
	h := w.hosts[0]
	if !slices.Contains(h.end.config.Addresses, p.Local) {
		h = w.hosts[1]
	}
	h.end.Handle(p, w.now, &h.out)
	h.flush()
}

func testOutsiders(t *testing.T, round, n int) {
	w, seen := busyWorld(t, round)
	c := conversation{world: w, rests: true}
	for i := range n {
		if i%16 == 0 {
			c.say(w.hosts[w.dice.IntN(2)], uint16(w.dice.IntN(4)), w.dice.IntN(2) == 0, w.dice.IntN(4) == 0, byte(w.dice.IntN(256)))
			w.run(time.Duration(w.dice.IntN(20)) * time.Millisecond)
		}
		p := (*seen)[w.dice.IntN(len(*seen))]
		p.Octets = slices.Clone(p.Octets)
		switch w.dice.IntN(4) {
		case 0: // as it was
		case 1: // changed, with the checksum of what it was
			p.Octets[w.dice.IntN(len(p.Octets))] ^= 1 << w.dice.IntN(8)
		case 2: // with another tag
			p.Octets[4+w.dice.IntN(4)] ^= 1 << w.dice.IntN(8)
			chunk.Seal(p.Octets)
		case 3: // anything, from a stranger
			p.Remote = addresses("2001:db8:66::1")[0]
			for range 8 {
				p.Octets[4+w.dice.IntN(len(p.Octets)-4)] = byte(w.dice.Uint32())
			}
			chunk.Seal(p.Octets)
		}
		w.inject(p)
		if i%500 == 0 {
			w.check()
		}
	}
	c.finish()
}

func testInsiders(t *testing.T, round, n int) (sent int) {
	w, seen := busyWorld(t, round)
	c := conversation{world: w}
	for sent < n && w.hosts[0].a.state != closed && w.hosts[1].a.state != closed {
		if sent%16 == 0 {
			c.say(w.hosts[w.dice.IntN(2)], uint16(w.dice.IntN(4)), w.dice.IntN(2) == 0, w.dice.IntN(4) == 0, byte(w.dice.IntN(256)))
			w.run(time.Duration(w.dice.IntN(200)) * time.Millisecond)
		}
		p := (*seen)[w.dice.IntN(len(*seen))]
		p.Octets = slices.Clone(p.Octets)
		for range w.dice.IntN(4) {
			p.Octets[chunk.HeaderSize+w.dice.IntN(len(p.Octets)-chunk.HeaderSize)] = byte(w.dice.Uint32())
		}
		if w.dice.IntN(4) == 0 {
			p.Octets = append(p.Octets, (*seen)[w.dice.IntN(len(*seen))].Octets[chunk.HeaderSize:]...)
		}
		if w.dice.IntN(4) == 0 {
			p.Octets = p.Octets[:chunk.HeaderSize+w.dice.IntN(len(p.Octets)-chunk.HeaderSize)]
		}
		chunk.Seal(p.Octets)
		w.inject(p)
		if sent++; sent%100 == 0 {
			w.check()
		}
	}
	for _, h := range w.hosts {
		for _, a := range h.end.byTag {
			a.Abort("the end", &h.out)
		}
		h.flush()
	}
	w.run(time.Minute)
	for i, h := range w.hosts {
		for _, a := range h.end.byTag { // that a cookie of before has made again
			a.Abort("the end", &h.out)
		}
		if len(h.end.byTag)+len(h.end.byPeer) > 0 || !h.end.Next().IsZero() {
			t.Fatalf("host %d: %d associations and %d addresses are left", i, len(h.end.byTag), len(h.end.byPeer))
		}
	}
	return sent
}

// check holds the books of all associations against what they count.
func (w *world) check() {
	w.t.Helper()
	for _, h := range w.hosts {
		for _, a := range h.end.byTag {
			checkSums(w.t, a)
		}
	}
}
