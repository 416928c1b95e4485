// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// tape is what a fuzzer writes: octets that are read one by one, and nothing but zeros behind them.
type tape struct{ octets []byte }

func (p *tape) next() (b byte) {
	if len(p.octets) > 0 {
		b, p.octets = p.octets[0], p.octets[1:]
	}
	return b
}

// take is so many octets, as far as there are some.
func (p *tape) take(n int) (b []byte) {
	n = min(n, len(p.octets))
	b, p.octets = p.octets[:n], p.octets[n:]
	return b
}

func (p *tape) empty() bool { return len(p.octets) == 0 }

// fuzzed are parameters with small buffers, so that they are full soon.
func fuzzed(features byte) Parameters {
	par := Defaults()
	par.SendBuffer, par.ReceiveBuffer = 10_000, 10_000
	par.Interleaving, par.PartialReliability, par.AddressChanges = features&1 != 0, features&2 == 0, features&4 == 0
	par.EarlyProbe = features&8 == 0
	if features&0x80 != 0 {
		par.Strict()
		par.HideFailing = true
	}
	return par
}

// FuzzEndpoint has an engine with an association meet a peer that does whatever the tape says. After each packet the books
// must be right, what is sent must be in proportion to what came, and timers must come to rest.
func FuzzEndpoint(f *testing.F) {
	for _, seed := range []string{
		"\x00\x01\x04\x00\x00\x00\x00",                                         // a chunk of length 0
		"\x00\x01\x04\x00\x00\x00\x03",                                         // and of 3
		"\x00\x07\x06\x00\x05\x00\x00\x00\x06",                                 // INIT with parameters of length 0 and less than there is
		"\x00\x04\x10\xc0\x01\x00\x04\x00\x06\x00\x05\xc0\x02\x00\x00",         // ASCONF with requests in requests that are cut off
		"\x00\x00\x08\x0f\x00\x00\x08\x00\x00\x00\x03",                         // AUTH without a code
		"\x00\x05\x03\x05\x03\x03\x06\x00\x00\x02\x00\x02\xff\xff",             // SACK with a block beyond what was sent
		"\x00\x05\x03\x05\x03\x03\x02\x03\x00\x02\x00\x03\x03\x02\x00",         // SACKs that renege
		"\x02\x02\x05\x01\x00\x00\x02x\x02\x05\x03\x00\x01\x00z\x06\x09",       // halves of messages
		"\x01\x02\x07\x01\x00\x00\x02ab\x08\x08\x05\x01\x00\x00\x01\x05",       // I-DATA, and I-FORWARD-TSN
		"\x00\x09\x00\x06\x05\x09\x01\x06\xff\x09\x02\x06\x30",                 // ends
		"\x04\x05\x20\x06\x14\x06\xff\x06\xff\x06\xff\x06\xff\x06\xff\x06\xff", // timeouts without an answer
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, octets []byte) {
		p := &tape{octets}
		s := newFuzzed(t, p.next())
		for n := 0; !p.empty() && n < 500; n++ {
			s.play(p)
		}
		s.finish()
	})
}

// newFuzzed is a script with all that may be agreed upon.
func newFuzzed(t testing.TB, features byte) *script {
	s := newScript(t, fuzzed(features), 2, 2)
	s.init.ForwardTSN = true
	s.init.Extensions = []chunk.Type{chunk.TypeASCONF, chunk.TypeASCONFAck, chunk.TypeAuth, chunk.TypeIData, chunk.TypeForwardTSN, chunk.TypeIForwardTSN}
	s.init.Random, s.init.HMACs = make([]byte, chunk.RandomSize), both
	s.init.Chunks = []chunk.Type{chunk.TypeASCONF, chunk.TypeASCONFAck}
	if features&0x10 != 0 {
		s.init.Chunks = append(s.init.Chunks, chunk.TypeData, chunk.TypeIData, chunk.TypeHeartbeatAck)
	}
	if s.accept(); features&0x20 == 0 {
		s.confirmAll()
	}
	return s
}

// play does what the tape says next.
func (s *script) play(p *tape) {
	if s.a.state == closed {
		if len(s.e.byTag) > 0 {
			s.t.Fatal("an association that has ended is still there")
		}
		s.accept()
	}
	s.events = nil
	switch op := p.next() % 11; op {
	case 0: // anything, with the right tag
		s.hear(p, p.take(int(p.next())))
	case 1: // a chunk of any type
		kind, flags := p.next(), p.next()
		s.hear(p, chunk.Append(nil, chunk.Type(kind), flags, p.take(int(p.next()))))
	case 2: // data near what has come
		s.hear(p, s.fuzzedData(p))
	case 3: // a SACK near what was sent
		tsn := s.a.acked + uint32(int8(p.next()))
		var blocks []chunk.Block
		for range p.next() % 6 {
			first := uint16(p.next())
			blocks = append(blocks, chunk.Block{First: first, Last: first + uint16(p.next()%8)})
		}
		s.hear(p, chunk.AppendSACK(nil, tsn, uint32(p.next())<<7, blocks, nil))
	case 4: // a change of addresses, or an answer to one, authenticated
		s.hear(p, s.fuzzedChange(p))
	case 5:
		m := Message{Stream: uint16(p.next() % 4), User: make([]byte, 1+40*int(p.next())), Unordered: p.next()&1 != 0}
		if p.next()&1 != 0 {
			m.Tries, m.Lifetime = 1, time.Second
		}
		_ = s.a.Send(m, s.now, &s.out)
		s.collect()
	case 6:
		s.run(time.Duration(p.next()) * 100 * time.Millisecond)
	case 7: // a set-up chunk of a peer that has one already
		i := s.init
		i.Tag += uint32(p.next())
		s.raw(s.fuzzedPair(p), 0, longer(i.Append(nil, chunk.TypeInit), p.take(int(p.next()))...))
	case 8: // what was given up
		var skips []chunk.Skip
		tsn := s.a.got.cumulative + uint32(int8(p.next()))
		for range p.next() % 4 {
			skips = append(skips, chunk.Skip{Stream: uint16(p.next() % 12), Unordered: p.next()&1 != 0, Message: uint32(p.next())})
		}
		s.hear(p, chunk.AppendForwardTSN(nil, tsn, skips, s.a.interleaved))
	case 9:
		s.act(p)
	case 10:
		s.a.Read(s.a.unread, s.now, &s.out)
		s.collect()
	}
}

