// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"fmt"
	"hash"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// authentic is a script whose peer takes changes of addresses, and wants them authenticated by an HMAC.
func authentic(t *testing.T, hmacs []uint16, local, remote int, change func(*Parameters)) *script {
	par := quiet()
	par.AddressChanges = true
	change(&par)
	s := newScript(t, par, local, remote)
	s.init.Extensions = []chunk.Type{chunk.TypeASCONF, chunk.TypeASCONFAck, chunk.TypeAuth}
	s.init.Random, s.init.Chunks, s.init.HMACs = make([]byte, chunk.RandomSize), []chunk.Type{chunk.TypeASCONF, chunk.TypeASCONFAck}, hmacs
	s.accept()
	if !s.a.addresses {
		t.Fatal("addresses do not change")
	}
	return s
}

// both are the HMACs of most peers.
var both = []uint16{chunk.HMACSHA256, chunk.HMACSHA1}

// signed puts an AUTH in front of chunks.
func (s *script) signed(id uint16, chunks ...[]byte) []byte {
	size, made := chunk.SizeSHA256, func() hash.Hash { return hmac.New(sha256.New, s.a.key) }
	if id == chunk.HMACSHA1 {
		size, made = chunk.SizeSHA1, func() hash.Hash { return hmac.New(sha1.New, s.a.key) }
	}
	b, _ := chunk.AppendAuth(nil, 0, id, size)
	b = append(b, slices.Concat(chunks...)...)
	h := made()
	h.Write(b)
	copy(b[8:], h.Sum(nil))
	return b
}

// request is a change that the peer asks for.
type request struct {
	kind    chunk.ParameterType
	address string
}

// change is an ASCONF of the peer's, so many behind the first serial.
func (s *script) change(serial int, list ...request) []byte {
	c := chunk.ASCONF{Serial: s.init.TSN + uint32(serial), Address: s.remote[0]}
	for i, r := range list {
		c.Requests = chunk.AppendRequest(c.Requests, chunk.Request{Type: r.kind, Correlation: uint32(i + 100), Address: netip.MustParseAddr(r.address)})
	}
	return c.Append(nil)
}

// answers reads the ASCONF-ACK of the last packet, as "100:a1 101:ok", behind its serial.
func (s *script) answers() (got string) {
	s.t.Helper()
	packets := s.take()
	if len(packets) == 0 {
		return "none"
	}
	_, rest, err := chunk.Open(packets[0].Octets)
	for len(rest) > 0 && err == nil {
		var c chunk.Chunk
		if c, rest, err = chunk.Next(rest); c.Type != chunk.TypeASCONFAck {
			continue
		}
		ack, err := chunk.ParseASCONFAck(c.Body)
		if err != nil {
			s.t.Fatal(err)
		}
		got = fmt.Sprint(ack.Serial - s.init.TSN)
		for list := ack.Answers; len(list) > 0; {
			var one chunk.Answer
			if one, _, list, err = chunk.NextAnswer(list); err != nil {
				s.t.Fatal(err)
			}
			word := "ok"
			if one.Failed {
				cause, _, _ := chunk.NextCause(one.Causes)
				word = fmt.Sprintf("%x", uint16(cause.Code))
			}
			got += fmt.Sprintf(" %d:%s", one.Correlation, word)
		}
	}
	return got
}

const (
	first    = "2001:db8:1::b"
	second   = "2001:db8:2::b"
	third    = "2001:db8:3::b"
	wildcard = "::"
)

