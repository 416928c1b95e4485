// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// by has a packet of the peer's come by a port of UDP, or by IP if that is 0.
func (s *script) by(port uint16, pair Pair, tag uint32, chunks ...[]byte) {
	s.t.Helper()
	b := chunk.Begin(nil, chunk.Header{Source: scriptPeerPort, Destination: scriptPort, Tag: tag})
	for _, c := range chunks {
		b = append(b, c...)
	}
	chunk.Seal(b)
	s.e.Handle(Packet{Pair: pair, Port: port, Octets: b}, s.now, &s.out)
	s.collect()
}

// ports are those that the last packets go to.
func (s *script) ports() (list []uint16) {
	for _, p := range s.take() {
		list = append(list, p.Port)
	}
	return list
}

// TestRemotePort keeps a port of UDP for each address of the peer, and takes it from each packet that has the right tag,
// from no other; one that comes by IP switches encapsulation off (RFC 6951 sections 5.1 and 5.4).
func TestRemotePort(t *testing.T) {
	s := newScript(t, quiet(), 2, 2)
	s.by(7777, s.pair, 0, s.init.Append(nil, chunk.TypeInit))
	if got := s.packets; len(got) != 1 || got[0].Port != 7777 {
		t.Errorf("the INIT ACK goes to %v", got)
	}
	ack := s.initAck()
	s.by(7778, s.pair, ack.Tag, chunk.Append(nil, chunk.TypeCookieEcho, 0, ack.Cookie))
	if got := s.ports(); got[0] != 7778 {
		t.Errorf("the COOKIE ACK goes to %v", got)
	}
	s.confirmAll()
	other := s.a.path(Pair{s.local[0], s.remote[1]})
	if other.port != 7777 {
		t.Errorf("the other address has port %d", other.port)
	}
	s.by(1, s.pair, s.a.tag+1, s.data(0, "x")) // forged
	s.by(9, Pair{s.local[0], addresses("2001:db8:66::1")[0]}, s.a.tag, s.data(0, "x"))
	s.say(10)
	if got := s.ports(); len(got) != 1 || got[0] != 7778 {
		t.Errorf("data goes to %v", got)
	}
	s.by(8888, other.Pair, s.a.tag, chunk.AppendHeartbeat(nil, []byte("x")))
	if got := s.ports(); len(got) != 1 || got[0] != 8888 {
		t.Errorf("the answer goes to %v", got)
	}
	if unheard := s.a.path(Pair{s.local[1], s.remote[1]}); unheard.port != 8888 {
		t.Errorf("from our other address it is reached at %d", unheard.port)
	}
	room := s.a.paths[0].room()
	s.by(0, s.pair, s.a.tag, s.data(0, "x"))
	if got := s.ports(); len(got) != 1 || got[0] != 0 {
		t.Errorf("after a packet by IP the answer goes to %v", got)
	}
	if grown := s.a.paths[0].room() - room; grown != 8 { // section 5.6
		t.Errorf("there is room for %d octets more without the header of UDP", grown)
	}
}

// TestEncapsulationMakesChunksTooLarge has a peer change over to UDP while chunks are out that fill packets of IP: they are
// sent again all the same.
func TestEncapsulationMakesChunksTooLarge(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	s.say(full)
	s.take()
	s.by(7777, s.pair, s.a.tag, chunk.AppendHeartbeat(nil, []byte("x")))
	s.take()
	s.run(time.Second)
	if packets := s.take(); len(packets) != 1 || !packets[0].Fragment || packets[0].Port != 7777 {
		t.Errorf("%v", packets)
	}
}

// TestEncapsulatedSetup asks by UDP, and takes the ports that answers come from.
func TestEncapsulatedSetup(t *testing.T) {
	s := newScript(t, quiet(), 1, 1)
	s.e.config.Listen = false
	a, err := s.e.Connect(s.remote, scriptPeerPort, chunk.EncapsulationPort, quiet(), s.now, &s.out)
	if err != nil {
		t.Fatal(err)
	}
	s.a = a
	s.collect()
	if got := s.ports(); len(got) != 1 || got[0] != 9899 {
		t.Errorf("the INIT goes to %v", got)
	}
	s.by(1234, s.pair, a.tag, s.edited(chunk.TypeInitAck, func(*chunk.Init) {}))
	if got := s.ports(); len(got) != 1 || got[0] != 1234 {
		t.Errorf("the COOKIE ECHO goes to %v", got)
	}
}

// TestHiddenAddresses puts no addresses into the set-up, and wildcards where an ASCONF wants one (RFC 6951 section 5.7).
func TestHiddenAddresses(t *testing.T) {
	s := newScript(t, quiet(), 2, 1)
	s.e.config.Hidden = true
	s.raw(s.pair, 0, s.init.Append(nil, chunk.TypeInit))
	if ack := s.initAck(); len(ack.Addresses)+len(ack.AddressTypes) > 0 {
		t.Errorf("listed are %v", ack.Addresses)
	}
}

// TestHiddenChanges adds an address, prefers it and deletes the other, without naming one: each ASCONF comes from where its
// wildcard says (RFC 6951 section 5.7).
func TestHiddenChanges(t *testing.T) {
	at := dual()
	second := at[0][1]
	at[0] = at[0][:1]
	w := newWorld(t, at, Defaults())
	h := w.hosts[0]
	h.end.config.Hidden = true
	w.connect(at[1]...)
	w.run(5 * time.Second)
	h.end.SetAddresses(append(at[0], second))
	w.trace = func(from int, p Packet) {
		_, rest, _ := chunk.Open(p.Octets)
		for from == 0 && len(rest) > 0 {
			c, after, err := chunk.Next(rest)
			if rest = after; err != nil || c.Type != chunk.TypeASCONF {
				continue
			}
			asconf, err := chunk.ParseASCONF(c.Body)
			if err != nil || !asconf.Address.IsUnspecified() {
				t.Errorf("the ASCONF names %v, %v", asconf.Address, err)
			}
			r, _, _, more, err := chunk.NextRequest(asconf.Requests)
			if err != nil || !r.Address.IsUnspecified() || len(more) > 0 || p.Local != second {
				t.Errorf("from %v: %v of %v, %v", p.Local, r.Type, r.Address, err)
			}
		}
	}
	if err := h.a.Change([]Change{{AddAddress, second}, {PreferAddress, second}, {DeleteAddress, at[0][0]}}, w.now, &h.out); err != nil {
		t.Fatal(err)
	}
	h.flush()
	w.run(5 * time.Second)
	peer := w.hosts[1].a
	if !h.saw(ChangeDone) || len(h.a.paths) != 2 || len(peer.paths) != 2 || peer.primary.Remote != second {
		t.Errorf("%d and %d paths, the peer's primary one is %v", len(h.a.paths), len(peer.paths), peer.primary.Pair)
	}
	h.say(0, []byte("from the new one"), false)
	w.run(time.Second)
	w.expect(1, []string{"0:from the new one"})
	if err := h.a.Change([]Change{{AddAddress, at[0][0]}, {AddAddress, addresses("2001:db8:3::a")[0]}, {DeleteAddress, second}}, w.now, &h.out); err != ErrHidden {
		t.Errorf("one of three may go: %v", err)
	}
}
