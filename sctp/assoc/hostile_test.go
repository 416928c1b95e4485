// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// TestBadPackets counts each by what is wrong with it, answers none, and changes nothing.
func TestBadPackets(t *testing.T) {
	heartbeat := chunk.AppendHeartbeat(nil, []byte("x"))
	packet := func(s *script, destination, source uint16, chunks ...[]byte) []byte {
		b := chunk.Begin(nil, chunk.Header{Source: source, Destination: destination, Tag: s.a.tag})
		b = append(b, slices.Concat(chunks...)...)
		chunk.Seal(b)
		return b
	}
	for _, tt := range []struct {
		name   string
		octets func(s *script) []byte
		count  func(c *Counters) uint64
	}{
		{"nothing", func(*script) []byte { return nil }, func(c *Counters) uint64 { return c.BadPacket }},
		{"11 octets", func(s *script) []byte { return packet(s, scriptPort, scriptPeerPort)[:11] }, func(c *Counters) uint64 { return c.BadPacket }},
		{"a wrong checksum", func(s *script) []byte {
			b := packet(s, scriptPort, scriptPeerPort, heartbeat)
			b[8] ^= 1
			return b
		}, func(c *Counters) uint64 { return c.BadPacket }},
		{"no chunk", func(s *script) []byte { return packet(s, scriptPort, scriptPeerPort) }, func(c *Counters) uint64 { return c.BadChunk }},
		{"half a chunk's header", func(s *script) []byte { return packet(s, scriptPort, scriptPeerPort, []byte{4, 0}) }, func(c *Counters) uint64 { return c.BadChunk }},
		{"a chunk of length 0", func(s *script) []byte { return packet(s, scriptPort, scriptPeerPort, []byte{4, 0, 0, 0}) }, func(c *Counters) uint64 { return c.BadChunk }},
		{"a chunk of length 3", func(s *script) []byte { return packet(s, scriptPort, scriptPeerPort, []byte{4, 0, 0, 3}) }, func(c *Counters) uint64 { return c.BadChunk }},
		{"a chunk longer than the packet", func(s *script) []byte { return packet(s, scriptPort, scriptPeerPort, []byte{4, 0, 0, 5}) }, func(c *Counters) uint64 { return c.BadChunk }},
		{"another port", func(s *script) []byte { return packet(s, scriptPort+1, scriptPeerPort, heartbeat) }, func(c *Counters) uint64 { return c.NotOurs }},
		{"from port 0", func(s *script) []byte { return packet(s, scriptPort, 0, heartbeat) }, func(c *Counters) uint64 { return c.NotOurs }},
		{"from another port", func(s *script) []byte { return packet(s, scriptPort, scriptPeerPort+1, heartbeat) }, func(c *Counters) uint64 { return c.Stranger }},
		{"a SACK that is cut off", func(s *script) []byte {
			return packet(s, scriptPort, scriptPeerPort, chunk.Append(nil, chunk.TypeSACK, 0, make([]byte, 11)))
		}, func(c *Counters) uint64 { return c.BadChunk }},
		{"a SACK with more gaps than it has", func(s *script) []byte {
			return packet(s, scriptPort, scriptPeerPort, chunk.Append(nil, chunk.TypeSACK, 0, []byte{0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0}))
		}, func(c *Counters) uint64 { return c.BadChunk }},
		{"DATA that is cut off", func(s *script) []byte {
			return packet(s, scriptPort, scriptPeerPort, chunk.Append(nil, chunk.TypeData, 3, make([]byte, 11)))
		}, func(c *Counters) uint64 { return c.BadChunk }},
		{"a heartbeat's answer without information", func(s *script) []byte {
			return packet(s, scriptPort, scriptPeerPort, plain(chunk.TypeHeartbeatAck))
		}, func(c *Counters) uint64 { return c.BadHeartbeat }},
		{"an INIT in between", func(s *script) []byte {
			return packet(s, scriptPort, scriptPeerPort, s.data(5000, "x")[:0], plain(chunk.TypeCookieAck), s.init.Append(nil, chunk.TypeInit))
		}, func(c *Counters) uint64 { return c.Unknown }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := accepted(t, quiet(), 1, 1)
			s.e.Handle(Packet{Pair: s.pair, Octets: tt.octets(s)}, s.now, &s.out)
			s.collect()
			s.expect(tt.name)
			if tt.count(&s.e.Counters) != 1 || s.a.state != established {
				t.Errorf("state %d, %+v", s.a.state, s.e.Counters)
			}
		})
	}
}

// TestWhatStandsBeforeABadChunk is taken (RFC 9260 section 6.10).
func TestWhatStandsBeforeABadChunk(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	s.peer(s.data(0, "x"), []byte{0, 3, 0, 200})
	s.expect("data and a bad chunk", "SACK+0")
	if s.received() != "x" || s.e.Counters.BadChunk != 1 {
		t.Errorf("%+v", s.e.Counters)
	}
}