// TestRequests has a peer with two addresses ask for changes from its first (RFC 5061 sections 5.2, E4, and 5.3, F7 to
// F13).
func TestRequests(t *testing.T) {
	add, del, prefer := chunk.ParamAddIP, chunk.ParamDeleteIP, chunk.ParamSetPrimary
	for _, tt := range []struct {
		name   string
		list   []request
		want   string
		remote []string // that are left
	}{
		{"nothing", nil, "0", []string{first, second}},
		{"add", []request{{add, third}}, "0", []string{first, second, third}},
		{"add what is there", []request{{add, second}}, "0", []string{first, second}},
		{"add a multicast address", []request{{add, "ff02::1"}}, "0 100:a4", []string{first, second}},
		{"add one that cannot be reached", []request{{add, "192.0.2.1"}}, "0", []string{first, second, "192.0.2.1"}},
		{"delete", []request{{del, second}}, "0", []string{first}},
		{"delete what is not there", []request{{del, third}}, "0", []string{first, second}},
		{"delete the source", []request{{del, first}}, "0 100:a2", []string{first, second}},
		{"delete both", []request{{del, second}, {del, first}}, "0 101:a0", []string{first}},
		{"delete all others", []request{{del, wildcard}}, "0", []string{first}},
		{"add, then delete", []request{{add, third}, {del, second}}, "0", []string{first, third}},
		{"a delete behind an add that has failed", []request{{add, "ff02::1"}, {prefer, first}, {del, second}}, "0 100:a4 101:ok 102:a1", []string{first, second}},
		{"an add behind a delete that has failed", []request{{del, first}, {add, third}}, "0 100:a2 101:a1", []string{first, second}},
		{"an add behind a preference that has failed", []request{{prefer, third}, {add, third}}, "0 100:5 101:ok", []string{first, second, third}},
		{"prefer", []request{{prefer, second}}, "0", []string{first, second}},
		{"unknown, skipped and reported", []request{{0xc0ff, second}, {add, third}}, "0 100:8 101:ok", []string{first, second, third}},
		{"unknown, skipped", []request{{0x80ff, second}, {add, third}}, "0", []string{first, second, third}},
		{"unknown, reported", []request{{0x40ff, second}, {add, third}}, "0 100:8", []string{first, second}},
		{"unknown", []request{{0xff, second}, {add, third}}, "0", []string{first, second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := authentic(t, both, 1, 2, func(*Parameters) {})
			s.peer(s.signed(chunk.HMACSHA256, s.change(0, tt.list...)))
			if len(s.packets) != 1 || s.packets[0].Pair != s.pair || types(s.packets[0])[0] != chunk.TypeAuth {
				t.Errorf("%d answers", len(s.packets))
			}
			if got := s.answers(); got != tt.want {
				t.Errorf("the answer is %q, want %q", got, tt.want)
			}
			var left []string
			for r := range s.a.remotes() {
				left = append(left, r.address.String())
				if r.confirmed != (r.address == s.remote[0]) { // F14
					t.Errorf("%v is confirmed: %t", r.address, r.confirmed)
				}
				if s.e.byPeer[netip.AddrPortFrom(r.address, scriptPeerPort)] != s.a {
					t.Errorf("%v is not found", r.address)
				}
			}
			if !slices.Equal(left, tt.remote) || len(s.e.byPeer) != len(left) {
				t.Errorf("left are %v, want %v", left, tt.remote)
			}
		})
	}
}

// TestSerials takes each change once, answers the last again, and no others (RFC 5061 section 5.2, E1 to E5).
func TestSerials(t *testing.T) {
	s := authentic(t, both, 1, 1, func(*Parameters) {})
	sign := func(serial int, list ...request) []byte { return s.signed(chunk.HMACSHA256, s.change(serial, list...)) }
	s.peer(sign(-1))
	s.peer(sign(1))
	s.expect("out of turn")
	add := sign(0, request{chunk.ParamAddIP, third})
	s.peer(add)
	if got := s.answers(); got != "0" || len(s.a.paths) != 2 {
		t.Errorf("the answer is %q", got)
	}
	s.peer(sign(0, request{chunk.ParamDeleteIP, third})) // the same serial: it is not read
	if got := s.answers(); got != "0" || len(s.a.paths) != 2 {
		t.Errorf("the answer is %q", got)
	}
	for n := 1; n < 40; n++ { // serials wrap at 16
		s.peer(sign(n))
		if got := s.answers(); got != fmt.Sprint(n) {
			t.Errorf("the answer is %q, want %d", got, n)
		}
	}
	s.peer(add)
	s.expect("long ago")
	if s.e.Counters.BadChange != 3 {
		t.Errorf("%+v", s.e.Counters)
	}
}

