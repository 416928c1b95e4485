// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// pair is two clients of one pool, each with a port that is known: B serves, A calls.
func pair(t *testing.T, transport string, change func(*Settings)) (b *bench, servedAt uint16) {
	t.Helper()
	b = engine(t, change)
	if err := b.AddStatic(static(t, transport, "["+clientB+"]:80", poolIP+":8080")); err != nil {
		t.Fatal(err)
	}
	return b, 8080
}

// TestHairpin: a client reaches another by the pool's address, and sees its own packets come
// from there (RFC 6146 section 3.8, RFC 4787 REQ-9). One hop is taken in all.
func TestHairpin(t *testing.T) {
	for _, tt := range []struct {
		transport string
		proto     byte
		out, back func(src, dst uint16) []byte
	}{
		{"udp", udpProto, func(s, d uint16) []byte { return udpMsg(s, d, 9) }, func(s, d uint16) []byte { return udpMsg(s, d, 9) }},
		{"tcp", tcpProto, func(s, d uint16) []byte { return tcpMsg(s, d, flagSYN, 0) }, func(s, d uint16) []byte { return tcpMsg(s, d, synACK, 0) }},
	} {
		t.Run(tt.transport, func(t *testing.T) {
			b, at := pair(t, tt.transport, nil)
			got := b.one(b.in(pkt{src: clientA, dst: poolIn6, hop: 2, proto: tt.proto, payload: tt.out(1500, at)}))
			port := uint16(got[40])<<8 | uint16(got[41])
			b.wants([][]byte{got}, pkt{src: poolIn6, dst: clientB, hop: 1, proto: tt.proto, payload: tt.out(port, 80)})
			b.wants(b.in(pkt{src: clientB, dst: poolIn6, proto: tt.proto, payload: tt.back(80, port)}),
				pkt{src: poolIn6, dst: clientA, hop: 63, proto: tt.proto, payload: tt.back(at, 1500)})
			if got := b.Stats().Hairpinned; got != 2 {
				t.Errorf("%d packets turned round", got)
			}
			if n := b.Engine.Sizes(); n.Sessions != 2 || n.Bindings != 2 {
				t.Errorf("sizes %+v; want a session of each side", n)
			}
		})
	}
}

// TestHairpinToItself: a host reaches a port of its own.
func TestHairpinToItself(t *testing.T) {
	b, at := pair(t, "udp", nil)
	got := b.one(b.in(pkt{src: clientB, dst: poolIn6, proto: udpProto, payload: udpMsg(1500, at, 3)}))
	port := uint16(got[40])<<8 | uint16(got[41])
	b.wants([][]byte{got}, pkt{src: poolIn6, dst: clientB, hop: 63, proto: udpProto, payload: udpMsg(port, 80, 3)})
}

// TestHairpinOfErrors: an error about a packet that was turned round finds its way back (RFC
// 5508 REQ-7).
func TestHairpinOfErrors(t *testing.T) {
	b, at := pair(t, "udp", nil)
	got := b.one(b.in(pkt{src: clientA, dst: poolIn6, proto: udpProto, payload: udpMsg(1500, at, 9)}))
	sent := pkt{src: clientA, dst: poolIn6, hop: 63, proto: udpProto, payload: udpMsg(1500, at, 9)}
	b.wants(b.in(pkt{src: clientB, dst: poolIn6, proto: icmp6Proto, payload: icmpMsg(1, 4, 0, got)}),
		pkt{src: poolIn6, dst: clientA, hop: 63, proto: icmp6Proto, payload: icmpMsg(1, 4, 0, sent.bytes())})
}

// TestHairpinOfOwnErrors: what the translator has to say about a packet that it turned round
// reaches the client too.
func TestHairpinOfOwnErrors(t *testing.T) {
	b := engine(t, nil)
	got := b.one(b.in(pkt{src: clientA, dst: poolIn6, proto: udpProto, payload: udpMsg(1500, 8080, 9)}))
	if got[40] != 1 || got[41] != 4 || b.Stats().Dropped[NoBinding] != 1 {
		t.Errorf("came out %x; dropped %v", got, b.drops())
	}
	if dst := netip.AddrFrom16([16]byte(got[24:40])); dst != netip.MustParseAddr(clientA) {
		t.Errorf("sent to %s", dst)
	}
}

// TestHairpinOfUnansweredSYN: a SYN that was turned round waits like any, and its error goes
// to the client.
func TestHairpinOfUnansweredSYN(t *testing.T) {
	b := engine(t, nil)
	b.refused(pkt{src: clientA, dst: poolIn6, proto: tcpProto, payload: tcpMsg(1500, 8080, flagSYN, 0)}, StoredSYN)
	got := b.one(b.pass(7 * time.Second))
	if got[0]>>4 != 6 || got[40] != 1 || got[41] != 4 {
		t.Errorf("came out %x", got)
	}
}

