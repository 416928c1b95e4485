// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// from is a random number that is none: octets that count up.
func from(first byte) (b []byte) {
	for i := range chunk.RandomSize {
		b = append(b, first+byte(i))
	}
	return b
}

// The key vectors of an example, and the keys that come of them, as computed apart from this program: RANDOM, CHUNKS and
// HMAC-ALGO one behind the other without padding, the smaller number first (RFC 4895 section 6.1).
var (
	ourVector   = chunk.Options{Random: from(0), Chunks: []chunk.Type{0xc1, 0x80}, HMACs: []uint16{3, 1}}
	shortVector = chunk.Options{Random: from(0xa0), Chunks: []chunk.Type{0, 0xc1, 0x80}, HMACs: []uint16{1}}
	sameVector  = chunk.Options{Random: from(0xa0), Chunks: []chunk.Type{0xc1, 0x80}, HMACs: []uint16{3, 1}}
)

const (
	ourWire   = "80020024000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f 80030006c180 8004000800030001"
	shortWire = "80020024a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebf 8003000700c180 800400060001"
	sameWire  = "80020024a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebf 80030006c180 8004000800030001"
)

func TestSharedKey(t *testing.T) {
	for _, tt := range []struct {
		name         string
		ours, theirs chunk.Options
		want         string
	}{
		{"ours is longer, and so larger", ourVector, shortVector, shortWire + ourWire},
		{"theirs is longer", shortVector, ourVector, shortWire + ourWire},
		{"as long, ours is smaller", ourVector, sameVector, ourWire + sameWire},
		{"as long, theirs is smaller", sameVector, ourVector, ourWire + sameWire},
		{"the same", ourVector, ourVector, ourWire + ourWire},
	} {
		if got := sharedKey(tt.ours.KeyVector(), tt.theirs.KeyVector()); !bytes.Equal(got, testutil.Unhex(t, tt.want)) {
			t.Errorf("%s: %x", tt.name, got)
		}
	}
}

// goldenCodes are an AUTH, an ASCONF and DATA with padding, whose codes were computed apart from this program with the
// key of shortVector and ourVector (RFC 4895 section 6.2).
var goldenCodes = []struct {
	hmac uint16
	wire string
}{
	{chunk.HMACSHA1, "0f00001c00000001 ed26465bc9390e6d1b58318454234295f1c5236e c10000100000000500050008c0000201 0003001100000001000200030000000461000000"},
	{chunk.HMACSHA256, "0f00002800000003 d0a582e3d8801b1b897c67ef612b9a11d71c82c80c88886ade44f415c8d666d3 c10000100000000500050008c0000201 0003001100000001000200030000000461000000"},
}

func TestGoldenCodes(t *testing.T) {
	key := sharedKey(ourVector.KeyVector(), shortVector.KeyVector())
	for _, g := range goldenCodes {
		wire := testutil.Unhex(t, g.wire)
		s := authentic(t, []uint16{g.hmac, 77}, 1, 1, func(*Parameters) {})
		if s.a.hmac != g.hmac {
			t.Fatalf("the HMAC is %d", s.a.hmac)
		}
		s.a.key = key
		size := len(wire) - 36
		w := s.a.compose(s.a.paths[0], &s.out)
		w.add(wire[size:])
		w.finish()
		if got := s.out.Packets[0].Octets[chunk.HeaderSize:]; !bytes.Equal(got, wire) {
			t.Errorf("HMAC %d: sent is\n%x, want\n%x", g.hmac, got, wire)
		}
		s.out.Reset()
		first, _, _ := chunk.Next(wire)
		s.a.arrivals = arrivals{}
		if !s.a.verify(first, wire) {
			t.Errorf("HMAC %d is not taken", g.hmac)
		}
		for i := range wire[4:] {
			forged := slices.Clone(wire)
			forged[4+i] ^= 1
			first, _, _ := chunk.Next(forged)
			if s.a.arrivals = (arrivals{}); s.a.verify(first, forged) {
				t.Errorf("HMAC %d: octet %d may be changed", g.hmac, 4+i)
			}
		}
	}
}

// TestChosenHMAC uses the first of the peer's list that we know (RFC 4895 section 6.1).
func TestChosenHMAC(t *testing.T) {
	for _, tt := range []struct {
		list []uint16
		want uint16
	}{{[]uint16{1}, 1}, {[]uint16{3, 1}, 3}, {[]uint16{1, 3}, 1}, {[]uint16{2, 9, 1}, 1}} {
		if s := authentic(t, tt.list, 1, 1, func(*Parameters) {}); s.a.hmac != tt.want {
			t.Errorf("of %v it is %d", tt.list, s.a.hmac)
		}
	}
}

// TestProtectedChunks puts an AUTH in front of all that the peer wants authenticated, never twice, and ignores types that
// cannot be (RFC 4895 sections 3.2, 4.1 and 6.2).
func TestProtectedChunks(t *testing.T) {
	s := newScript(t, quiet(), 1, 1)
	s.init.Random, s.init.HMACs = from(7), both
	s.init.Chunks = []chunk.Type{chunk.TypeData, chunk.TypeHeartbeatAck, chunk.TypeInit, chunk.TypeInitAck, chunk.TypeShutdownComplete, chunk.TypeAuth}
	s.accept()
	s.say(3 * full)
	s.expect("data", "AUTH DATA+0", "AUTH DATA+1", "AUTH DATA+2", "AUTH DATA+3")
	for _, p := range s.packets {
		if len(p.Octets) > 1240 {
			t.Errorf("a packet of %d octets", len(p.Octets))
		}
	}
	s.peer(chunk.AppendHeartbeat(nil, []byte("x")), s.data(0, "x"))
	s.expect("an answer, and a SACK behind it", "AUTH HEARTBEAT-ACK SACK+0")
	s.peer(s.sack(4, large))
	s.shutdown()
	s.expect("shutdown", "SHUTDOWN")
	s.peer(plain(chunk.TypeShutdownAck))
	s.expect("the end", "SHUTDOWN-COMPLETE")
}