// heapOf is how much memory what is left of a call takes.
func heapOf(made func() *script) (s *script, octets int64) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	s = made()
	octets = heap() - before
	runtime.KeepAlive(s)
	return s, octets
}

// TestReceiverMemory has peers waste what they may send before it is read, in the ways that cost most: no more is kept than
// twice the buffer that they were told of, and the window closes.
func TestReceiverMemory(t *testing.T) {
	for _, tt := range []struct {
		name string
		data func(n int) chunk.Data
	}{
		{"first fragments of one octet", func(n int) chunk.Data {
			return chunk.Data{Message: uint32(n), First: true, User: []byte("x")}
		}},
		{"unordered first fragments of one octet", func(int) chunk.Data { return chunk.Data{Unordered: true, First: true, User: []byte("x")} }},
		{"fragments of one octet in the middle", func(int) chunk.Data { return chunk.Data{User: []byte("x")} }},
		{"fragments of 257 octets in the middle", func(int) chunk.Data { return chunk.Data{User: make([]byte, 257)} }},
		{"large fragments in the middle", func(int) chunk.Data { return chunk.Data{User: make([]byte, 1200)} }},
		{"messages that wait for the first", func(n int) chunk.Data {
			return chunk.Data{Message: uint32(n + 1), First: true, Last: true, User: []byte("x")}
		}},
		{"messages that the user does not read", func(n int) chunk.Data {
			return chunk.Data{Message: uint32(n), First: true, Last: true, User: make([]byte, 1000)}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			par := quiet()
			s, octets := heapOf(func() *script {
				s := accepted(t, par, 1, 1)
				for n := range 20_000 {
					d := tt.data(n)
					d.TSN = scriptTSN + uint32(n)
					s.raw(s.pair, s.a.tag, d.Append(nil, false))
					s.packets, s.events = nil, nil
				}
				return s
			})
			if s.a.window() != 0 || s.e.Counters.BeyondWindow == 0 || s.a.state != established {
				t.Errorf("the window is %d, %+v", s.a.window(), s.e.Counters)
			}
			if octets > int64(2*par.ReceiveBuffer) {
				t.Errorf("%d octets of memory for a buffer of %d", octets, par.ReceiveBuffer)
			}
		})
	}
}

// TestSenderMemory has a peer never read what our user echoes in messages of an octet: that takes a few times the send
// buffer, not a hundred times.
func TestSenderMemory(t *testing.T) {
	par := quiet()
	s, octets := heapOf(func() *script {
		s := accepted(t, par, 1, 1)
		for n := 0; s.a.Send(Message{Stream: uint16(n % 10), User: []byte("x")}, s.now, &s.out) == nil && n < 1<<18; n++ {
			s.out.Reset()
		}
		return s
	})
	if octets > int64(6*par.SendBuffer) || s.a.kept < 1000 {
		t.Errorf("%d messages take %d octets of memory, for a buffer of %d", s.a.kept, octets, par.SendBuffer)
	}
}

// TestManyStreams names each stream that there may be once: what a stream costs is small.
func TestManyStreams(t *testing.T) {
	par := quiet()
	par.StreamsIn = 65535
	s, octets := heapOf(func() *script {
		s := newScript(t, par, 1, 1)
		s.init.Out = 65535
		s.accept()
		for n := range 65535 {
			s.e.Handle(Packet{Pair: s.pair, Octets: s.packet((&chunk.Data{TSN: scriptTSN + uint32(n), Stream: uint16(n), First: true, Last: true, User: []byte("x")}).Append(nil, false))}, s.now, &s.out)
			s.out.Reset()
			s.a.Read(1+PieceCost, s.now, &s.out)
			s.out.Reset()
		}
		return s
	})
	if len(s.a.in) != 65535 || s.a.held != 0 || octets > 8<<20 {
		t.Errorf("%d streams take %d octets", len(s.a.in), octets)
	}
}

// packet is one of the peer's.
func (s *script) packet(chunks []byte) []byte {
	b := append(chunk.Begin(nil, chunk.Header{Source: scriptPeerPort, Destination: scriptPort, Tag: s.a.tag}), chunks...)
	chunk.Seal(b)
	return b
}