// TestHairpinFiltered: filtering holds between clients too.
func TestHairpinFiltered(t *testing.T) {
	b, at := pair(t, "udp", func(s *Settings) { s.FilterUDP = AddressDependent })
	b.refused(pkt{src: clientA, dst: poolIn6, proto: udpProto, payload: udpMsg(1500, at, 9)}, Filtered)
}

// TestHairpinFragments: fragments are turned round as they come.
func TestHairpinFragments(t *testing.T) {
	b, at := pair(t, "udp", nil)
	p := pkt{src: clientA, dst: poolIn6, proto: udpProto, id: 0x10007, payload: udpMsg(1500, at, 1992)}
	var got [][]byte
	for _, f := range p.cut(1000) {
		got = append(got, b.one(b.raw(f)))
	}
	port := uint16(got[0][48])<<8 | uint16(got[0][49])
	want := pkt{src: poolIn6, dst: clientB, hop: 63, proto: udpProto, id: binary.BigEndian.Uint32(got[0][44:]), payload: udpMsg(port, 80, 1992)}
	b.wants(got, fragmentsOf(want, 1000)...)
}

// fragmentsOf is what cut makes, as descriptions.
func fragmentsOf(p pkt, size int) (out []pkt) {
	message := withSum(p)
	for at := 0; at < len(message); at += size {
		f := p
		f.frag, f.keepSum, f.offset, f.more = true, true, at, at+size < len(message)
		f.payload = message[at:min(at+size, len(message))]
		out = append(out, f)
	}
	return out
}

// TestSpoofedPoolSource: no one outside may pretend to be a client's address of the pool.
func TestSpoofedPoolSource(t *testing.T) {
	b, at := pair(t, "udp", nil)
	b.refused(pkt{src: poolIP, dst: poolIP, proto: udpProto, payload: udpMsg(5000, at, 3)}, SourceInPool4)
}

// TestHairpinLoop: a packet from pool6 would be turned round for ever (RFC 6146 section 5.4).
func TestHairpinLoop(t *testing.T) {
	b, at := pair(t, "udp", nil)
	b.refused(pkt{src: poolIn6, dst: poolIn6, proto: udpProto, payload: udpMsg(5000, at, 3)}, SourceInPool6)
}

// TestHairpinnedSessionsAreSlow: a fast path must leave them to the engine, since packets
// with their key from outside are spoofed.
func TestHairpinnedSessionsAreSlow(t *testing.T) {
	b, at := pair(t, "udp", nil)
	b.one(b.in(pkt{src: clientA, dst: poolIn6, proto: udpProto, payload: udpMsg(1500, at, 9)}))
	n := 0
	b.table.WalkSessions(0, 1<<20, func(s *state.Session) {
		if n++; s.Word.Flags()&state.Slow == 0 {
			t.Errorf("session %+v is not marked", s)
		}
	})
	if n != 2 {
		t.Errorf("%d sessions", n)
	}
}

// TestHairpinTooBig: the sender of a packet that would not fit hears of it.
func TestHairpinTooBig(t *testing.T) {
	b, at := pair(t, "udp", nil)
	b.path.MTU6 = 1400
	got := b.one(b.in(pkt{src: clientA, dst: poolIn6, proto: udpProto, payload: udpMsg(1500, at, 1400)}))
	if got[0]>>4 != 6 || got[40] != 2 || int(got[46])<<8|int(got[47]) != 1400 {
		t.Errorf("came out %x", got)
	}
}

// TestHairpinOfQueries: a query has one identifier, that of its sender, so one to the pool's
// address comes back to who sent it (RFC 6146 section 2: TCP and UDP alone are hairpinned
// between hosts).
func TestHairpinOfQueries(t *testing.T) {
	b := engine(t, nil)
	b.wants(b.in(pkt{src: clientA, dst: poolIn6, proto: icmp6Proto, payload: echoMsg(128, 77, 9)}),
		pkt{src: poolIn6, dst: clientA, hop: 63, proto: icmp6Proto, payload: echoMsg(128, 77, 9)})
	b.wants(b.in(pkt{src: clientA, dst: poolIn6, proto: icmp6Proto, payload: echoMsg(129, 77, 9)}),
		pkt{src: poolIn6, dst: clientA, hop: 63, proto: icmp6Proto, payload: echoMsg(129, 77, 9)})
}
