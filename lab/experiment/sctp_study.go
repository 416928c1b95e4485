// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
	"github.com/isthmus-net/isthmus/sctp/assoc"
)

// studyCase is a run in virtual time: a server streams to a terminal by the first of two wires, which is cut silently and
// made whole again.
type studyCase struct {
	par   assoc.Parameters
	wires [2]lab.WireConfig
	lead  time.Duration // before the cut
	cut   time.Duration // how long it lasts; 0: there is none
	phase time.Duration // up to which it lasts longer, in each run another time
	tail  time.Duration // behind it
	every time.Duration // between messages
	told  bool          // the terminal is told by its link that the wire is cut, and that it is whole again
	seed  byte
}

// studySeen is what a run has shown. Times count from the cut, but for back. -1: it did not come to that.
type studySeen struct {
	rto               time.Duration // of the first path, right before the cut
	first, fresh      time.Duration // data leaves by the other way; data that had not left before
	firstCame         time.Duration // data comes by the other way
	interrupt         time.Duration // from the last data that came by the first way to the first new data by the other
	down              time.Duration // the server takes the path to be inactive
	gap               time.Duration // the longest time between two deliveries
	back              time.Duration // from the wire's return to data that comes by it
	chunks, again     int           // that left the server; those that had left before
	strayed           int           // times that new data left by the other way while the first was whole
	data              []studyData
	begin, cutAt, end time.Time
}

// studyData is a chunk of data that has left.
type studyData struct {
	sent, came time.Time // zero: it did not come
	tsn        uint32
	link       int
	fresh      bool // it had not left before
}

// run plays the case.
func (c *studyCase) run() (s studySeen, err error) {
	m, err := newSCTPModel(c.par, c.wires[:], c.seed)
	if err != nil {
		return s, err
	}
	sent := uint64(0)
	message := make([]byte, cutSize)
	stream := func(d time.Duration) error {
		for end := m.now.Add(d); m.now.Before(end); m.run(c.every) {
			binary.BigEndian.PutUint64(message, sent)
			switch err := m.a[1].Send(assoc.Message{User: message}, m.now, &m.out); {
			case errors.Is(err, assoc.ErrBlocked): // it goes on where it was
				continue
			case err != nil:
				return err
			}
			sent++
			m.flush(1)
		}
		return nil
	}
	// The phase of what goes by its own clocks is another one with each seed.
	random := rand.New(rand.NewPCG(uint64(c.seed), 1))
	if err := stream(c.lead + time.Duration(random.Int64N(int64(time.Second)))); err != nil {
		return s, err
	}
	s.begin, s.cutAt, m.gap, m.inactive = m.begin, m.now, 0, time.Time{}
	for _, p := range m.a[1].Status().Paths {
		if p.Remote == linkAddress(0, "a") {
			s.rto = p.RTO
		}
	}
	if c.cut > 0 {
		m.setCut(true)
		if c.told {
			m.a[0].LinkDown([]netip.Addr{linkAddress(0, "a")}, m.now, &m.out)
			m.flush(0)
		}
		if err := stream(c.cut + time.Duration(random.Int64N(int64(c.phase)+1))); err != nil {
			return s, err
		}
		m.setCut(false)
		if c.told {
			m.a[0].LinkUp(linkAddress(0, "a"), m.now, &m.out)
			m.flush(0)
		}
	}
	s.end = m.now
	if err := stream(c.tail); err != nil {
		return s, err
	}
	s.data, s.gap = m.data, m.gap
	if s.down = -1; !m.inactive.IsZero() {
		s.down = m.inactive.Sub(s.cutAt)
	}
	s.read()
	return s, nil
}

// linkAddress is that of a host, "a" the terminal's or "b" the server's, on a link.
func linkAddress(link int, host string) netip.Addr {
	return netip.MustParseAddr("2001:db8:" + string('1'+rune(link)) + "::" + host)
}

