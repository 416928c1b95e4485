// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package follow

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNeighbourMirror(t *testing.T) {
	here := neighbourKey{4, 2, netip.MustParseAddr("192.0.2.1")}
	a, b := mac{1}, mac{2}
	steps := []struct {
		name  string
		mac   mac
		valid bool
		want  novelty
	}{
		{"never heard of, and not valid", mac{}, false, unsure},
		{"appears", a, true, sure},
		{"stays", a, true, unchanged},
		{"moves", b, true, sure},
		{"fails", b, false, sure},
		{"fails again", mac{}, false, unsure},
		{"comes back", b, true, sure},
	}
	var m neighbourMirror
	for _, s := range steps {
		if got := m.change(here, s.mac, s.valid); got != s.want {
			t.Errorf("%s: %v, want %v", s.name, got, s.want)
		}
	}
	m.clear()
	if got := m.change(here, b, true); got != sure {
		t.Errorf("after losses the old news is %v, want %v", got, sure)
	}
}

func TestMirrorsAreBounded(t *testing.T) {
	var neighbours neighbourMirror
	var links linkMirror
	for i := range 3 * maxNeighbours {
		var addr [4]byte
		binary.BigEndian.PutUint32(addr[:], uint32(i))
		neighbours.change(neighbourKey{4, 2, netip.AddrFrom4(addr)}, mac{1}, true)
		links.change(int32(i), linkState{mtu: 1500})
	}
	if n, l := len(neighbours.valid), len(links.known); n > maxNeighbours || l > maxLinks {
		t.Errorf("%d neighbours and %d links are kept", n, l)
	}
}

func TestLinkMirror(t *testing.T) {
	up := linkState{flags: unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOWER_UP, mtu: 1500}
	bigger := up
	bigger.mtu = 9000
	steps := []struct {
		name             string
		state            linkState
		changed, carrier bool
	}{
		{"unknown link", up, true, true},
		{"no news", up, false, false},
		{"another MTU", bigger, true, false},
		{"carrier lost", linkState{flags: unix.IFF_UP, mtu: 9000}, true, true},
		{"gone", linkState{gone: true}, true, true},
		{"another link of this index, down", linkState{mtu: 1500}, true, true},
	}
	var m linkMirror
	for _, s := range steps {
		changed, carrier := m.change(3, s.state)
		if changed != s.changed || carrier != s.carrier {
			t.Errorf("%s: changed %t carrier %t, want %t %t", s.name, changed, carrier, s.changed, s.carrier)
		}
	}
}

// TestUnreadableEventsChangeEverything has messages of no length or of a kind
// that does not exist.
func TestUnreadableEventsChangeEverything(t *testing.T) {
	for _, tt := range []struct {
		name    string
		msgType uint16
		data    []byte
		want    eventKind
	}{
		{"route without body", unix.RTM_NEWROUTE, nil, routesChanged},
		{"route with 33 bits", unix.RTM_NEWROUTE, append([]byte{unix.AF_INET, 33}, make([]byte, 10)...), routesChanged},
		{"IPv6 route", unix.RTM_NEWROUTE, append([]byte{unix.AF_INET6, 64}, make([]byte, 10)...), lookupChanged},
		{"link without body", unix.RTM_DELLINK, nil, routesChanged},
		{"neighbour without body", unix.RTM_NEWNEIGH, nil, lookupChanged},
		{"address without body", unix.RTM_NEWADDR, nil, routesChanged},
		{"rule without body", unix.RTM_NEWRULE, nil, routesChanged},
		{"IPv6 settings of a link", unix.RTM_NEWLINK, append([]byte{unix.AF_INET6}, make([]byte, 15)...), lookupChanged},
		{"port of a bridge", unix.RTM_NEWLINK, append([]byte{unix.AF_BRIDGE}, make([]byte, 15)...), nothing},
		{"neighbour of a bridge", unix.RTM_NEWNEIGH, append([]byte{unix.AF_BRIDGE}, make([]byte, 11)...), nothing},
		{"traffic control", unix.RTM_NEWQDISC, nil, nothing},
	} {
		if got := parseEvent(tt.msgType, tt.data).kind; got != tt.want {
			t.Errorf("%s: kind %v, want %v", tt.name, got, tt.want)
		}
	}
}

// FuzzEvents looks for a message that makes the parser panic, or mark less than
// the range of its route.
func FuzzEvents(f *testing.F) {
	f.Add(uint16(unix.RTM_NEWROUTE), append([]byte{unix.AF_INET, 24}, make([]byte, 30)...))
	f.Add(uint16(unix.RTM_NEWNEIGH), append([]byte{unix.AF_INET6}, make([]byte, 30)...))
	f.Add(uint16(unix.RTM_NEWLINK), make([]byte, 40))
	f.Fuzz(func(t *testing.T, msgType uint16, data []byte) {
		e := parseEvent(msgType, data)
		if e.routes.first > e.routes.last {
			t.Errorf("range %v", e.routes)
		}
		if r, ok := parseRoute4(data); ok && (r.bits > 32 || r.single && !r.hop.via.IsValid()) {
			t.Errorf("route %+v", r)
		}
	})
}
