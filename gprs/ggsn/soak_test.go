// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// soak is a world of four SGSNs, whose contexts come and go.
type soak struct {
	*world
	random     *rand.Rand
	nodes      []netip.Addr
	counts     []uint8 // restart counters
	made       int
	resets     int        // of the engine
	silent     netip.Addr // a node that answers nothing
	ended      [NumEnds]uint64
	renumbered uint64 // sessions
}

// TestSoak makes 100,000 contexts, some 1000 at a time, and has them end in every way: by
// either side, with answers and without, by restarts of SGSNs, Error Indications and limits
// of time, while settings change and other engines take over, with all contexts and with
// none. In the end nothing is left: no context, no address, no timer.
func TestSoak(t *testing.T) {
	total, whole := 100_000, !testing.Short() && !testutil.UnderRace
	if !whole {
		total = 5_000
	}
	s := &soak{
		world: newWorld(t, soakSettings), random: rand.New(rand.NewPCG(5, 6)),
		nodes: addrs("198.51.100.1", "198.51.100.2", "198.51.100.3", "2001:db8:51::4"), counts: make([]uint8, 4),
	}
	for s.made < total {
		s.round()
	}
	s.now = s.now.Add(time.Second)
	s.out.Reset()
	s.e.Delete(Selection{}, s.now, &s.out)
	s.run(5 * time.Minute)
	s.empty()
	for _, p := range s.e.Sizes().Pools {
		if p.Held != 0 {
			t.Errorf("%d leases of %s rest for ever", p.Held, p.APN)
		}
	}
	if !whole {
		return
	}
	s.count()
	if s.renumbered < 1000 {
		t.Errorf("%d sessions were renumbered", s.renumbered)
	}
	if s.resets < 10 {
		t.Errorf("the engine was replaced %d times", s.resets)
	}
	for why, n := range s.ended {
		if n == 0 && End(why) != EndRecreated && End(why) != EndSettings && End(why) != EndStopped && End(why) != EndRestart {
			t.Errorf("no context ended by %v: %v", End(why), s.ended)
		}
	}
}

// count adds what an engine has counted, before another takes its place.
func (s *soak) count() {
	for why, n := range s.e.stats.Ended {
		s.ended[why] += n
	}
	s.renumbered += s.e.stats.Renumbered
}

func soakSettings(s *Settings) {
	s.EchoInterval, s.PathHold, s.Limits.Contexts = time.Minute, time.Minute, 5000
	s.APNs[0].SessionLimit, s.APNs[1].IdleLimit = 3*time.Minute, 2*time.Minute
	s.APNs[2].Hold = 10 * time.Second
}

// round makes 100 contexts, and ends some of them.
func (s *soak) round() {
	node := s.random.IntN(len(s.nodes))
	s.from = s.nodes[node]
	var list []context
	for range 100 {
		s.made++
		apn, kind := "dual", gtp.PDPTypeIPv4v6
		switch s.random.IntN(4) {
		case 0:
			apn, kind = "internet", gtp.PDPTypeIPv4
		case 1:
			apn, kind = "inet6", gtp.PDPTypeIPv6
		case 2:
			s.createV0(gtp.MakeTID(testIMSI(s.made), 5), apn, kind)
			continue
		}
		m := s.createRequest(testIMSI(s.made), apn, kind)
		m.TEIDData, m.Recovery = uint32(s.made), gtp.Some(s.counts[node])
		if c := s.create(m); c.Cause.Accepted() {
			list = append(list, c)
		} else if c.Cause != gtp.CauseNoResources {
			s.Fatalf("create: %v", c.Cause)
		}
	}
	for _, c := range list {
		s.finish(c)
	}
	s.disturb(node)
	s.run(time.Duration(s.random.IntN(10)) * time.Second)
}

// finish ends a context, or leaves it to others.
func (s *soak) finish(c context) {
	teid := c.TEIDControl.Value
	switch s.random.IntN(6) {
	case 0:
		s.remove(teid, 5, s.random.IntN(2) == 0)
	case 1:
		s.createSecondary(teid, s.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 1, 1))))
		s.remove(teid, 5, false)
	case 2:
		s.out.Reset()
		s.e.Delete(Selection{TEID: c.TEIDData.Value}, s.now, &s.out)
		s.serve(s.out.UDP)
	case 3:
		s.from = s.nodes[s.random.IntN(len(s.nodes))]
		var r gtp.UpdateResponse
		s.ask(pathControl, gtp.Header{TEID: teid}, s.updateRequest(uint32(s.random.Uint32())), &r)
	case 4:
		s.tick(2 * young / 100)
		s.raw(pathUser, s.encode(gtp.Header{Version: gtp.V1, HasSequence: true}, &gtp.ErrorIndication{TEID: uint32(s.made - s.random.IntN(200)), Address: s.from}))
	}
}

// disturb has something happen to all.
func (s *soak) disturb(node int) {
	switch s.random.IntN(40) {
	case 0:
		s.counts[node]++
	case 5:
		s.silent = s.nodes[node]
		s.run(4 * time.Minute)
		s.silent = netip.Addr{}
	case 1:
		settings := testSettings()
		soakSettings(&settings)
		settings.APNs[1].MTU = 1300 + s.random.IntN(100)
		if settings.APNs[2].Renumber = MinRenumber; s.random.IntN(2) == 0 {
			settings.APNs[2].Pools6 = prefixes("2001:db8:7800::/44")
		}
		if err := s.e.Reconfigure(settings, s.now, &s.out); err != nil {
			s.Fatal(err)
		}
	case 2:
		s.out.Reset()
		s.e.SetQoS(Selection{APN: "internet"}, qosOf(1, 2, 3, 4), s.now, &s.out)
		s.serve(s.out.UDP)
	case 3:
		settings := testSettings()
		soakSettings(&settings)
		s.count()
		if lost := s.succeed(settings, s.e.AppendState(nil)); lost != 0 {
			s.Fatalf("%d contexts lost", lost)
		}
		s.resets++
	case 4:
		settings := testSettings()
		soakSettings(&settings)
		s.count()
		settings.RestartCounter = s.e.RestartCounter() + 1
		s.succeed(settings, nil)
		s.resets++
	}
}

// run lets time pass, while SGSNs answer most of what they are asked.
func (s *soak) run(d time.Duration) {
	for range d / time.Second {
		s.serve(s.tick(time.Second))
	}
}

// serve answers requests of the engine; one in four is lost.
func (s *soak) serve(list []packet.Datagram) {
	list = append([]packet.Datagram(nil), list...)
	for i := range list {
		list[i].Payload = append([]byte(nil), list[i].Payload...)
	}
	for _, d := range list {
		s.from = d.To.Addr()
		if s.random.IntN(4) == 0 || s.from == s.silent {
			continue
		}
		switch gtp.MessageType(d.Payload[1]) {
		case gtp.TypeEchoRequest:
			counter := uint8(0)
			for i, a := range s.nodes {
				if a == s.from {
					counter = s.counts[i]
				}
			}
			s.reply(d, &gtp.EchoResponse{Recovery: counter})
		case gtp.TypeDeleteRequest:
			s.reply(d, &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
		case gtp.TypeUpdateRequest:
			s.reply(d, &gtp.UpdateResponse{Cause: []gtp.Cause{gtp.CauseCollision, gtp.CauseNonExistent}[s.random.IntN(2)]})
		}
	}
}
