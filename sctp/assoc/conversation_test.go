// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// fuzzedPlays is how much of a tape the fuzzer has played: many short conversations find more than few long ones.
const fuzzedPlays = 64

// FuzzAssociation has two engines talk over a network that does whatever the tape says, but forge packets: each message
// arrives once, whole and in order, or its sender is told that it did not.
func FuzzAssociation(f *testing.F) {
	for _, seed := range conversationSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, octets []byte) { converse(t, octets, fuzzedPlays) })
}

// conversationSeeds are tapes that come to all that hosts do.
var conversationSeeds = []string{
	"\x00\x00\x10\x20\x08\x30\x40\x03\x10", "\x01\x00\xff\x10\xff\x20\xff\x04\x80\x03\xff\x03\xff\x04\x00\x03\xff",
	"\x02\x00\x20\x05\x00\x08\x20\x03\xff\x05\x00\x03\x20", "\x00\x06\x00\x00\xff\x10\xff\x00\xff\x03\xff\x06\x00\x03\x20",
	"\x04\x07\x00\x03\x40\x07\x11\x03\x40\x00\x20\x07\x22\x03\x80", "\x01\x00\xff\x04\x40\x10\xff\x03\x90\x00\xff\x18\xff\x03\xff\x28\xff",
	"\x40\x00\x20\x08\x20\x03\x20",                                 // at rest for long
	"\x00\x07\x04\x03\x10\x00\x20\x03\x20\x07\x05\x03\x10\x08\x20", // an address goes, and comes
	"\x00\x05\x03\x00\x30\x03\x20\x07\x15\x03\x80\x05\x00\x03\x20", // one is preferred while the other's way is cut
	"\x00\x00\x40\x08\x40\x07\xf0\x00\x10\x08\x10\x03\x40",         // the end, while both still talk
	"\x01\x06\x00\xff\x10\xff\x0f\xf0\x03\x80\x06\x03\x20",         // the end, while the other reads nothing
	"\x00\x00\x40\x07\xf8\x00\x20\x08\x20\x03\x20",                 // the first host begins anew
	"\x01\x05\x01\x00\xff\x08\xff\x03\x40\x0f\xf9\x08\x20\x03\x40", // the second one, with much under way
	"\x00\x07\x04\x03\x10\x07\xf8\x00\x20\x03\x10\x07\xf0\x08\x20", // an address goes, the host begins anew, the end
	// A small message that is sent again comes behind the beginning of a large one, and what was sent beside it is given up.
	"00 $200C>%0C'80$+00C\xa371a\v71\xb2 %0\xffZ00&8\xfea\xf4C0",
}

// TestSeedsOfConversations holds the tapes against what they are to come to.
func TestSeedsOfConversations(t *testing.T) {
	var seen conversation
	for _, seed := range conversationSeeds {
		c := converse(t, []byte(seed), fuzzedPlays)
		seen.begun, seen.ended, seen.changed = seen.begun+c.begun, seen.ended+c.ended, seen.changed+c.changed
	}
	if seen.begun < 3 || seen.ended < 3 || seen.changed < 3 {
		t.Errorf("hosts began anew %d times, ended in time %d times, changed addresses %d times", seen.begun, seen.ended, seen.changed)
	}
}

// TestLongConversations plays tapes that are longer than those of the fuzzer, one of which has found something.
func TestLongConversations(t *testing.T) {
	found, err := os.ReadFile("testdata/conversation")
	if err != nil {
		t.Fatal(err)
	}
	dice := rand.New(rand.NewPCG(1, 1))
	for _, tape := range append(make([][]byte, 20), found) {
		if tape == nil {
			for range 600 {
				tape = append(tape, byte(dice.Uint32()))
			}
		}
		converse(t, tape, 300)
	}
}

// restsLong is what the first octet of a tape says, beside parameters: the hosts are at rest for long before the end.
const restsLong = 0x40

// converse plays a tape.
func converse(t testing.TB, octets []byte, plays int) *conversation {
	p := &tape{octets}
	features := p.next()
	par := fuzzed(features)
	par.AssociationMaxRetrans, par.PathMaxRetrans = 1000, 5
	w := pair(t, par)
	w.checked = true
	c := &conversation{world: w, rests: features&restsLong != 0}
	for n := 0; !p.empty() && n < plays; n++ {
		c.play(p)
	}
	c.finish()
	return c
}

// BenchmarkConversation says what the fuzzer's tapes cost.
func BenchmarkConversation(b *testing.B) {
	dice := rand.New(rand.NewPCG(1, 1))
	for b.Loop() {
		tape := make([]byte, 1+dice.IntN(2*fuzzedPlays))
		for i := range tape {
			tape[i] = byte(dice.Uint32())
		}
		converse(b, tape, fuzzedPlays)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "conversations/s")
}

