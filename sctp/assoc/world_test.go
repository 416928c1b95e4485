// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// start is when the clock of each world begins.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is two hosts and the network between them, on a clock of its own.
type world struct {
	t     testing.TB
	now   time.Time
	hosts [2]*host
	flies []flight
	dice  *rand.Rand

	delay   func(Pair) time.Duration // one way, by the sender's pair
	udp     uint16                   // the port that packets travel to; 0 in IP
	mtu     func(Pair) int           // of the packets of IP that pass; nil is without end
	lost    func(from int, p Packet) bool
	trace   func(from int, p Packet)
	checked bool // the books are, after each call
}

// flight is a packet on its way, at its receiver's end of the pair.
type flight struct {
	at time.Time
	to int
	Packet
}

// host is one end, and its user, who reads at once.
type host struct {
	w        *world
	index    int
	end      *Endpoint
	a        *Association
	out      Output
	events   []Event
	passages []Passage
	got      []string        // messages that have come, by stream and octets
	parts    map[part][]byte // of messages that come in pieces
	reads    bool
	gap      time.Duration // longest time between two messages
	last     time.Time
}

// part is where pieces of messages belong: they come one after the other in each stream, ordered ones and others.
type part struct {
	stream    uint16
	unordered bool
}

func addresses(list ...string) (as []netip.Addr) {
	for _, one := range list {
		as = append(as, netip.MustParseAddr(one))
	}
	return as
}

// dual are two hosts of two addresses each, of which the first and the second are of networks of their own.
func dual() [2][]netip.Addr {
	return [2][]netip.Addr{slices.Clone(dualAddresses[0]), slices.Clone(dualAddresses[1])}
}

var dualAddresses = [2][]netip.Addr{addresses("2001:db8:1::a", "2001:db8:2::a"), addresses("2001:db8:1::b", "2001:db8:2::b")}

func newWorld(t testing.TB, at [2][]netip.Addr, par Parameters) *world {
	w := &world{t: t, now: start, dice: rand.New(rand.NewPCG(1, 2)), delay: func(Pair) time.Duration { return 5 * time.Millisecond }}
	for i := range w.hosts {
		random := rand.NewChaCha8([32]byte{byte(i + 1)})
		w.hosts[i] = &host{w: w, index: i, parts: map[part][]byte{}, reads: true, end: New(Config{
			Port: 5000, Addresses: at[i], Parameters: par, Listen: i == 1, MaxAssociations: 100,
			Random: func(b []byte) { random.Read(b) },
		})}
	}
	return w
}

// connect sets up an association from the first host to the second.
func (w *world) connect(remote ...netip.Addr) {
	w.t.Helper()
	h := w.hosts[0]
	a, err := h.end.Connect(remote, 5000, w.udp, h.end.config.Parameters, w.now, &h.out)
	if err != nil {
		w.t.Fatal(err)
	}
	h.a = a
	h.flush()
	w.run(2 * time.Second)
	if w.hosts[1].a == nil || a.state != established {
		w.t.Fatalf("no association: state %d, %+v", a.state, w.hosts[1].end.Counters)
	}
}

// pair is a world with an association between hosts of two addresses.
func pair(t testing.TB, par Parameters) *world {
	w := newWorld(t, dual(), par)
	w.connect(w.hosts[1].end.config.Addresses...)
	return w
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	w.t.Helper()
	end := w.now.Add(d)
	for steps := 0; ; steps++ {
		if steps > 2_000_000 {
			w.t.Fatal("the world does not come to rest")
		}
		at, to := end, -1
		for i, h := range w.hosts {
			if next := h.end.Next(); !next.IsZero() && next.Before(at) {
				at, to = next, i
			}
		}
		if len(w.flies) > 0 && !w.flies[0].at.After(at) && w.flies[0].at.Before(end) {
			f := w.flies[0]
			w.flies = slices.Delete(w.flies, 0, 1)
			w.now = f.at
			h := w.hosts[f.to]
			h.end.Handle(f.Packet, w.now, &h.out)
			h.flush()
			continue
		}
		if to < 0 {
			w.now = end
			return
		}
		if at.After(w.now) {
			w.now = at
		}
		w.hosts[to].end.Tick(w.now, &w.hosts[to].out)
		w.hosts[to].flush()
	}
}