// hear has the engine take chunks of the peer's by any pair, and holds its answer against them.
func (s *script) hear(p *tape, chunks []byte) {
	s.take()
	open := 0
	for _, path := range s.a.paths {
		open += path.cwnd + path.room() + 2*pmdcs // of data, a retransmission that ignores the window, and a copy
	}
	s.raw(s.fuzzedPair(p), s.a.tag, chunks)
	control := 0
	for _, out := range s.take() {
		if _, data := firstTSN(out); data {
			open -= len(out.Octets) - 200
		} else {
			control += len(out.Octets)
		}
	}
	if open < 0 || control > 2*len(chunks)+4000 {
		s.t.Fatalf("%d octets are answered with %d, and %d of data more than may be", len(chunks), control, -open)
	}
}

// fuzzedPair is one of the association's, or of a stranger's.
func (s *script) fuzzedPair(p *tape) Pair {
	switch b := p.next(); {
	case b < 160:
		return s.pair
	case b < 200:
		return Pair{s.local[b%2], s.remote[b/2%2]}
	default:
		return Pair{s.local[0], netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: b})}
	}
}

func (s *script) fuzzedData(p *tape) []byte {
	d := chunk.Data{TSN: s.a.got.cumulative + uint32(int8(p.next())), Stream: uint16(p.next() % 12), Message: uint32(p.next()), Fragment: uint32(p.next() % 4)}
	flags := p.next()
	d.Last, d.First, d.Unordered, d.Immediate = flags&1 != 0, flags&2 != 0, flags&4 != 0, flags&8 != 0
	d.User = make([]byte, 1+int(p.next())*int(flags>>4))
	return d.Append(nil, s.a.interleaved)
}

func (s *script) fuzzedChange(p *tape) []byte {
	kind := p.next()
	c := chunk.ASCONF{Serial: s.a.changes.peer + 1 + uint32(int8(kind)/32), Address: s.remote[0]}
	switch {
	case s.a.key == nil:
		return nil
	case kind%4 == 0:
		c.Requests = p.take(int(p.next()))
	case kind%4 == 1:
		return s.signed(chunk.HMACSHA256, (&chunk.ASCONFAck{Serial: s.a.changes.next - 1 - uint32(kind>>6), Answers: p.take(int(p.next()))}).Append(nil))
	default:
		for range 1 + p.next()%4 {
			r := chunk.Request{Type: [...]chunk.ParameterType{chunk.ParamAddIP, chunk.ParamDeleteIP, chunk.ParamSetPrimary}[p.next()%3], Correlation: uint32(p.next())}
			if r.Address = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: p.next()}); p.next()%2 == 0 {
				r.Address = append(s.remote, netip.IPv6Unspecified())[p.next()%3]
			}
			c.Requests = chunk.AppendRequest(c.Requests, r)
		}
	}
	return s.signed(chunk.HMACSHA256, c.Append(nil))
}

// act has our user do something.
func (s *script) act(p *tape) {
	path := s.a.paths[int(p.next())%len(s.a.paths)].Pair
	switch b := p.next() % 8; b {
	case 0:
		s.a.Shutdown(s.now, &s.out)
	case 1:
		s.a.Abort("enough", &s.out)
	case 2, 3, 4, 5:
		s.a.turnTo(path, b-2, s.now, &s.out)
	default:
		list := []Change{{ChangeKind(p.next() % 3), s.local[p.next()%2]}, {ChangeKind(p.next() % 3), path.Local}}
		_ = s.a.Change(list[:1+p.next()%2], s.now, &s.out)
	}
	s.collect()
}

// turnTo does one of the four things that a user may do with a path.
func (a *Association) turnTo(path Pair, what byte, now time.Time, out *Output) {
	switch what {
	case 0:
		a.SetPrimary(path)
	case 1:
		a.Probe(path, now, out)
	case 2:
		a.LinkDown([]netip.Addr{path.Local}, now, out)
	default:
		a.LinkUp(path.Local, now, out)
	}
}

// finish ends all: nothing may be left.
func (s *script) finish() {
	s.run(time.Minute)
	for _, a := range s.e.byTag {
		a.Abort("the end", &s.out)
		break
	}
	s.collect()
	if len(s.e.byTag)+len(s.e.byPeer) > 0 || !s.e.Next().IsZero() {
		s.t.Fatalf("%d associations and %d addresses are left, a timer at %v", len(s.e.byTag), len(s.e.byPeer), s.e.Next())
	}
}
