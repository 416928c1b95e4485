// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// script is an engine against a peer whose packets the test writes one by one.
type script struct {
	t             testing.TB
	now           time.Time
	e             *Endpoint
	a             *Association
	local, remote []netip.Addr
	pair          Pair       // by which the peer sends, as the engine sees it
	init          chunk.Init // the peer's
	out           Output
	packets       []Packet // that the engine has sent since take
	events        []Event
	message       uint32 // number of the next one that the peer sends in stream 0
}

// Addresses and ports of scripts, and the numbers that their peers choose.
var (
	scriptLocal  = addresses("2001:db8:1::a", "2001:db8:2::a")
	scriptRemote = addresses("2001:db8:1::b", "2001:db8:2::b")
)

const (
	scriptPort     = 5000
	scriptPeerPort = 6000
	scriptTag      = 0x50505050
)

// scriptTSN is the peer's first TSN, such that it wraps soon.
var scriptTSN uint32 = 0xfffffff0

// quiet are parameters without heartbeats, and with nothing that goes beyond the RFCs.
func quiet() Parameters {
	par := Defaults()
	par.Strict()
	par.HeartbeatInterval = -1
	return par
}

// newScript has no association yet. The engine and the peer have as many addresses of the script's. The engine does
// what RFC 9260 says, without early probes and without probes of larger packets.
func newScript(t testing.TB, par Parameters, local, remote int) *script {
	par.EarlyProbe, par.MaxMTU = false, baseIPv6
	random := rand.NewChaCha8([32]byte{7})
	s := &script{t: t, now: start, local: scriptLocal[:local], remote: scriptRemote[:remote], init: chunk.Init{
		Tag: scriptTag, Window: 1 << 20, Out: 10, In: 10, TSN: scriptTSN,
	}}
	if remote > 1 {
		s.init.Addresses = s.remote
	}
	s.e = New(Config{
		Port: scriptPort, Addresses: s.local, Parameters: par, Listen: true, MaxAssociations: 10,
		Random: func(b []byte) { random.Read(b) },
	})
	s.pair = Pair{s.local[0], s.remote[0]}
	return s
}

// accepted is a script whose peer has set up an association, from its first address to the engine's.
func accepted(t testing.TB, par Parameters, local, remote int) *script {
	s := newScript(t, par, local, remote)
	s.accept()
	return s
}

// accept has the peer set up an association.
func (s *script) accept() {
	s.t.Helper()
	s.raw(s.pair, 0, s.init.Append(nil, chunk.TypeInit))
	ack := s.initAck()
	s.raw(s.pair, ack.Tag, chunk.Append(nil, chunk.TypeCookieEcho, 0, ack.Cookie))
	if s.a == nil || s.a.state != established || !has(s.packets[0], chunk.TypeCookieAck) {
		s.t.Fatalf("not set up: %+v, %v", s.e.Counters, s.sent())
	}
	s.take()
}

// connecting is a script whose engine has sent an INIT to all of the peer's addresses that there are.
func connecting(t testing.TB, par Parameters, local, remote int) *script {
	s := newScript(t, par, local, remote)
	s.e.config.Listen = false
	a, err := s.e.Connect(s.remote, scriptPeerPort, 0, par, s.now, &s.out)
	if err != nil {
		t.Fatal(err)
	}
	s.a = a
	s.collect()
	return s
}

// connected is a script whose engine has set up an association.
func connected(t testing.TB, par Parameters, local, remote int) *script {
	s := connecting(t, par, local, remote)
	s.answerInit("cookie")
	s.peer(chunk.Append(nil, chunk.TypeCookieAck, 0, nil))
	if s.a.state != established {
		t.Fatalf("not set up: %+v", s.e.Counters)
	}
	s.take()
	return s
}

// answerInit has the peer answer an INIT with an INIT ACK.
func (s *script) answerInit(cookie string) {
	ack := s.init
	ack.Cookie = []byte(cookie)
	s.peer(ack.Append(nil, chunk.TypeInitAck))
}