// flush puts what a host has sent on its way, and lets its user read.
func (h *host) flush() {
	for len(h.out.Packets)+len(h.out.Events) > 0 {
		for _, p := range h.out.Packets {
			h.w.send(h.index, p)
		}
		read := 0
		for _, e := range h.out.Events {
			read += h.note(e)
		}
		h.passages = append(h.passages, h.out.Passages...)
		h.out.Reset()
		if read > 0 && h.reads && h.a != nil {
			h.a.Read(read, h.w.now, &h.out)
		}
	}
	if h.w.checked && h.a != nil && h.a.state != closed {
		checkSums(h.w.t, h.a)
	}
}

// send puts a packet on its way.
func (w *world) send(from int, p Packet) {
	if w.trace != nil {
		w.trace(from, p)
	}
	if w.lost != nil && w.lost(from, p) || w.mtu != nil && !p.Fragment && w.size(p) > w.mtu(p.Pair) {
		return
	}
	f := flight{at: w.now.Add(w.delay(p.Pair)), to: 1 - from, Packet: Packet{Pair: Pair{p.Remote, p.Local}, Port: p.Port, Octets: slices.Clone(p.Octets)}}
	at := len(w.flies)
	for at > 0 && w.flies[at-1].at.After(f.at) {
		at--
	}
	w.flies = slices.Insert(w.flies, at, f)
}

// size is how many octets a packet of IP has.
func (w *world) size(p Packet) int {
	size := len(p.Octets) + headerIPv6
	if p.Remote.Is4() {
		size = len(p.Octets) + headerIPv4
	}
	if p.Port != 0 {
		size += headerUDP
	}
	return size
}

// note keeps an event. It returns what it costs the receive buffer.
func (h *host) note(e Event) int {
	if e.Kind == Accepted {
		h.a = e.Association
	}
	if e.Kind != Received {
		e.Data.User = slices.Clone(e.Data.User)
		h.events = append(h.events, e)
		return 0
	}
	if !h.last.IsZero() {
		h.gap = max(h.gap, h.w.now.Sub(h.last))
	}
	h.last = h.w.now
	key := part{e.Data.Stream, e.Data.Unordered}
	if e.Data.First {
		h.parts[key] = nil
	}
	h.parts[key] = append(h.parts[key], e.Data.User...)
	if e.Data.Last {
		h.got = append(h.got, strconv.Itoa(int(e.Data.Stream))+":"+string(h.parts[key]))
		delete(h.parts, key)
	}
	return e.Data.Cost()
}

// say sends a message, waiting for room.
func (h *host) say(stream uint16, octets []byte, unordered bool) {
	h.w.t.Helper()
	for range 10000 {
		err := h.a.Send(Message{Stream: stream, Unordered: unordered, User: octets}, h.w.now, &h.out)
		h.flush()
		if err == nil {
			return
		}
		if err != ErrBlocked {
			h.w.t.Fatal(err)
		}
		h.w.run(10 * time.Millisecond)
	}
	h.w.t.Fatal("the send buffer stays full")
}

// saw reports whether an event of a kind has come, and takes it away with those before it.
func (h *host) saw(kind EventKind) bool {
	at := slices.IndexFunc(h.events, func(e Event) bool { return e.Kind == kind })
	if at < 0 {
		return false
	}
	h.events = h.events[at+1:]
	return true
}

// types are the chunks of a packet.
func types(p Packet) (list []chunk.Type) {
	_, rest, _ := chunk.Open(p.Octets)
	for len(rest) > 0 {
		c, after, err := chunk.Next(rest)
		if err != nil {
			break
		}
		list, rest = append(list, c.Type), after
	}
	return list
}

func has(p Packet, t chunk.Type) bool { return slices.Contains(types(p), t) }

// path1 reports whether a pair is of the first network.
func path1(p Pair) bool { return bytes.HasPrefix(p.Remote.AsSlice(), []byte{0x20, 1, 0xd, 0xb8, 0, 1}) }

// firstTSN is that of the first data in a packet.
func firstTSN(p Packet) (tsn uint32, data bool) {
	if list := dataTSNs(p); len(list) > 0 {
		return list[0], true
	}
	return 0, false
}

// dataTSNs are those of the data in a packet.
func dataTSNs(p Packet) (list []uint32) {
	_, rest, _ := chunk.Open(p.Octets)
	for len(rest) > 0 {
		c, after, err := chunk.Next(rest)
		if err != nil {
			break
		}
		if c.Type == chunk.TypeData || c.Type == chunk.TypeIData {
			if d, err := chunk.ParseData(c); err == nil {
				list = append(list, d.TSN)
			}
		}
		rest = after
	}
	return list
}
