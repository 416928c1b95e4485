// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// timed fails unless whatever waits of each session has its deadline.
func (w *world) timed(after string) {
	w.Helper()
	e := w.e
	for h := handle(1); h <= e.sessions.last; h++ {
		s := e.sessions.at(h)
		if s.first == 0 || s.marked(markReleasing) { // released in the next Tick
			continue
		}
		if s.request != 0 && e.requestTimes.At(s.request) == never {
			w.Fatalf("after %s: a request without a deadline", after)
		}
		if s.marked(markDeleting) {
			if s.request == 0 {
				w.Fatalf("after %s: a session that is deleted by no request", after)
			}
			continue
		}
		latest := never
		if s.advertAt != 0 {
			latest = s.advertAt
		}
		if a := e.accessPoint(s); a.SessionLimit > 0 {
			latest = min(latest, seconds(s.createdAt)+a.SessionLimit)
		}
		to, changing := e.changes[h]
		if changing && s.request == 0 {
			latest = min(latest, to.at)
		}
		if s.marked(markEnding) || e.accessPoint(s).gone {
			latest = min(latest, e.at+e.settings.T3Response)
		}
		// What was due goes with the time that passes in between.
		if latest != never && e.sessionTimes.At(h) > max(latest, e.at+e.settings.T3Response) {
			w.Fatalf("after %s: session %d, marks %#x, changing %v, has no deadline until %v", after, h, s.marks, changing, latest)
		}
	}
}

// TestWaitingHasDeadline has both sides change and delete contexts at once, with every answer or none,
// while settings change and SGSNs restart: whatever waits has a deadline at each moment, and in
// the end nothing is left.
func TestWaitingHasDeadline(t *testing.T) {
	rounds := 400
	if testing.Short() {
		rounds = 40
	}
	for seed := range uint64(rounds) {
		deadlinesRound(t, rand.New(rand.NewPCG(seed, 7)))
	}
}

func deadlinesRound(t *testing.T, random *rand.Rand) {
	settings := testSettings()
	settings.EchoInterval, settings.PathHold = time.Minute, time.Minute
	settings.APNs[0].SessionLimit, settings.APNs[0].DirectTunnel = 5*time.Minute, true
	w := newWorld(t, func(s *Settings) { *s = settings })
	nodes := []netip.Addr{sgsn, other}
	var list []context
	for n, apn := range []string{"internet", "internet", "dual", "dual"} {
		kind := []gtp.PDPType{gtp.PDPTypeIPv4, gtp.PDPTypeIPv4v6}[n/2]
		m := w.createRequest(testIMSI(n), apn, kind)
		m.TEIDData = uint32(0x1000 + n)
		if n == 1 {
			m.AddressUser = rnc
		}
		list = append(list, w.create(m))
	}
	w.tick(2 * young)
	var asked []packet.Datagram // requests of the node
	counter := uint8(0)
	for range 60 {
		n := random.IntN(len(list))
		c := list[n]
		w.from = nodes[random.IntN(2)]
		w.out.Reset()
		what := ""
		switch random.IntN(11) {
		case 0:
			what = "a change"
			w.e.SetQoS(Selection{TEID: c.TEIDData.Value}, qosOf(1, 2, 3, byte(random.IntN(9))), w.now, &w.out)
		case 1:
			what = "a delete"
			if random.IntN(3) == 0 {
				w.e.Delete(Selection{TEID: c.TEIDData.Value}, w.now, &w.out)
			}
		case 2, 3:
			what = "an update of an SGSN"
			m := w.updateRequest(uint32(0x1000 + n))
			m.QoS.Value = qosOf(2, 1, 2, byte(random.IntN(9)))
			if random.IntN(4) == 0 {
				counter++
				m.Recovery = gtp.Some(counter)
			}
			w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, m, &gtp.UpdateResponse{})
		case 4:
			what = "a delete of an SGSN"
			if random.IntN(6) == 0 {
				w.remove(c.TEIDControl.Value, 5, random.IntN(2) == 0)
			}
		case 5, 6:
			what = "an answer"
			if len(asked) > 0 {
				d := asked[random.IntN(len(asked))]
				w.from = d.To.Addr()
				cause := []gtp.Cause{gtp.CauseAccepted, gtp.CauseCollision, gtp.CauseCollision, gtp.CauseNonExistent, gtp.CauseSystemFailure}[random.IntN(5)]
				switch gtp.MessageType(d.Payload[1]) {
				case gtp.TypeUpdateRequest:
					w.reply(d, &gtp.UpdateResponse{Cause: cause, QoS: gtp.Some(qosOf(1, 8, 8, 8)), TEIDData: gtp.Some(uint32(0x1000 + n)), AddressControl: gtp.Some(w.from), AddressUser: gtp.Some(w.from)})
				case gtp.TypeDeleteRequest:
					w.reply(d, &gtp.DeleteResponse{Cause: cause})
				case gtp.TypeEchoRequest:
					w.reply(d, &gtp.EchoResponse{Recovery: counter})
				}
			}
		case 7:
			what = "a reload"
			next := settings
			next.APNs = slices.Clone(settings.APNs)
			if random.IntN(8) == 0 {
				next.APNs = next.APNs[:2]
			}
			next.APNs[0].IdleLimit = time.Duration(random.IntN(2)) * time.Hour
			if err := w.e.Reconfigure(next, w.now, &w.out); err != nil {
				t.Fatal(err)
			}
		case 8:
			what = "an Error Indication"
			w.from = rnc
			w.raw(pathUser, w.encode(gtp.Header{Version: gtp.V1, HasSequence: true}, &gtp.ErrorIndication{TEID: 0x1001, Address: rnc}))
		case 9:
			what = "another context"
			list = append(list, w.open(len(list)+100, "internet", gtp.PDPTypeIPv4))
		case 10:
			what = "time"
			asked = append(asked, w.tick(time.Duration(random.IntN(8000))*time.Millisecond)...)
		}
		for _, d := range w.out.UDP {
			d.Payload = slices.Clone(d.Payload)
			asked = append(asked, d)
		}
		w.timed(what)
	}
	w.out.Reset()
	w.e.Delete(Selection{}, w.now, &w.out)
	w.tick(2 * time.Minute)
	w.empty()
}
