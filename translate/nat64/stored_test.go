// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

func synTo(port uint16) pkt {
	return pkt{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(80, port, flagSYN, 0)}
}

// waitingList is what a fast path would be told.
type waitingList map[netip.AddrPort]int

func (w waitingList) Wait(p netip.AddrPort) { w[p]++ }
func (w waitingList) Done(p netip.AddrPort) { w[p]-- }

// TestStoredSYNUnanswered: a SYN that finds nothing waits for 6 s, and is then answered
// with Port Unreachable (RFC 6146 section 3.5.2.2).
func TestStoredSYNUnanswered(t *testing.T) {
	for _, filtered := range []bool{false, true} {
		b := engine(t, func(s *Settings) { s.FilterTCP = AddressDependent })
		waiting := make(waitingList)
		b.SetWaiting(waiting)
		port := uint16(5000)
		if filtered { // by address: there is a binding, but not with this host
			port = srcPort(b.one(b.in(pkt{src: clientA, dst: other6, proto: tcpProto, payload: tcpMsg(1500, 80, flagSYN, 0)})))
		}
		syn := synTo(port)
		b.refused(syn, StoredSYN)
		b.refused(syn, StoredSYN) // sent again: still one
		peer := netip.AddrPortFrom(netip.MustParseAddr(server4), 80)
		if b.Engine.Sizes().StoredSYNs != 1 || waiting[peer] != 1 {
			t.Fatalf("sizes %+v, waiting %v", b.Engine.Sizes(), waiting)
		}
		b.wants(b.pass(5900 * time.Millisecond))
		b.wants(b.pass(200*time.Millisecond), answer4(server4, 3, 3, syn.bytes()))
		if b.Engine.Sizes().StoredSYNs != 0 || waiting[peer] != 0 {
			t.Errorf("sizes %+v, waiting %v", b.Engine.Sizes(), waiting)
		}
		if got := b.Stats().Dropped[StoredSYNUnanswered]; got != 1 {
			t.Errorf("counted %d times", got)
		}
	}
}

// TestSimultaneousOpen: both hosts send a SYN to each other. Without a binding the SYN of
// the IPv6 side gets the address and port at which the other waits.
func TestSimultaneousOpen(t *testing.T) {
	b := engine(t, nil)
	b.refused(synTo(5000), StoredSYN)
	out := b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 80, flagSYN, 0)}))
	b.wants([][]byte{out}, pkt{src: poolIP, dst: server4, hop: 63, proto: tcpProto, payload: tcpMsg(5000, 80, flagSYN, 0)})
	if got := b.status(); got != state.Established {
		t.Errorf("state %s", got)
	}
	if got := b.Stats().Dropped[StoredSYNReplaced]; got != 1 || b.Engine.Sizes().StoredSYNs != 0 {
		t.Errorf("replaced %d, sizes %+v", got, b.Engine.Sizes())
	}
	b.wants(b.pass(10 * time.Second)) // no error
	b.one(b.in(synTo(5000)))          // sent again, it passes now
}

// TestSimultaneousOpenOfABinding: the same where address-dependent filtering kept the SYN.
func TestSimultaneousOpenOfABinding(t *testing.T) {
	b := engine(t, func(s *Settings) { s.FilterTCP = AddressDependent })
	port := srcPort(b.one(b.in(pkt{src: clientA, dst: other6, proto: tcpProto, payload: tcpMsg(1500, 80, flagSYN, 0)})))
	b.refused(synTo(port), StoredSYN)
	if got := srcPort(b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 80, flagSYN, 0)}))); got != port {
		t.Errorf("port %d, want %d", got, port)
	}
	if got := b.Stats().Dropped[StoredSYNReplaced]; got != 1 {
		t.Errorf("replaced %d", got)
	}
	b.wants(b.pass(10 * time.Second))
	b.one(b.in(synTo(port)))
}

// TestSimultaneousOpenElsewhere: the port at which the SYN waits is another client's, so the
// connection gets one of its own and the SYN is answered in its time.
func TestSimultaneousOpenElsewhere(t *testing.T) {
	b := engine(t, nil)
	taken := srcPort(b.one(b.in(pkt{src: clientB, dst: other6, proto: tcpProto, payload: tcpMsg(1500, 80, flagSYN, 0)})))
	wanted := taken ^ 1
	b.refused(synTo(wanted), StoredSYN)
	if got := srcPort(b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 80, flagSYN, 0)}))); got == wanted {
		t.Error("got a port of another client's block")
	}
	b.wants(b.pass(7*time.Second), answer4(server4, 3, 3, synTo(wanted).bytes()))
}

func TestStoredSYNsAreBounded(t *testing.T) {
	b := engine(t, func(s *Settings) { s.Limits.StoredSYNs, s.Limits.StoredSYNsSource = 4, 3 })
	for i := range uint16(3) {
		b.refused(synTo(5000+i), StoredSYN)
	}
	b.refused(synTo(5004), StoredSYNsSource)
	from := func(src string) pkt { p := synTo(5000); p.src = src; return p }
	b.refused(from("198.51.100.3"), StoredSYN)
	b.refused(from("198.51.100.4"), StoredSYNsFull)
	b.pass(7 * time.Second)
	b.refused(from("198.51.100.4"), StoredSYN)
}

// TestSimultaneousOpenAtASystemPort: these are of no block, and free for any client.
func TestSimultaneousOpenAtASystemPort(t *testing.T) {
	b := engine(t, ports(1, 65535))
	b.refused(synTo(500), StoredSYN)
	if got := srcPort(b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 80, flagSYN, 0)}))); got != 500 {
		t.Errorf("port %d", got)
	}
}