// TestSACKFlood has thousands of SACKs, of all that is out and of nothing new: they send nothing, and grow no window.
func TestSACKFlood(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	s.say(20 * full)
	s.take()
	p := s.a.paths[0]
	for range 5000 {
		s.peer(s.sack(0, large))
	}
	s.expect("nothing new")
	s.expectWindow("nothing new", window{4344, unlimited, 0, 4 * pmdcs})
	// Acknowledged octet by octet, a packet would open the window by as many packets (RFC 9260 section 7.2.1): here each
	// counts once.
	for range 1000 {
		s.peer(s.sack(1, large))
	}
	if p.cwnd != 4344+pmdcs {
		t.Errorf("cwnd is %d", p.cwnd)
	}
	s.take()
	for range 1000 { // the same gap comes and goes
		s.peer(s.sack(1, large, chunk.Block{First: 3, Last: 3}))
		s.peer(s.sack(1, large))
	}
	if got := len(s.sent()); got > 5 || p.cwnd > 4344+2*pmdcs {
		t.Errorf("%d packets are sent, cwnd is %d", got, p.cwnd)
	}
}

// TestErrorStorm answers no ERROR, whatever it says.
func TestErrorStorm(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	for code := range chunk.CauseCode(300) {
		s.peer(chunk.AppendError(nil, chunk.TypeError, 0, chunk.Cause{Code: code, Value: []byte{byte(chunk.TypeASCONF), 0, 0, 4}}))
	}
	s.peer(chunk.Append(nil, chunk.TypeError, 0, []byte{0, 1, 0, 0}))
	s.peer(bytes.Repeat(chunk.AppendError(nil, chunk.TypeError, 0, chunk.Cause{Code: 1, Value: make([]byte, 4)}), 90))
	s.expect("errors")
	if s.a.state != established {
		t.Errorf("state %d", s.a.state)
	}
}

// TestSilentReader has a peer never read: the sender keeps no more than its buffer, and waits.
func TestSilentReader(t *testing.T) {
	par := quiet()
	par.SendBuffer = 50_000
	s := accepted(t, par, 1, 1)
	var err error
	for n := 0; err == nil && n < 1000; n++ {
		err = s.a.Send(Message{User: make([]byte, 1000)}, s.now, &s.out)
		s.collect()
	}
	if err != ErrBlocked || s.a.queued > par.SendBuffer {
		t.Errorf("%v, %d octets", err, s.a.queued)
	}
	s.peer(s.sack(4, 0))
	for range 5000 {
		if s.run(time.Second); len(s.take()) > 0 {
			s.peer(s.sack(4, 0))
		}
	}
	if s.a.state != established || s.a.queued > par.SendBuffer {
		t.Errorf("state %d, %d octets", s.a.state, s.a.queued)
	}
	if _, writable := s.saw(Writable); writable {
		t.Error("there is room")
	}
}

// TestStrangersAreNotFlooded has a peer name strangers in all the ways that there are, and let everything else fail: they
// get heartbeats alone, and few.
func TestStrangersAreNotFlooded(t *testing.T) {
	s := authentic(t, both, 1, 1, func(par *Parameters) { par.HeartbeatInterval, par.AssociationMaxRetrans = 30*time.Second, 1000 })
	for i := range 14 {
		s.peer(s.signed(chunk.HMACSHA256, s.change(i, request{chunk.ParamAddIP, fmt.Sprintf("2001:db8:66::%x", i+1)}, request{chunk.ParamSetPrimary, fmt.Sprintf("2001:db8:66::%x", i+1)})))
	}
	s.say(20 * full)
	s.take()
	strangers, octets := 0, 0
	for range 100 {
		s.run(time.Second)
		for _, p := range s.take() {
			if p.Remote == s.remote[0] {
				continue
			}
			strangers++
			octets += len(p.Octets)
			if got := types(p); !slices.Equal(got, []chunk.Type{chunk.TypeHeartbeat}) {
				t.Errorf("a stranger gets %v", got)
			}
		}
	}
	if strangers > 110 || strangers < 5 || octets > 60*strangers {
		t.Errorf("strangers get %d packets, %d octets", strangers, octets)
	}
}

// TestBlindAttacks try all that ends or changes an association, without the tag.
func TestBlindAttacks(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	s.say(full)
	s.take()
	before := s.a.peerTag
	for _, c := range [][]byte{
		plain(chunk.TypeAbort), chunk.Append(nil, chunk.TypeAbort, chunk.Reflected, nil), s.shutdownUpTo(1), plain(chunk.TypeShutdownAck),
		plain(chunk.TypeShutdownComplete), chunk.Append(nil, chunk.TypeShutdownComplete, chunk.Reflected, nil), s.sack(1, 0), s.data(0, "x"),
		chunk.AppendForwardTSN(nil, scriptTSN+9, nil, false), plain(chunk.TypeCookieAck),
	} {
		for _, tag := range []uint32{0, 1, s.a.tag ^ 1, s.a.peerTag ^ 1} {
			s.raw(s.pair, tag, c)
		}
	}
	s.expect("without the tag")
	if s.a.state != established || s.a.sent.length != 1 || s.a.peerTag != before || s.received() != "" {
		t.Errorf("state %d", s.a.state)
	}
	if s.e.Counters.BadTag != 40 {
		t.Errorf("%+v", s.e.Counters)
	}
}