// conversation is what the hosts of a world have said.
type conversation struct {
	*world
	said [2][]string // by each host, in its order: stream, kind and number
	gone [2]int      // how many of these, from the first one on, a crash may have taken along

	rests                 bool // the hosts are at rest for long before the end
	begun, ended, changed int  // crashes, ends before the last one, and changes of addresses
}

// play does what the tape says next.
func (c *conversation) play(p *tape) {
	op := p.next()
	h := c.hosts[op>>3&1]
	switch op % 8 {
	case 0, 1, 2:
		c.say(h, uint16(op>>4&3), op&0x40 != 0, op&0x80 != 0, p.next())
	case 3:
		c.run(time.Duration(p.next()) * 4 * time.Millisecond)
	case 4:
		percent := int(p.next()) % 60
		c.lost = func(int, Packet) bool { return c.dice.IntN(100) < percent }
		c.delay = func(Pair) time.Duration { return time.Duration(c.dice.IntN(1+percent)) * time.Millisecond }
	case 5: // a path or a direction is cut
		kind := p.next()
		c.lost = func(from int, packet Packet) bool {
			return kind&1 != 0 && path1(packet.Pair) == (kind&2 != 0) && (kind&4 == 0 || from == int(kind>>3&1))
		}
	case 6:
		if h.reads = !h.reads; h.reads {
			h.a.Read(h.a.unread, c.now, &h.out)
			h.flush()
		}
	default:
		c.act(h, p)
	}
}

// act has a user do something with a path or an address, or end the association, or has its host crash.
func (c *conversation) act(h *host, p *tape) {
	b := p.next()
	path := h.a.paths[int(b>>4)%len(h.a.paths)].Pair
	switch act := b % 6; {
	case b >= 0xf8:
		c.crash(h)
	case b >= 0xf0:
		if h.a.state == established {
			c.ended++
		}
		h.a.Shutdown(c.now, &h.out)
	case act < 4:
		h.a.turnTo(path, act, c.now, &h.out)
	case act == 4:
		c.change(h, Change{DeleteAddress, path.Local})
	default:
		c.change(h, Change{AddAddress, dual()[h.index][b>>4&1]}, Change{PreferAddress, path.Local})
	}
	h.flush()
}

func (c *conversation) change(h *host, list ...Change) {
	if h.a.Change(list, c.now, &h.out) == nil {
		c.changed++
	}
}

// crash has a host forget all, and begin anew (RFC 9260 section 5.2.4, A). What was said before may be lost, but must not
// come twice. Until the association is set up again nothing else passes, which would meet the host out of the blue.
func (c *conversation) crash(h *host) {
	peer := c.hosts[1-h.index]
	config := h.end.config
	var remote []netip.Addr
	if config.Addresses, remote = peer.a.knows(); h.a.state != established || peer.a.state != established || len(remote) == 0 {
		return
	}
	c.begun++
	lost, delay := c.lost, c.delay
	c.flies, c.delay = nil, func(Pair) time.Duration { return 5 * time.Millisecond }
	c.lost = func(_ int, p Packet) bool {
		return !has(p, chunk.TypeInit) && !has(p, chunk.TypeInitAck) && !has(p, chunk.TypeCookieEcho) && !has(p, chunk.TypeCookieAck)
	}
	random := rand.NewChaCha8([32]byte{byte(h.index), byte(c.begun)})
	config.Random = func(b []byte) { random.Read(b) }
	h.end, h.out, h.parts = New(config), Output{}, map[part][]byte{}
	var err error
	if h.a, err = h.end.Connect(remote, 5000, c.udp, config.Parameters, c.now, &h.out); err != nil {
		c.t.Fatal(err)
	}
	h.flush()
	if c.run(time.Second); h.a.state != established || !peer.saw(Restarted) {
		c.t.Fatalf("host %d does not begin anew: state %d, %+v", h.index, h.a.state, peer.end.Counters)
	}
	for i, h := range c.hosts {
		c.gone[i], h.events = len(c.said[i]), nil
	}
	c.lost, c.delay = lost, delay
}

// knows are the peer's addresses and our own, as an association has them.
func (a *Association) knows() (peers, ours []netip.Addr) {
	for _, p := range a.paths {
		if !slices.Contains(peers, p.Remote) {
			peers = append(peers, p.Remote)
		}
		if p.use == normal && !slices.Contains(ours, p.Local) {
			ours = append(ours, p.Local)
		}
	}
	return peers, ours
}

var filling = bytes.Repeat([]byte("x"), 4*8*0xff)