// TestSeveralChangesInOnePacket has a peer repeat a request with new ones behind it, and all of those when the answers are
// lost: each is done once, and answered each time, in one packet (RFC 5061 sections 5.2, E1 to E7, and 5.5).
func TestSeveralChangesInOnePacket(t *testing.T) {
	s := authentic(t, both, 1, 1, func(*Parameters) {})
	send := func(serials ...int) (answered []int) {
		var chunks [][]byte
		for _, n := range serials {
			chunks = append(chunks, s.change(n, request{chunk.ParamAddIP, fmt.Sprintf("2001:db8:7::%x", n+1)}))
		}
		s.peer(s.signed(chunk.HMACSHA256, chunks...))
		for _, p := range s.take() {
			_, rest, _ := chunk.Open(p.Octets)
			for len(rest) > 0 {
				var c chunk.Chunk
				c, rest, _ = chunk.Next(rest)
				if ack, err := chunk.ParseASCONFAck(c.Body); c.Type == chunk.TypeASCONFAck && err == nil {
					answered = append(answered, int(int32(ack.Serial-s.init.TSN)))
				}
			}
		}
		return answered
	}
	for _, tt := range []struct{ sent, answered []int }{
		{[]int{0}, []int{0}}, {[]int{0, 1}, []int{0, 1}}, {[]int{0, 1, 2}, []int{0, 1, 2}}, {[]int{1}, []int{1}},
		{[]int{3}, []int{3}}, {[]int{2, 3}, []int{3}}, // to 2 the peer has had an answer: it has sent 3 alone
		{[]int{4, 5, 6, 7, 8, 9, 10, 11, 12, 13}, []int{4, 5, 6, 7, 8, 9, 10, 11, 12, 13}},
		{[]int{4, 5, 6}, []int{6}}, // eight are remembered
	} {
		if got := send(tt.sent...); !slices.Equal(got, tt.answered) {
			t.Errorf("of %v answered are %v", tt.sent, got)
		}
	}
	if len(s.a.paths) != 1+14 {
		t.Errorf("%d paths", len(s.a.paths))
	}
}

// TestChangeFromNewAddress asks from an address that the association does not have: the answer goes there, whether it is
// added or not (RFC 5061 sections 5.2, D2 and E6, and 5.3.2).
func TestChangeFromNewAddress(t *testing.T) {
	s := authentic(t, both, 1, 1, func(*Parameters) {})
	from := Pair{s.local[0], netip.MustParseAddr(third)}
	s.raw(from, s.a.tag, s.signed(chunk.HMACSHA256, s.change(0, request{chunk.ParamDeleteIP, second})))
	if len(s.packets) != 1 || s.packets[0].Pair != from || s.answers() != "0" {
		t.Error("the answer does not go to where the request came from")
	}
	if len(s.a.paths) != 1 {
		t.Errorf("%d paths", len(s.a.paths))
	}
	s.raw(from, s.a.tag, s.signed(chunk.HMACSHA256, s.change(1, request{chunk.ParamAddIP, wildcard}, request{chunk.ParamSetPrimary, wildcard}, request{chunk.ParamDeleteIP, first})))
	if len(s.packets) == 0 || s.packets[0].Pair != from || s.answers() != "1" {
		t.Error("the answer does not go to where the request came from")
	}
	s.say(100)
	for _, p := range s.take() {
		if !has(p, chunk.TypeHeartbeat) || p.Remote != from.Remote {
			t.Errorf("before the new address is verified: %q", s.describe(p))
		}
	}
	s.run(time.Second)
	packets := s.take()
	if len(packets) == 0 {
		t.Fatal("the new address is not verified")
	}
	ack, _ := heartbeatIn(packets[0])
	s.raw(from, s.a.tag, ack)
	if got := s.sent(); len(got) == 0 || got[0] != "to -1: DATA+0" {
		t.Errorf("sent is %q", got)
	}
	// An ASCONF-ACK with it that answers nothing ends the association, from wherever.
	s.raw(Pair{s.local[0], netip.MustParseAddr("2001:db8:66::1")}, s.a.tag, s.signed(chunk.HMACSHA256, s.change(1),
		(&chunk.ASCONFAck{Serial: s.a.changes.next}).Append(nil)))
	if got := s.sent(); len(got) != 1 || got[0] != "to -1: ABORT:163" {
		t.Errorf("sent is %q", got)
	}
}

