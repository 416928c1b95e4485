// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// unknownParameters are of all four actions, a second address behind (RFC 9260 section 3.2.1).
var unknownParameters = []struct {
	first          byte
	reported, read bool
}{{0x3f, false, false}, {0x7f, true, false}, {0xbf, false, true}, {0xff, true, true}}

func TestUnknownParametersOfInit(t *testing.T) {
	for _, tt := range unknownParameters {
		t.Run(fmt.Sprintf("%x", tt.first), func(t *testing.T) {
			s := newScript(t, quiet(), 2, 1)
			unknown := []byte{tt.first, 1, 0, 7, 'a', 'b', 'c'}
			second := chunk.AppendAddress(nil, scriptRemote[1])
			s.raw(s.pair, 0, longer(s.init.Append(nil, chunk.TypeInit), append(append(unknown, 0), second...)...))
			ack := s.initAck()
			if reported := len(ack.Unrecognized) == 1 && bytes.Equal(ack.Unrecognized[0], unknown); reported != tt.reported {
				t.Errorf("reported is %x", ack.Unrecognized)
			}
			s.raw(s.pair, ack.Tag, chunk.Append(nil, chunk.TypeCookieEcho, 0, ack.Cookie))
			if read := s.a.path(Pair{s.local[1], scriptRemote[1]}) != nil; read != tt.read {
				t.Errorf("the rest is read: %t", read)
			}
		})
	}
}

func TestUnknownParametersOfInitAck(t *testing.T) {
	for _, tt := range unknownParameters {
		t.Run(fmt.Sprintf("%x", tt.first), func(t *testing.T) {
			s := connecting(t, quiet(), 2, 1)
			s.take()
			unknown := []byte{tt.first, 1, 0, 7, 'a', 'b', 'c', 0, tt.first, 2, 0, 5, 'd', 0, 0, 0}
			second := chunk.AppendAddress(nil, scriptRemote[1])
			s.peer(longer(s.edited(chunk.TypeInitAck, func(*chunk.Init) {}), append(slices.Clone(unknown), second...)...))
			if tt.reported && tt.read && !bytes.Contains(s.packets[0].Octets, unknown) {
				t.Error("the report has not the two, each with its padding")
			}
			if tt.reported {
				s.expect("INIT ACK", "COOKIE-ECHO ERROR:8")
			} else {
				s.expect("INIT ACK", "COOKIE-ECHO")
			}
			if read := s.a.path(Pair{s.local[1], scriptRemote[1]}) != nil; read != tt.read {
				t.Errorf("the rest is read: %t", read)
			}
		})
	}
}

func TestUnknownChunks(t *testing.T) {
	for _, tt := range []struct {
		kind  chunk.Type
		error string
		read  bool
	}{{0x3e, "", false}, {0x7e, "ERROR:6", false}, {0xbe, "", true}, {0xfe, "ERROR:6", true}} {
		t.Run(tt.kind.String(), func(t *testing.T) {
			s := accepted(t, quiet(), 1, 1)
			unknown := chunk.Append(nil, tt.kind, 3, []byte("abc"))
			s.peer(unknown, s.data(0, "x"))
			var want []string
			switch {
			case tt.read && tt.error != "":
				want = []string{tt.error + " SACK+0"}
			case tt.read:
				want = []string{"SACK+0"}
			case tt.error != "":
				want = []string{tt.error}
			}
			for _, p := range s.packets {
				if tt.error != "" && !bytes.Contains(p.Octets, unknown[:7]) {
					t.Error("the report has not the whole chunk")
				}
			}
			s.expect(tt.error, want...)
		})
	}
}

// TestReportsAreBounded has a peer send hundreds of chunks and parameters that are unknown: what it is told is no more
// than what came, and no packet has a length that cannot be.
func TestReportsAreBounded(t *testing.T) {
	unknown := bytes.Repeat([]byte{0xff, 1, 0, 4}, 15_000)
	for _, n := range []int{1, 50, 400, 15_000} {
		s := newScript(t, quiet(), 1, 1)
		init := longer(s.init.Append(nil, chunk.TypeInit), unknown[:4*n]...)
		s.raw(s.pair, 0, init)
		for _, p := range s.packets {
			if len(p.Octets) > 1232 {
				t.Errorf("an INIT of %d octets is answered with %d", len(init), len(p.Octets))
			}
		}
		if n <= 50 && len(s.initAck().Unrecognized) != n {
			t.Errorf("%d parameters are not all reported", n)
		}
		s = connecting(t, quiet(), 1, 1)
		s.take()
		s.peer(longer(s.edited(chunk.TypeInitAck, func(*chunk.Init) {}), unknown[:4*n]...))
		for _, p := range s.packets {
			if len(p.Octets) > 1232 {
				t.Errorf("a COOKIE ECHO of %d octets", len(p.Octets))
			}
		}
	}
	for _, n := range []int{1, 10, 300, 15_000} {
		s := accepted(t, quiet(), 1, 1)
		s.peer(bytes.Repeat([]byte{0xfe, 0, 0, 4}, n))
		if out := len(s.packets[0].Octets); len(s.packets) != 1 || out > 12+4*n+12 {
			t.Errorf("%d unknown chunks of 4 octets are answered with %d packets, %d octets", n, len(s.packets), out)
		}
	}
}