// TestKeysFromTheCookie has the first packet of an association be authenticated with the keys that its cookie has, behind
// and in front of the AUTH (RFC 4895 section 6.3).
func TestKeysFromTheCookie(t *testing.T) {
	for _, tt := range []struct {
		name        string
		order       string // C for the cookie, A for the AUTH
		forged      bool
		established bool
		taken       bool
	}{
		{"cookie, AUTH, ASCONF", "CA", false, true, true},
		{"cookie, forged AUTH, ASCONF", "CA", true, true, false},
		{"AUTH, cookie, ASCONF", "AC", false, true, true},
		{"forged AUTH, cookie, ASCONF", "AC", true, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScript(t, quiet(), 1, 1)
			s.init.Extensions = []chunk.Type{chunk.TypeASCONF, chunk.TypeASCONFAck, chunk.TypeAuth}
			s.init.Random, s.init.Chunks, s.init.HMACs = from(9), []chunk.Type{chunk.TypeASCONF, chunk.TypeASCONFAck}, both
			s.raw(s.pair, 0, s.init.Append(nil, chunk.TypeInit))
			ack := s.initAck()
			s.a = &Association{endpoint: s.e}
			s.a.key = sharedKey(s.init.KeyVector(), ack.KeyVector())
			cookie := chunk.Append(nil, chunk.TypeCookieEcho, 0, ack.Cookie)
			asconf := s.change(0, request{chunk.ParamAddIP, third})
			packet := slices.Concat(cookie, s.signed(chunk.HMACSHA256, asconf))
			authAt := len(cookie)
			if tt.order == "AC" {
				packet, authAt = s.signed(chunk.HMACSHA256, cookie, asconf), 0
			}
			if tt.forged {
				packet[authAt+12] ^= 1
			}
			s.a = nil
			s.raw(s.pair, ack.Tag, packet)
			if (s.a != nil) != tt.established || len(s.e.byTag) > 0 != tt.established {
				t.Fatalf("established: %t, %+v", s.a != nil, s.e.Counters)
			}
			if s.a != nil && (len(s.a.paths) == 2) != tt.taken {
				t.Errorf("%d paths", len(s.a.paths))
			}
			if s.a != nil && !has(s.packets[0], chunk.TypeCookieAck) {
				t.Errorf("sent is %q", s.sent())
			}
		})
	}
}

// TestAuthOutOfTheBlue is answered as the chunks behind it are (RFC 4895 section 6.3).
func TestAuthOutOfTheBlue(t *testing.T) {
	s := newScript(t, quiet(), 1, 1)
	s.a = &Association{endpoint: s.e, features: features{key: []byte("key")}}
	s.raw(s.pair, 5, s.signed(chunk.HMACSHA1, plain(chunk.TypeShutdownAck)))
	s.raw(s.pair, 5, s.signed(chunk.HMACSHA1, plain(chunk.TypeCookieAck)))
	s.raw(s.pair, 5, s.signed(chunk.HMACSHA1, s.data(0, "x")))
	s.expect("strays", "SHUTDOWN-COMPLETE(T)", "ABORT(T)")
}

// TestAuthOfStranger is not read where nothing was agreed upon.
func TestAuthOfStranger(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	s.a.key = []byte("key")
	b := s.signed(chunk.HMACSHA1, s.data(0, "x"))
	s.a.key = nil
	s.peer(b)
	s.expect("AUTH without keys")
	if s.e.Counters.BadAuth != 1 || s.received() != "" {
		t.Errorf("%+v", s.e.Counters)
	}
}

// TestProtectedProbes has probes of larger packets begin with an AUTH where the peer wants HEARTBEATs, or what fills them,
// authenticated: it would drop the probe in silence, and the path would seem to carry the least packets alone (RFC 4895
// section 6.3, RFC 8899).
func TestProtectedProbes(t *testing.T) {
	for _, wanted := range []chunk.Type{chunk.TypeHeartbeat, chunk.TypePad} {
		s := newScript(t, quiet(), 1, 1)
		s.init.Random, s.init.HMACs, s.init.Chunks = from(7), both, []chunk.Type{wanted}
		s.accept()
		p := s.a.paths[0]
		p.Parameters.MaxMTU = 1500
		s.peer(s.data(0, "x"))
		s.run(100 * time.Millisecond)
		probes := 0
		for _, sent := range s.packets {
			if !has(sent, chunk.TypePad) {
				continue
			}
			probes++
			if got := types(sent); got[0] != chunk.TypeAuth || len(got) != 3 || len(sent.Octets) != p.roomOf(1500) {
				t.Errorf("%v is to be protected, and the probe has %v in %d octets", wanted, got, len(sent.Octets))
			}
		}
		if probes == 0 {
			t.Error("nothing is probed")
		}
	}
}