// TestUnauthenticatedChanges drops them in silence, with what follows (RFC 5061 section 5.2, D5, RFC 4895 section 6.3).
func TestUnauthenticatedChanges(t *testing.T) {
	s := authentic(t, both, 1, 1, func(*Parameters) {})
	add := s.change(0, request{chunk.ParamAddIP, third})
	good := s.signed(chunk.HMACSHA256, add)
	forged := slices.Clone(good)
	forged[20] ^= 1
	later := slices.Clone(good)
	later[len(later)-1] ^= 1
	key := slices.Clone(good)
	key[5] = 1
	short := s.signed(chunk.HMACSHA256, add)
	short[7] = byte(chunk.HMACSHA1)
	for name, c := range map[string][]byte{
		"without": add, "behind data": slices.Concat(s.data(9, "x"), add), "before the AUTH": slices.Concat(add, good[:40], s.data(9, "x")),
		"forged": forged, "changed": later, "another key": key, "a code of another size": short,
		"two AUTHs": slices.Concat(s.signed(chunk.HMACSHA256, good)),
	} {
		s.peer(c)
		for _, one := range s.sent() {
			if one != "SACK+-1,10-10" && one != "SACK+-1,10-10,twice:9" {
				t.Errorf("%s: sent is %q", name, one)
			}
		}
	}
	s.peer(func() []byte { c := slices.Clone(good); c[7] = 2; return c }())
	s.expect("an HMAC that was not offered", "ERROR:261")
	if len(s.a.paths) != 1 || s.a.changes.peer != s.init.TSN-1 {
		t.Errorf("%d paths, %+v", len(s.a.paths), s.e.Counters)
	}
	s.peer(good)
	if s.answers() != "0" || len(s.a.paths) != 2 {
		t.Error("the right one is not taken")
	}
}

// TestManyRequests has hundreds fail: the answer fits into a packet, and what it does not say is not done.
func TestManyRequests(t *testing.T) {
	s := authentic(t, both, 1, 1, func(*Parameters) {})
	list := []request{{chunk.ParamSetPrimary, third}}
	for range 500 {
		list = append(list, request{chunk.ParamSetPrimary, third})
	}
	list = append(list, request{chunk.ParamAddIP, third})
	s.peer(s.signed(chunk.HMACSHA256, s.change(0, list...)))
	if len(s.packets[0].Octets) > 1240 || len(s.a.paths) != 1 {
		t.Errorf("%d octets, %d paths", len(s.packets[0].Octets), len(s.a.paths))
	}
	list = nil
	for i := range 500 {
		list = append(list, request{chunk.ParamAddIP, fmt.Sprintf("2001:db8:7::%x", i+1)})
	}
	s.take()
	s.peer(s.signed(chunk.HMACSHA256, s.change(1, list...)))
	if len(s.packets[0].Octets) > 1240 || len(s.a.paths) > maxAddresses {
		t.Errorf("%d octets, %d paths", len(s.packets[0].Octets), len(s.a.paths))
	}
}

// ask has our user change addresses.
func (s *script) ask(list ...Change) {
	s.t.Helper()
	if err := s.a.Change(list, s.now, &s.out); err != nil {
		s.t.Fatal(err)
	}
	s.collect()
}