// say sends a message that can be told from all others.
func (c *conversation) say(h *host, stream uint16, unordered, mayExpire bool, size byte) {
	kind := 'o'
	if unordered {
		kind = 'u'
	}
	id := fmt.Sprintf("%d:%c%d ", stream, kind, len(c.said[h.index]))
	octets := 8 * int(size)
	if size > 240 {
		octets *= 4 // more than half of a buffer, which is delivered in pieces
	}
	m := Message{Stream: stream, Unordered: unordered, User: append([]byte(id[2:]), filling[:octets]...)}
	if mayExpire {
		m.Tries = 1
	}
	if h.a.Send(m, c.now, &h.out) == nil {
		c.said[h.index] = append(c.said[h.index], id)
	}
	h.flush()
}

// finish heals the network, waits, and compares what was said with what was heard.
func (c *conversation) finish() {
	c.lost, c.delay = nil, func(Pair) time.Duration { return 5 * time.Millisecond }
	for _, h := range c.hosts {
		for _, local := range dual()[h.index] {
			h.a.LinkUp(local, c.now, &h.out)
		}
		h.reads = true
		h.a.Read(h.a.unread, c.now, &h.out)
		h.flush()
	}
	for wait := 0; !c.still() && wait < 1200; wait++ {
		c.run(time.Second)
	}
	if c.rests {
		c.run(10 * time.Minute)
	}
	for i, h := range c.hosts {
		failed := 0
		for _, e := range h.events {
			switch e.Kind {
			case Failed:
				if !c.mayFail(i, e.Reason) {
					c.t.Fatalf("the association of host %d has failed: %v", i, e.Reason)
				}
			case SendFailed:
				failed++
			}
		}
		c.compare(i, c.said[i], c.hosts[1-i].got, failed)
		if a := h.a; !h.has(Failed) && a.sent.length+a.queued+a.held+a.unread+a.marked+a.outside > 0 {
			c.t.Fatalf("host %d keeps %d chunks, %d octets to send, %d held, %d unread", i, a.sent.length, a.queued, a.held, a.unread)
		}
		h.a.Shutdown(c.now, &h.out)
		h.flush()
	}
	// T5 may be what ends it, see mayFail: five times RTO.Max; or T2, at most eleven times RTO.Max (RFC 9260 section 9.2).
	for wait := 0; !(c.hosts[0].a.state == closed && c.hosts[1].a.state == closed) && wait < 600; wait++ {
		c.run(time.Second)
	}
	for i, h := range c.hosts {
		if !h.has(Closed) && !h.has(Failed) || len(h.end.byTag)+len(h.end.byPeer) > 0 || !h.end.Next().IsZero() {
			c.t.Fatalf("host %d: state %d, %d associations are left", i, h.a.state, len(h.end.byTag))
		}
	}
}

// mayFail reports whether an end may go wrong. What a host that has ended is sent late it answers with an ABORT (RFC 9260
// section 8.4); and an address that was added right before nobody verifies any more, since heartbeats end with SHUTDOWN
// (sections 5.4 and 8.3): if it is the only one, T5 or T2 ends the association.
func (c *conversation) mayFail(i int, reason Reason) bool {
	switch peer := c.hosts[1-i]; reason {
	case ReasonAborted:
		return peer.has(Closed) || peer.has(Failed)
	case ReasonNoAnswer:
		return c.ended > 0 && c.changed > 0
	}
	return false
}

// has reports whether an event of a kind has come.
func (h *host) has(kind EventKind) bool {
	return slices.ContainsFunc(h.events, func(e Event) bool { return e.Kind == kind })
}

// still reports whether nothing is under way between the hosts, and nothing waits.
func (c *conversation) still() bool {
	return len(c.flies) == 0 && c.hosts[0].a.still() && c.hosts[1].a.still()
}

func (a *Association) still() bool {
	return a.state == closed || a.sent.length+a.queued+a.held+a.unread+a.marked+a.outside == 0 && a.changes.chunk == nil && len(a.changes.waiting) == 0
}

// compare holds what was heard against what was said: all of it once, but what has failed, and in order where that was
// asked for.
func (c *conversation) compare(from int, said, heard []string, failed int) {
	c.t.Helper()
	last := map[string]int{}
	seen := map[string]bool{}
	for _, one := range heard {
		id, rest, _ := strings.Cut(one, " ")
		id += " "
		at := slices.Index(said, id)
		if at < 0 || seen[id] || strings.Trim(rest, "x") != "" {
			c.t.Fatalf("from host %d: %.20q was not said, or comes twice", from, one)
		}
		seen[id] = true
		if stream := id[:3]; id[2] == 'o' {
			if before, ok := last[stream]; ok && at < before {
				c.t.Fatalf("from host %d: %q comes behind %q", from, id, said[before])
			}
			last[stream] = at
		}
	}
	missing := slices.DeleteFunc(slices.Clone(said[c.gone[from]:]), func(id string) bool { return seen[id] })
	if len(missing) > failed {
		c.t.Fatalf("from host %d: of %d messages %q are missing, %d have failed", from, len(said), missing, failed)
	}
}
