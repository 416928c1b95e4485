// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"fmt"
	"testing"
	"time"
)

// failover is a world where one host sends a message each tenth of an RTO to the other until the first of two ways is
// cut, and what its clocks say then.
type failover struct {
	first, fresh, down time.Duration // data on the other way; data that was never sent before; the path inactive
	gap                time.Duration // longest time between two deliveries
	sent, got          int
}

// law are the parameters that the clocks depend on.
type law struct {
	rto, beat time.Duration // RTO.Min = RTO.Max; HB.Interval, below zero without heartbeats
	most      int           // Path.Max.Retrans
	failing   bool          // RFC 7829 with PFMR 0
	early     bool
}

func (l law) parameters() Parameters {
	par := Defaults()
	par.RTOInitial, par.RTOMin, par.RTOMax, par.PathMaxRetrans, par.AssociationMaxRetrans = l.rto, l.rto, l.rto, l.most, 100
	par.HeartbeatInterval, par.PotentiallyFailedMaxRetrans, par.EarlyProbe, par.SACKDelay = l.beat, l.most, l.early, 0
	if l.failing {
		par.PotentiallyFailedMaxRetrans = 0
	}
	return par
}

// runFailover has one failover.
func runFailover(t testing.TB, l law) (f failover) {
	w := newWorld(t, dual(), l.parameters())
	w.delay = func(Pair) time.Duration { return time.Millisecond }
	w.connect(w.hosts[1].end.config.Addresses...)
	w.run(4 * l.rto)
	h, peer := w.hosts[0], w.hosts[1]
	talk := func() {
		if h.a.Send(Message{User: []byte("x")}, w.now, &h.out) == nil {
			f.sent++
		}
		h.flush()
		w.run(l.rto / 10)
	}
	for range 5 {
		talk()
	}
	cut, highest := w.now, h.a.nextTSN
	peer.gap, w.lost = 0, cutFirst
	w.trace = func(from int, p Packet) {
		tsn, data := firstTSN(p)
		if from != 0 || path1(p.Pair) || !data {
			return
		}
		if f.first == 0 {
			f.first = w.now.Sub(cut)
		}
		if f.fresh == 0 && !before(tsn, highest) && tsn == h.a.nextTSN-1 {
			f.fresh = w.now.Sub(cut)
		}
	}
	for w.now.Sub(cut) < time.Duration(l.most+2)*l.rto {
		talk()
		if f.down == 0 && h.saw(PathInactive) {
			f.down = w.now.Sub(cut)
		}
	}
	w.run(time.Duration(l.most+2) * l.rto)
	f.gap, f.got = peer.gap, len(peer.got)
	return f
}

// TestLaw holds the clocks of a silent cut against the law of the RFCs. Whatever HB.Interval is, data on the path
// tells sooner than a heartbeat: a path is down after one timeout more than Path.Max.Retrans (RFC 9260 section 8.2),
// each of an RTO, since RTO.Min is RTO.Max.
func TestLaw(t *testing.T) {
	for _, rto := range []time.Duration{200, 1000, 4000} {
		for _, most := range []int{0, 2, 5} {
			for _, beat := range []time.Duration{-1, rto / 2, 1000, 10000, 30000} { // the second is due with each timeout
				for _, failing := range []bool{false, true} {
					l := law{rto: rto * time.Millisecond, beat: beat * time.Millisecond, most: most, failing: failing && beat > 0}
					t.Run(fmt.Sprintf("%+v", l), func(t *testing.T) { testLaw(t, l) })
				}
			}
		}
	}
}

func testLaw(t *testing.T, l law) {
	f := runFailover(t, l)
	near := func(what string, got, want time.Duration) {
		if got < want || got > want+l.rto/5 {
			t.Errorf("%s after %v, the law says %v", what, got, want)
		}
	}
	near("first data", f.first, l.rto)
	down := time.Duration(l.most+1) * l.rto
	near("path down", f.down, down)
	if l.failing {
		near("new data", f.fresh, l.rto)
	} else if l.most > 0 && f.fresh < 2*l.rto {
		t.Errorf("without RFC 7829 new data leaves the path after %v", f.fresh)
	}
	if f.got != f.sent {
		t.Errorf("%d messages of %d have come", f.got, f.sent)
	}
}

// TestIdleLaw cuts a way by which nothing goes but heartbeats: the first is missed an RTO after it was due, at most
// HB.Interval and one and a half RTO after the cut; then each takes as long again, or an RTO by RFC 7829.
func TestIdleLaw(t *testing.T) {
	for _, rto := range []time.Duration{200, 1000} {
		for _, most := range []int{0, 1, 3} {
			for _, beat := range []time.Duration{1000, 10000} {
				for _, failing := range []bool{false, true} {
					l := law{rto: rto * time.Millisecond, beat: beat * time.Millisecond, most: most, failing: failing}
					t.Run(fmt.Sprintf("%+v", l), func(t *testing.T) { testIdleLaw(t, l) })
				}
			}
		}
	}
}

func testIdleLaw(t *testing.T, l law) {
	w := newWorld(t, dual(), l.parameters())
	w.delay = func(Pair) time.Duration { return time.Millisecond }
	w.connect(w.hosts[1].end.config.Addresses...)
	w.run(time.Minute)
	h := w.hosts[0]
	cut := w.now
	w.lost = cutFirst
	least, most := l.rto, l.beat+l.rto*3/2+l.rto
	for range l.most {
		if l.failing {
			least, most = least+l.rto, most+l.rto
		} else {
			least, most = least+l.beat+l.rto/2+l.rto, most+l.beat+l.rto*3/2+l.rto
		}
	}
	for !h.saw(PathInactive) && w.now.Sub(cut) <= most {
		w.run(10 * time.Millisecond)
	}
	if down := w.now.Sub(cut); down < least || down > most+10*time.Millisecond {
		t.Errorf("the path is down after %v, the law says from %v to %v", down, least, most)
	}
}

// BenchmarkFailover says how many failovers a second the engine takes in virtual time, strictly and with early probes.
func BenchmarkFailover(b *testing.B) {
	for name, early := range map[string]bool{"strict": false, "early": true} {
		b.Run(name, func(b *testing.B) {
			l := law{rto: time.Second, beat: 30 * time.Second, most: 2, failing: true, early: early}
			for range b.N {
				if f := runFailover(b, l); f.got != f.sent {
					b.Fatalf("%+v", f)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "failovers/s")
		})
	}
}