// initAck takes the last packet, an INIT ACK.
func (s *script) initAck() chunk.Init {
	s.t.Helper()
	packets := s.take()
	if len(packets) == 0 || !slices.Equal(types(packets[len(packets)-1]), []chunk.Type{chunk.TypeInitAck}) {
		s.t.Fatalf("no INIT ACK: %v, %+v", packets, s.e.Counters)
	}
	_, rest, _ := chunk.Open(packets[len(packets)-1].Octets)
	c, _, _ := chunk.Next(rest)
	ack, err := chunk.ParseInit(c.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return ack
}

// peer has the engine handle a packet of the peer's with its tag.
func (s *script) peer(chunks ...[]byte) {
	s.t.Helper()
	s.raw(s.pair, s.a.tag, chunks...)
}

// raw has it handle any packet.
func (s *script) raw(pair Pair, tag uint32, chunks ...[]byte) {
	s.t.Helper()
	b := chunk.Begin(nil, chunk.Header{Source: scriptPeerPort, Destination: scriptPort, Tag: tag})
	b = append(b, slices.Concat(chunks...)...)
	chunk.Seal(b)
	s.e.Handle(Packet{Pair: pair, Octets: b}, s.now, &s.out)
	s.collect()
}

// collect keeps what the engine has put out, and has its user read.
func (s *script) collect() {
	s.t.Helper()
	for _, p := range s.out.Packets {
		p.Octets = slices.Clone(p.Octets)
		s.packets = append(s.packets, p)
	}
	for _, e := range s.out.Events {
		if e.Kind == Accepted {
			s.a = e.Association
		}
		e.Data.User = slices.Clone(e.Data.User)
		s.events = append(s.events, e)
	}
	s.out.Reset()
	for _, a := range s.e.byTag {
		checkSums(s.t, a)
	}
}

// take returns the packets that were sent since the last one was taken.
func (s *script) take() (packets []Packet) {
	packets, s.packets = s.packets, nil
	return packets
}

// run lets time pass.
func (s *script) run(d time.Duration) {
	s.t.Helper()
	end := s.now.Add(d)
	for n := 0; ; n++ {
		next := s.e.Next()
		if next.IsZero() || next.After(end) {
			s.now = end
			return
		}
		if n > 100_000 {
			s.t.Fatal("the engine does not come to rest")
		}
		if next.After(s.now) {
			s.now = next
		}
		s.e.Tick(s.now, &s.out)
		s.collect()
	}
}

// say has the engine send a message of so many octets in stream 0.
func (s *script) say(octets int) {
	s.t.Helper()
	s.send(Message{User: make([]byte, octets)})
}

func (s *script) send(m Message) {
	s.t.Helper()
	if err := s.a.Send(m, s.now, &s.out); err != nil {
		s.t.Fatal(err)
	}
	s.collect()
}

// data is a whole message of the peer's, the nth chunk from the first TSN.
func (s *script) data(n int, user string) []byte {
	d := chunk.Data{TSN: s.init.TSN + uint32(n), Message: s.message, First: true, Last: true, User: []byte(user)}
	s.message++
	return d.Append(nil, false)
}

// sack acknowledges the first n chunks that the engine has sent, and blocks behind those.
func (s *script) sack(n int, window uint32, blocks ...chunk.Block) []byte {
	return chunk.AppendSACK(nil, s.a.firstTSN-1+uint32(n), window, blocks, nil)
}

// sent returns what was sent since the last call, a packet each, as "DATA+0 DATA+1" with TSNs that count from the
// engine's first, or from the peer's in a SACK.
func (s *script) sent() (list []string) {
	for _, p := range s.take() {
		list = append(list, s.describe(p))
	}
	return list
}

// describe writes the chunks of a packet, and by which of the peer's addresses it goes if not the first.
func (s *script) describe(p Packet) string {
	var words []string
	if at := slices.Index(s.remote, p.Remote); at != 0 {
		words = append(words, fmt.Sprintf("to %d:", at))
	}
	_, rest, err := chunk.Open(p.Octets)
	for len(rest) > 0 && err == nil {
		var c chunk.Chunk
		if c, rest, err = chunk.Next(rest); err != nil {
			break
		}
		words = append(words, s.describeChunk(c))
	}
	if err != nil {
		s.t.Errorf("a packet of the engine's: %v", err)
	}
	return strings.Join(words, " ")
}

func (s *script) describeChunk(c chunk.Chunk) string {
	word := strings.ReplaceAll(c.Type.String(), " ", "-")
	if c.Flags&chunk.Reflected != 0 && (c.Type == chunk.TypeAbort || c.Type == chunk.TypeShutdownComplete) {
		word += "(T)"
	}
	switch c.Type {
	case chunk.TypeData, chunk.TypeIData:
		d, _ := chunk.ParseData(c)
		return fmt.Sprintf("%s+%d", word, int32(d.TSN-s.a.firstTSN))
	case chunk.TypeSACK:
		ack, _ := chunk.ParseSACK(c.Body)
		word = fmt.Sprintf("%s+%d", word, int32(ack.TSN-s.init.TSN))
		for b := range ack.Blocks() {
			word += fmt.Sprintf(",%d-%d", b.First, b.Last)
		}
		for tsn := range ack.Duplicates() {
			word += fmt.Sprintf(",twice:%d", int32(tsn-s.init.TSN))
		}
	case chunk.TypeAbort, chunk.TypeError:
		for list := c.Body; len(list) > 0; {
			cause, rest, err := chunk.NextCause(list)
			if err != nil {
				s.t.Errorf("an error cause of the engine's: %v", err)
				break
			}
			word += fmt.Sprintf(":%d", uint16(cause.Code))
			list = rest
		}
	case chunk.TypeForwardTSN, chunk.TypeIForwardTSN:
		f, _ := chunk.ParseForwardTSN(c)
		word = fmt.Sprintf("%s+%d", word, int32(f.TSN-s.a.firstTSN))
	}
	return word
}

// expect compares what was sent since the last call.
func (s *script) expect(what string, want ...string) {
	s.t.Helper()
	if got := s.sent(); !slices.Equal(got, want) {
		s.t.Errorf("%s: sent is %q, want %q", what, got, want)
	}
}

// saw returns the first event of a kind since the last such call, and forgets those up to it.
func (s *script) saw(kind EventKind) (e Event, ok bool) {
	at := slices.IndexFunc(s.events, func(e Event) bool { return e.Kind == kind })
	if at < 0 {
		return e, false
	}
	e = s.events[at]
	s.events = s.events[at+1:]
	return e, true
}

// received are the messages that the user has got, pieces joined with +.
func (s *script) received() string {
	var b strings.Builder
	for _, e := range s.events {
		if e.Kind != Received {
			continue
		}
		if b.Len() > 0 && e.Data.First {
			b.WriteByte(' ')
		} else if !e.Data.First {
			b.WriteByte('+')
		}
		b.Write(e.Data.User)
	}
	s.events = nil
	return b.String()
}

// checkSums fails if the books of an association do not agree with what they count.
func checkSums(t testing.TB, a *Association) {
	if err := wrongSums(a); err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// wrongSums is what is wrong with the books of an association.
func wrongSums(a *Association) error {
	flight, outside, marked, unacked := map[*Path]int{}, 0, 0, 0
	messages := map[*message]bool{}
	for i := range a.sent.length {
		c := a.sent.at(i)
		unacked += c.size
		messages[c.message] = true
		switch {
		case c.inFlight():
			flight[c.path] += a.length(c.size)
			outside += c.size
		case c.marked && c.acked:
			return errors.New("a chunk is acknowledged, and is to be sent again")
		case c.marked:
			marked++
		}
	}
	for _, p := range a.paths {
		if p.flight != flight[p] {
			return fmt.Errorf("%v: %d octets are in flight, the books say %d", p.Pair, flight[p], p.flight)
		}
		delete(flight, p)
	}
	if len(flight) > 0 {
		return errors.New("chunks are in flight by a path that there is none of")
	}
	if outside != a.outside || marked != a.marked {
		return fmt.Errorf("%d octets are out and %d chunks marked, the books say %d and %d", outside, marked, a.outside, a.marked)
	}
	waiting := 0
	for i := range a.outs {
		octets := 0
		for k := range a.outs[i].waiting.length {
			m := *a.outs[i].waiting.at(k)
			waiting += len(m.User) - m.cut
			messages[m] = true
			octets += len(m.User)
		}
		if octets != a.outs[i].octets {
			return fmt.Errorf("%d octets wait in stream %d, the books say %d", octets, i, a.outs[i].octets)
		}
	}
	if a.cutting != nil {
		messages[a.cutting] = true
	}
	if a.kept != len(messages) {
		return fmt.Errorf("%d messages are in the send buffer, the books say %d", len(messages), a.kept)
	}
	if a.queued != unacked+waiting {
		return fmt.Errorf("%d octets are in the send buffer, the books say %d", unacked+waiting, a.queued)
	}
	held := 0
	for i := range a.in {
		for _, m := range slices.Concat(a.in[i].ordered, a.in[i].loose) {
			for _, p := range m.pieces {
				held += cost(p.user)
			}
		}
	}
	if held != a.held || a.unread < 0 {
		return fmt.Errorf("%d octets are held, the books say %d; %d are unread", held, a.held, a.unread)
	}
	return nil
}
