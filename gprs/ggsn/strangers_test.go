// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// TestPeerTakenOut: the contexts of a node that is a peer no more end in good order, by either
// version, over a reload and over a restart; its answers to that are taken, and nothing else.
func TestPeerTakenOut(t *testing.T) {
	without := func(s *Settings) { s.Peers = prefixes("198.51.100.2/32", "203.0.113.0/24") }
	for name, restart := range map[string]bool{"reload": false, "restart": true} {
		for _, version := range []gtp.Version{gtp.V0, gtp.V1} {
			w := newWorld(t, nil)
			path := pathV0
			if version == gtp.V0 {
				w.createV0(gtp.MakeTID(imsi1, 5), "internet", gtp.PDPTypeIPv4)
			} else {
				path = pathControl
				w.open(1, "internet", gtp.PDPTypeIPv4)
			}
			w.from = other
			stays := w.open(2, "internet", gtp.PDPTypeIPv4)
			w.from = sgsn
			s := testSettings()
			without(&s)
			if restart && w.succeed(s, w.e.AppendState(nil)) != 0 {
				t.Fatal("contexts are lost")
			} else if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
				t.Fatal(err)
			}
			asked := ofType(w.tick(0), gtp.TypeDeleteRequest)
			if len(asked) != 1 || asked[0].To.Addr() != sgsn || w.e.contexts.used() != 2 {
				t.Fatalf("%s, version %d: %d asked", name, version, len(asked))
			}
			for _, m := range []gtp.Message{&gtp.EchoRequest{}, &gtp.DeleteRequest{NSAPI: 5}, &gtp.EchoResponse{}} {
				before := w.e.stats.Dropped[Stranger]
				w.raw(path, w.encode(gtp.Header{Version: version, HasSequence: true, Sequence: 9}, m))
				w.silent(Stranger, before)
			}
			w.from = rnc
			h, _ := gtp.ParseHeader(asked[0].Payload)
			w.raw(path, w.encode(gtp.Header{Version: version, HasSequence: true, Sequence: h.Sequence, TID: h.TID}, &gtp.DeleteResponse{Cause: gtp.CauseAccepted}))
			if w.e.contexts.used() != 2 {
				t.Errorf("%s, version %d: another node's answer counts", name, version)
			}
			w.from = sgsn
			w.reply(asked[0], &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
			if left := w.list(); len(left) != 1 || left[0].IMSI != testIMSI(2) || w.e.stats.Ended[EndSettings] != 1 {
				t.Errorf("%s, version %d: %d are left, ended %v, dropped %v", name, version, len(left), w.e.stats.Ended, w.dropped())
			}
			w.from = other
			w.remove(stays.TEIDControl.Value, 5, true)
			w.empty()
		}
	}
}

// TestUserPlaneTakenOut: so do contexts whose user plane is at such a node, unless their access
// point lets it be anywhere.
func TestUserPlaneTakenOut(t *testing.T) {
	for _, direct := range []bool{false, true} {
		w := newWorld(t, nil)
		w.open(1, "internet", gtp.PDPTypeIPv4)
		m := w.createRequest(testIMSI(2), "internet", gtp.PDPTypeIPv4)
		m.AddressUser = other
		w.create(m)
		s := testSettings()
		s.Peers, s.APNs[0].DirectTunnel = prefixes("198.51.100.1/32"), direct
		if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
			t.Fatal(err)
		}
		if asked := ofType(w.tick(0), gtp.TypeDeleteRequest); len(asked) != btoi(!direct) {
			t.Errorf("direct tunnels %v: %d asked", direct, len(asked))
		}
	}
}

// TestNoNodes: a request names no address that is this host's, or one of broadcast there, as a
// node: neither of the control plane nor of the user plane, and not in an update. An SGSN on this
// host may name itself.
func TestNoNodes(t *testing.T) {
	own := addrs("198.51.100.255", "198.51.100.77", "2001:db8:51::77")
	for _, a := range own {
		w := newWorld(t, func(s *Settings) { s.NoNodes, s.APNs[0].DirectTunnel = own, true })
		for name, change := range map[string]func(*gtp.CreateRequest){
			"control plane": func(m *gtp.CreateRequest) { m.AddressControl = a },
			"user plane":    func(m *gtp.CreateRequest) { m.AddressUser = a },
		} {
			m := w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4)
			change(m)
			if c := w.create(m); c.Cause != gtp.CauseMandatoryIncorrect {
				t.Errorf("%s at %v: %v", name, a, c.Cause)
			}
		}
		c := w.open(1, "internet", gtp.PDPTypeIPv4)
		u := w.updateRequest(0x7000)
		u.AddressUser = gtp.Some(a)
		var r gtp.UpdateResponse
		if w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, u, &r); r.Cause != gtp.CauseMandatoryIncorrect {
			t.Errorf("update to %v: %v", a, r.Cause)
		}
		w.from = a
		w.open(2, "internet", gtp.PDPTypeIPv4)
	}
}

// TestLabelGuessed: a peer that knows the TID of a terminal at another cannot try all flow labels
// of version 0; who has the right one is served before that, and again in time.
func TestLabelGuessed(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Limits.Requests = 1_000_000 })
	tid := gtp.MakeTID(imsi1, 5)
	_, c := w.createV0(tid, "internet", gtp.PDPTypeIPv4)
	right := uint16(c.TEIDControl.Value)
	ask := func(label uint16, m gtp.Message) []packet.Datagram {
		w.seq++
		return w.raw(pathV0, w.encode(gtp.Header{Version: gtp.V0, HasSequence: true, Sequence: w.seq, TID: tid, FlowLabel: label}, m))
	}
	w.from = other
	answered := 0
	for n := range 1 << 16 {
		if label := uint16(n); label != right {
			answered += len(ask(label, &gtp.DeleteRequest{}))
		}
	}
	if answered != guessesAtOnce || w.e.stats.Dropped[LabelGuessed] != 1<<16-1-guessesAtOnce {
		t.Errorf("%d are answered, dropped %v", answered, w.dropped())
	}
	for _, m := range []gtp.Message{&gtp.DeleteRequest{}, &gtp.UpdateRequest{QoS: gtp.Some(qosOf(0, 0x0b, 0x92, 0x1f)), TEIDData: gtp.Some(uint32(1)), TEIDControl: gtp.Some(uint32(2)), AddressControl: gtp.Some(other), AddressUser: gtp.Some(other)}} {
		before := w.e.stats.Dropped[LabelGuessed]
		ask(right, m)
		w.silent(LabelGuessed, before)
	}
	w.tick(time.Second)
	if answered = len(ask(right+1, &gtp.DeleteRequest{})) + len(ask(right+2, &gtp.DeleteRequest{})); answered != 1 {
		t.Errorf("%d guesses in a second", answered)
	}
	w.from = sgsn
	w.tick(time.Minute)
	for range guessesAtOnce - 1 {
		ask(right+1, &gtp.DeleteRequest{})
	}
	if got := ask(right, &gtp.DeleteRequest{}); len(got) != 1 {
		t.Errorf("the right one is not answered: %v", w.dropped())
	}
	w.empty()
}
