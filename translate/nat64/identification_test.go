// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"encoding/binary"
	"testing"
)

func idOf(ip []byte) uint16 { return binary.BigEndian.Uint16(ip[4:]) }

// TestIdentifications: packets from one pool address to one host are numbered one by one,
// whoever sends them, so that none is taken for another's fragment (RFC 6864 section 4.2)
// and those of one flow can be merged; errors among them. Numbers to one host say nothing
// of those to another.
func TestIdentifications(t *testing.T) {
	b := engine(t, nil)
	udp := func(client, to string, n int) []byte {
		return b.one(b.in(pkt{src: client, dst: to, proto: udpProto, payload: udpMsg(1500, 53, n)}))
	}
	first := udp(clientA, server6, 4)
	want, elsewhere := idOf(first), idOf(udp(clientA, other6, 4))
	if want == 0 && elsewhere == 0 {
		t.Error("no identifications")
	}
	for i := range 100 {
		for _, client := range []string{clientA, clientB} {
			want++
			if got := idOf(udp(client, server6, 4+12*i)); got != want {
				t.Fatalf("packet %d of %s has %d, want %d", i, client, got, want)
			}
		}
		elsewhere++
		if got := idOf(udp(clientB, other6, 4)); got != elsewhere {
			t.Fatalf("packet %d to another host has %d, want %d", i, got, elsewhere)
		}
	}
	bad := pkt{src: server4, dst: poolIP, hop: 1, proto: udpProto, payload: udpMsg(53, 5000, 4)}
	if got := b.one(b.in(bad)); idOf(got) == 0 {
		t.Errorf("an error of our own has no identification: %x", got)
	}
}

// TestIdentificationsOfFragments: no client chooses what the fragments of its packets are
// known by at a host that others talk to by the same address (RFC 6864 section 5.3), in
// whatever order they come; a packet that only might be cut has the next number as well.
func TestIdentificationsOfFragments(t *testing.T) {
	for name, order := range orders {
		t.Run(name, func(t *testing.T) {
			b := engine(t, nil)
			want := idOf(b.one(b.in(pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1500, 53, 4)})))
			for _, p := range []pkt{
				{src: clientA, dst: server6, proto: udpProto, id: 0x10007, payload: udpMsg(1500, 53, 2000)},
				{src: clientB, dst: server6, proto: udpProto, id: 0x20007, payload: udpMsg(1500, 53, 2000)},
				{src: clientA, dst: server6, proto: udpProto, id: 0x30007, payload: udpMsg(1500, 53, 2000)},
			} {
				want++
				for _, f := range b.send(p.cut(800), order) {
					if idOf(f) != want {
						t.Errorf("a fragment of %s has %d, want %d", p.src, idOf(f), want)
					}
				}
			}
			want++
			if got := idOf(b.one(b.in(pkt{src: clientB, dst: server6, proto: udpProto, frag: true, id: 7, payload: udpMsg(1500, 53, 4)}))); got != want {
				t.Errorf("an atomic fragment has %d, want %d", got, want)
			}
		})
	}
}

// TestIdentificationsAreNotForetold: engines that differ in their secrets alone begin
// elsewhere, and go from one host to the next in other steps.
func TestIdentificationsAreNotForetold(t *testing.T) {
	begin, step := make(map[uint16]bool), make(map[uint16]bool)
	const engines = 100
	for i := range byte(engines) {
		b := engineBy(t, i, nil)
		one := idOf(b.one(b.in(pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1500, 53, 4)})))
		two := idOf(b.one(b.in(pkt{src: clientA, dst: other6, proto: udpProto, payload: udpMsg(1500, 53, 4)})))
		begin[one], step[two-one] = true, true
	}
	// More than 10 of 100 draws of 65536 meet others with a probability below 10^-17.
	if len(begin) < engines-10 || len(step) < engines-10 {
		t.Errorf("%d engines begin at %d numbers, and go on by %d steps", engines, len(begin), len(step))
	}
}
