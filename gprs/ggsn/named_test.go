// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// nameNode has an SGSN make a context whose user plane is at another node.
func (w *world) nameNode(from netip.Addr, imsi int, user netip.Addr) gtp.Cause {
	w.Helper()
	w.from = from
	m := w.createRequest(testIMSI(imsi), "internet", gtp.PDPTypeIPv4)
	m.AddressUser = user
	return w.create(m).Cause
}

// node is a node of the peers' network, or of another.
func node(of netip.Addr, last int) netip.Addr {
	b := of.As4()
	b[3] = byte(last)
	return netip.AddrFrom4(b)
}

// TestPeersNamed: an SGSN that names more and more nodes has some room for them, keeps nobody out
// that speaks, and leaves room for those that others name.
func TestPeersNamed(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Limits.Peers = 16 })
	for n := range 10 {
		if got := w.nameNode(other, n, node(sgsn, 100+n)); got.Accepted() != (n < 4) {
			t.Errorf("node %d of the first SGSN: %v", n, got)
		}
	}
	for n := range 4 {
		if got := w.nameNode(sgsn, 20+n, node(sgsn, 120+n)); got.Accepted() != (n < 2) {
			t.Errorf("node %d of the second: %v", n, got)
		}
	}
	if got := w.nameNode(sgsn, 30, node(sgsn, 100)); !got.Accepted() {
		t.Errorf("a node that is known: %v", got)
	}
	w.from = node(sgsn, 3)
	if w.raw(pathControl, w.encode(gtp.Header{Version: gtp.V1, HasSequence: true}, &gtp.EchoRequest{})); len(w.out.UDP) != 1 {
		t.Errorf("another SGSN is not served: %v", w.dropped())
	}
	// One that speaks itself is no longer there by another's grace.
	w.from = node(sgsn, 120)
	w.raw(pathControl, w.encode(gtp.Header{Version: gtp.V1, HasSequence: true}, &gtp.EchoRequest{}))
	if got := w.nameNode(sgsn, 31, node(sgsn, 131)); !got.Accepted() {
		t.Errorf("in the room of one that speaks: %v", got)
	}
	w.out.Reset()
	w.e.Delete(Selection{}, w.now, &w.out)
	w.tick(time.Hour)
	w.empty()
	for n := range 3 {
		if got := w.nameNode(sgsn, 40+n, node(sgsn, 140+n)); !got.Accepted() {
			t.Errorf("nodes that have nothing do not give way: %v", got)
		}
	}
}

// TestNamedStrangersSpeak: nodes of direct tunnels that are no peers take the room of those that
// are named, whatever they say, also after a restart.
func TestNamedStrangersSpeak(t *testing.T) {
	settings := testSettings()
	settings.Limits.Peers, settings.APNs[0].DirectTunnel = 16, true
	w := newWorld(t, func(s *Settings) { *s = settings })
	accepted := 0
	for n := range 20 {
		if w.nameNode(other, n, node(rnc, n)).Accepted() {
			accepted++
		}
		w.from = node(rnc, n)
		w.raw(pathUser, w.encode(gtp.Header{Version: gtp.V1, HasSequence: true}, &gtp.EchoRequest{}))
		if n == 10 {
			if lost := w.succeed(settings, w.e.AppendState(nil)); lost != 0 {
				t.Fatalf("%d lost", lost)
			}
		}
	}
	if accepted != 4 {
		t.Errorf("one SGSN has %d nodes of 16", accepted)
	}
}

// TestContextsOfAsker: a context counts as one of the SGSN that asks for it, whichever it names; a
// move takes it into the account of the SGSN that moved it, if that has room.
func TestContextsOfAsker(t *testing.T) {
	settings := testSettings()
	settings.Limits.ContextsPerPeer = 3
	w := newWorld(t, func(s *Settings) { *s = settings })
	ask := func(from, named netip.Addr, n int) context {
		w.from = named
		m := w.createRequest(testIMSI(n), "internet", gtp.PDPTypeIPv4)
		m.TEIDData = uint32(0x1000 + n)
		w.from = from
		return w.create(m)
	}
	var hostile, honest []context
	for n := range 5 {
		c := ask(other, sgsn, n)
		if c.Cause.Accepted() != (n < 3) {
			t.Errorf("context %d in another's name: %v", n, c.Cause)
		}
		hostile = append(hostile, c)
	}
	for n := range 3 {
		c := ask(sgsn, sgsn, 10+n)
		if !c.Cause.Accepted() {
			t.Errorf("context %d of the SGSN itself: %v", n, c.Cause)
		}
		honest = append(honest, c)
	}
	if lost := w.succeed(settings, w.e.AppendState(nil)); lost != 0 {
		t.Fatalf("%d lost", lost)
	}
	move := func(from netip.Addr, c context) gtp.Cause {
		w.from = from
		var r gtp.UpdateResponse
		w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, w.updateRequest(c.TEIDData.Value), &r)
		return r.Cause
	}
	third := node(sgsn, 3)
	if got := move(other, honest[0]); got != gtp.CauseNoResources {
		t.Errorf("an SGSN that is full takes over another: %v", got)
	}
	if got := move(sgsn, hostile[0]); got != gtp.CauseAccepted {
		t.Errorf("an SGSN changes one that another has opened in its name, and does not answer for it: %v", got)
	}
	if got := move(third, honest[0]); got != gtp.CauseAccepted {
		t.Errorf("an SGSN takes a context over: %v", got)
	}
	if c := ask(sgsn, sgsn, 20); !c.Cause.Accepted() {
		t.Errorf("in the place of one that has moved: %v", c.Cause)
	}
	w.from = other
	w.remove(hostile[1].TEIDControl.Value, 5, true)
	if c := ask(other, sgsn, 21); !c.Cause.Accepted() {
		t.Errorf("in the place of one that has ended: %v", c.Cause)
	}
	w.out.Reset()
	w.e.Delete(Selection{}, w.now, &w.out)
	w.tick(time.Minute)
	w.empty()
}