// read reads the times of a run that the server's data show.
func (s *studySeen) read() {
	var lastOld, freshCame, first, fresh, firstCame, back time.Time
	earliest := func(into *time.Time, at time.Time) {
		if !at.IsZero() && (into.IsZero() || at.Before(*into)) {
			*into = at
		}
	}
	away := false
	for i := range s.data {
		d := &s.data[i]
		s.chunks++
		if !d.fresh {
			s.again++
		}
		cut := !d.sent.Before(s.cutAt) && d.sent.Before(s.end)
		switch {
		case d.link == 0 && d.sent.Before(s.cutAt) && d.came.After(lastOld):
			lastOld = d.came
		case d.link == 0 && !d.sent.Before(s.end):
			earliest(&back, d.came)
		case d.link == 1 && cut:
			earliest(&first, d.sent)
			earliest(&firstCame, d.came)
			if d.fresh {
				earliest(&fresh, d.sent)
				earliest(&freshCame, d.came)
			}
		}
		if d.fresh && !cut && d.sent.Before(s.cutAt) {
			if d.link == 1 && !away {
				s.strayed++
			}
			away = d.link == 1
		}
	}
	since := func(at, from time.Time) time.Duration {
		if at.IsZero() {
			return -1
		}
		return at.Sub(from)
	}
	s.first, s.fresh, s.firstCame = since(first, s.cutAt), since(fresh, s.cutAt), since(firstCame, s.cutAt)
	s.interrupt, s.back = since(freshCame, lastOld), since(back, s.end)
}

// studyRuns are how many runs there are of each case, which differ in their phases and in what wires draw at random.
const studyRuns = 8

// studySweep is the runs of a case, in parallel.
func studySweep(c studyCase, runs int) (all []studySeen, err error) {
	all = make([]studySeen, runs)
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range all {
		group.Go(func() (err error) {
			one := c
			one.seed = byte(i + 1)
			all[i], err = one.run()
			return err
		})
	}
	return all, group.Wait()
}

// inSeconds are the times of runs that came to it.
func inSeconds(all []studySeen, of func(*studySeen) time.Duration) (v report.Value) {
	for i := range all {
		if d := of(&all[i]); d >= 0 {
			v.Samples = append(v.Samples, d.Seconds())
		}
	}
	return v
}

// depends says whether values depend on what two rows of a table differ in: by more than two standard errors of the
// difference of their averages, and by more than a fiftieth.
func depends(base, other []float64) string {
	if len(base) < 2 || len(other) < 2 {
		return "too few runs to say"
	}
	from := mean(base)
	off := mean(other) - from
	bound := 2 * math.Sqrt(variance(base)/float64(len(base))+variance(other)/float64(len(other)))
	if math.Abs(off) > bound && math.Abs(off) > from/50 {
		return fmt.Sprintf("yes: %+.2f s", off)
	}
	return fmt.Sprintf("not seen: %+.2f s, to within %.2f", off, bound)
}

func mean(v []float64) (sum float64) {
	for _, x := range v {
		sum += x / float64(len(v))
	}
	return sum
}

// variance is the unbiased one.
func variance(v []float64) (sum float64) {
	m := mean(v)
	for _, x := range v {
		sum += (x - m) * (x - m) / float64(len(v)-1)
	}
	return sum
}

// studyWires are the study's WLAN and its UMTS, with its jitter or at its mean delay.
func studyWires(jitter bool) [2]lab.WireConfig {
	if jitter {
		return [2]lab.WireConfig{lab.WLAN(), lab.UMTS()}
	}
	return [2]lab.WireConfig{lab.WLAN(), umtsWithoutJitter()}
}

// studyParameters are the study's: RTO.Min and RTO.Max alike, RFC 9260 alone.
func studyParameters(rto time.Duration, most int, heartbeat time.Duration) assoc.Parameters {
	par := assoc.Defaults()
	par.RTOInitial, par.RTOMin, par.RTOMax = rto, rto, rto
	par.PathMaxRetrans, par.PotentiallyFailedMaxRetrans, par.AssociationMaxRetrans = most, most, 100
	par.HeartbeatInterval = heartbeat
	par.Strict()
	return par
}

// lawWithBeats is when a path is inactive at the earliest if heartbeats are sent, and counted, beside data whose RTO does not
// grow: the first leaves HB.Interval and half an RTO after data (RFC 9260 section 8.3), and is missed an RTO later.
func lawWithBeats(rto, beat time.Duration, retrans int) (at time.Duration) {
	if beat+rto/2 >= rto { // data is sent again before
		return lawDown(rto, rto, retrans)
	}
	data, missed := rto, beat+3*rto/2
	for range retrans + 1 {
		if at = min(data, missed); at == data {
			data += rto
		} else {
			missed += rto
		}
	}
	return at
}

// lawDown is when a path is inactive by RFC 9260 section 8.2: Path.Max.Retrans + 1 timeouts, each twice the one before up
// to RTO.Max.
func lawDown(rto, most time.Duration, retrans int) (sum time.Duration) {
	for range retrans + 1 {
		sum += min(rto, most)
		rto *= 2
	}
	return sum
}