// ackChange answers our change, so many behind the first serial.
func (s *script) ackChange(serial int, answers ...chunk.Answer) []byte {
	ack := chunk.ASCONFAck{Serial: s.a.firstTSN + uint32(serial)}
	for _, one := range answers {
		ack.Answers = chunk.AppendAnswer(ack.Answers, one)
	}
	return s.signed(chunk.HMACSHA256, ack.Append(nil))
}

// TestChangeTimer sends a change again, the same, by other paths, and one at a time (RFC 5061 section 5.1, A3 to B5).
func TestChangeTimer(t *testing.T) {
	s := authentic(t, both, 1, 2, func(par *Parameters) { par.AssociationMaxRetrans = 3 })
	s.confirmAll()
	s.ask(Change{PreferAddress, s.local[0]})
	s.ask(Change{PreferAddress, s.local[0]})
	packets := s.packets
	s.expect("one at a time", "AUTH ASCONF")
	s.run(time.Second)
	if again := s.packets; len(again) != 1 || string(again[0].Octets) != string(packets[0].Octets) || again[0].Remote != s.remote[1] {
		t.Error("not the same by another path")
	}
	s.expect("T4", "to 1: AUTH ASCONF")
	if s.a.errors != 1 || s.a.paths[0].errors != 1 || s.a.paths[0].rto != 2*time.Second {
		t.Errorf("%d and %d errors", s.a.errors, s.a.paths[0].errors)
	}
	s.peer(s.ackChange(-1))
	s.expect("an old answer")
	s.peer(s.ackChange(0))
	s.expect("the next, by the path that works", "to 1: AUTH ASCONF")
	if s.a.errors != 0 {
		t.Errorf("%d errors", s.a.errors)
	}
	s.run(time.Minute)
	if _, failed := s.saw(Failed); !failed {
		t.Error("no failure without answers")
	}
}

// TestManyChanges asks for more changes than fit into a packet by one after the other (RFC 5061 section 5.1.1, C5).
func TestManyChanges(t *testing.T) {
	const changes = 3000 // which no chunk is long enough for
	s := authentic(t, both, 1, 1, func(*Parameters) {})
	var list []Change
	for range changes {
		list = append(list, Change{PreferAddress, s.local[0]})
	}
	s.ask(list...)
	done := 0
	for serial := 0; done < changes; serial++ {
		packets := s.take()
		if len(packets) != 1 || packets[0].Fragment || len(packets[0].Octets) > s.a.paths[0].room() {
			t.Fatalf("the ASCONF behind %d changes is %d packets", done, len(packets))
		}
		s.peer(s.ackChange(serial))
		for _, e := range s.events {
			if e.Kind == ChangeDone {
				done++
			}
		}
		s.events = nil
	}
	if s.take(); done != changes {
		t.Errorf("%d changes are done", done)
	}
}

// TestChangeAnswers follows what answers mean for each request (RFC 5061 section 5.1, A6 to A8).
func TestChangeAnswers(t *testing.T) {
	failed := func(id uint32) chunk.Answer {
		return chunk.Answer{Correlation: id, Failed: true, Causes: chunk.AppendCause(nil, chunk.CauseResourceShortage, nil)}
	}
	for _, tt := range []struct {
		name    string
		answers []chunk.Answer
		want    string
	}{
		{"none", nil, "done done done"},
		{"the second has failed", []chunk.Answer{failed(1)}, "done refused refused"},
		{"the second has failed, the third not", []chunk.Answer{failed(1), {Correlation: 2}}, "done refused done"},
		{"the first has failed", []chunk.Answer{failed(0)}, "refused refused refused"},
		{"of none of ours", []chunk.Answer{failed(77)}, "done done done"},
	} {
		s := authentic(t, both, 2, 1, func(*Parameters) {})
		s.ask(Change{PreferAddress, s.local[0]}, Change{PreferAddress, s.local[1]}, Change{PreferAddress, s.local[0]})
		s.events = nil
		s.peer(s.ackChange(0, tt.answers...))
		got := ""
		for _, e := range s.events {
			if e.Kind == ChangeDone {
				got += " done"
			} else if e.Kind == ChangeRefused {
				got += " refused"
			}
		}
		if got != " "+tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestUnknownToPeer gives up changes when the peer does not know what they are: what was about to be is not (RFC 5061
// sections 5.1, A9, and 5.3, F3).
func TestUnknownToPeer(t *testing.T) {
	unknown := func(s *script) []byte {
		return chunk.AppendError(nil, chunk.TypeError, 0, chunk.Cause{Code: chunk.CauseUnrecognizedChunk, Value: []byte{byte(chunk.TypeASCONF), 0, 0, 4}})
	}
	refused := func(s *script) []byte {
		return s.ackChange(0, chunk.Answer{Correlation: 0, Failed: true, Causes: chunk.AppendCause(nil, chunk.CauseUnrecognizedParameters, nil)})
	}
	for name, answer := range map[string]func(*script) []byte{"the chunk": unknown, "the parameters": refused} {
		s := authentic(t, both, 1, 1, func(*Parameters) {})
		s.e.SetAddresses(scriptLocal)
		s.ask(Change{AddAddress, scriptLocal[1]}, Change{DeleteAddress, scriptLocal[0]})
		s.take()
		s.peer(answer(s))
		s.run(time.Minute)
		s.take()
		if _, told := s.saw(ChangeRefused); !told || len(s.a.paths) != 1 || s.a.paths[0].Local != s.local[0] || s.a.paths[0].use != normal {
			t.Errorf("%s: told %t, %d paths", name, told, len(s.a.paths))
		}
		if err := s.a.Change([]Change{{AddAddress, scriptLocal[1]}}, s.now, &s.out); err != ErrNoChanges {
			t.Errorf("%s: another is sent: %v", name, err)
		}
		s.say(10)
		s.expect("data goes as before", "DATA+0")
	}
}

// TestDeletedPathCarriesNothing has the peer delete the address by which data is on its way, while its other one has
// failed: the data goes there, and nothing to the one that was deleted (RFC 5061 section 5.3, F13).
func TestDeletedPathCarriesNothing(t *testing.T) {
	s := authentic(t, both, 1, 2, func(*Parameters) {})
	s.confirmAll()
	other := Pair{s.local[0], s.remote[1]}
	s.a.path(other).state = Failing
	s.say(4 * full)
	s.take()
	s.peer(s.sack(0, large, chunk.Block{First: 3, Last: 3}))
	s.raw(other, s.a.tag, s.signed(chunk.HMACSHA256, s.change(0, request{chunk.ParamDeleteIP, first})))
	s.raw(other, s.a.tag, s.sack(0, large)) // 2 is reneged, too
	s.run(30 * time.Second)
	for _, p := range s.take() {
		if p.Remote != s.remote[1] {
			t.Errorf("sent is %q", s.describe(p))
		}
	}
	if len(s.a.paths) != 1 || s.a.marked+s.a.sent.length == 0 {
		t.Errorf("%d paths", len(s.a.paths))
	}
	s.raw(s.pair, s.a.tag, s.data(0, "x"))
	if s.e.Counters.Stranger != 1 || s.received() != "" {
		t.Error("what comes from a deleted address is taken")
	}
}

// TestNoChangesWithoutAuth refuses a set-up with ASCONF but without AUTH (RFC 5061 section 6).
func TestNoChangesWithoutAuth(t *testing.T) {
	s := newScript(t, quiet(), 1, 1)
	s.a = &Association{endpoint: s.e}
	s.init.Extensions = []chunk.Type{chunk.TypeASCONF, chunk.TypeASCONFAck}
	s.raw(s.pair, 0, s.init.Append(nil, chunk.TypeInit))
	s.expect("INIT", "ABORT:13")
	s = connecting(t, quiet(), 1, 1)
	s.take()
	s.init.Extensions = []chunk.Type{chunk.TypeASCONF, chunk.TypeASCONFAck}
	s.answerInit("c")
	s.expect("INIT ACK")
	if e, failed := s.saw(Failed); !failed || e.Reason != ReasonViolation {
		t.Errorf("%v %+v", failed, e)
	}
}

// TestAbortToDeletedAddress is not for this association (RFC 5061 section 5.3.1), also when it comes while the address is being
// added again.
func TestAbortToDeletedAddress(t *testing.T) {
	s := authentic(t, both, 2, 1, func(*Parameters) {})
	s.ask(Change{DeleteAddress, s.local[0]})
	packets := s.take()
	if len(packets) != 1 || packets[0].Local != s.local[1] { // F6
		t.Errorf("the ASCONF comes from %v", packets[0].Local)
	}
	s.peer(plain(chunk.TypeAbort))
	if s.a.state != established {
		t.Error("the ABORT is taken")
	}
	s.peer(s.data(0, "x")) // F4
	if got := s.received(); got != "x" {
		t.Errorf("received is %q", got)
	}
	for _, p := range s.take() {
		if p.Local != s.local[1] {
			t.Errorf("sent from the address that leaves: %q", s.describe(p))
		}
	}
	other := Pair{s.local[1], s.remote[0]}
	s.raw(other, s.a.tag, s.ackChange(0))
	s.ask(Change{AddAddress, s.local[0]})
	s.raw(s.pair, s.a.peerTag, chunk.Append(nil, chunk.TypeAbort, chunk.Reflected, nil))
	if s.a.state != established {
		t.Error("the late ABORT is taken")
	}
	if s.raw(other, s.a.tag, plain(chunk.TypeAbort)); s.a.state != closed {
		t.Error("one that is for the association is not")
	}
}

// TestLastAddressStays keeps one address, also if the others are on their way out (RFC 5061 section 5.3, F5).
func TestLastAddressStays(t *testing.T) {
	s := authentic(t, both, 2, 1, func(*Parameters) {})
	s.ask(Change{DeleteAddress, s.local[0]})
	if err := s.a.Change([]Change{{DeleteAddress, s.local[1]}}, s.now, &s.out); err != ErrLast {
		t.Errorf("the last may go: %v", err)
	}
	if err := s.a.Change([]Change{{DeleteAddress, s.local[0]}, {DeleteAddress, s.local[1]}}, s.now, &s.out); err != ErrLast {
		t.Errorf("both may go: %v", err)
	}
}

// TestMalformedRequests cannot be read: they and all behind them are refused.
func TestMalformedRequests(t *testing.T) {
	add := chunk.AppendRequest(nil, chunk.Request{Type: chunk.ParamAddIP, Correlation: 7, Address: netip.MustParseAddr(third)})
	for name, bad := range map[string][]byte{
		"of length 0":                      {0xc0, 1, 0, 0},
		"without a correlation":            {0xc0, 2, 0, 4},
		"without an address":               {0xc0, 1, 0, 8, 0, 0, 0, 9},
		"with an address of length 0":      {0xc0, 1, 0, 12, 0, 0, 0, 9, 0, 6, 0, 0},
		"with an address that is cut off":  {0xc0, 1, 0, 12, 0, 0, 0, 9, 0, 6, 0, 20},
		"with an address that is too long": {0xc0, 1, 0, 16, 0, 0, 0, 9, 0, 5, 0, 9, 1, 2, 3, 4},
		"longer than the chunk":            {0xc0, 1, 0, 200, 0, 0, 0, 9},
	} {
		s := authentic(t, both, 1, 1, func(*Parameters) {})
		c := chunk.ASCONF{Serial: s.init.TSN, Address: s.remote[0]}
		s.peer(s.signed(chunk.HMACSHA256, longer(c.Append(nil), slices.Concat(bad, add)...)))
		if got := s.answers(); got != "0 0:d" && got != "0 9:d" || len(s.a.paths) != 1 || s.e.Counters.BadChange != 1 {
			t.Errorf("%s: the answer is %q, %d paths", name, got, len(s.a.paths))
		}
	}
}
