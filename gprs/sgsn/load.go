// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// LoadLink is the link of the contexts of a load, behind which no terminal is.
const LoadLink = 1 << 30

// loadPace is how often a load of a certain rate looks whether more is due.
const loadPace = time.Millisecond

// LoadSettings say what load a GGSN gets.
type LoadSettings struct {
	// Template is what each context asks for; the first has its IMSI, each other the next one.
	Template Attachment
	// Contexts are created, then deleted.
	Contexts int
	// Rate is how many are asked for in a second; 0: as many as are answered.
	Rate int
	// Window is how many requests wait for their answers at most.
	Window int
	// Hold is how long all contexts stay before they are deleted.
	Hold time.Duration
}

// Load creates contexts, and deletes them when all are there, and measures how long the GGSN
// takes.
type Load struct {
	set   LoadSettings
	first uint64 // the number that the first IMSI is
	width int    // its digits

	deleting bool
	began    time.Time // of this phase; before it nothing is sent
	started  int       // in this phase
	waiting  int
	keys     []gtp.TID // that are there
	phases   [2]LoadPhase
	took     [2][]time.Duration
	failed   error // the first failure
	pace     timer
	done     func(LoadReport)
}

// LoadReport says what became of a load.
type LoadReport struct {
	Creates LoadPhase `json:"creates"`
	Deletes LoadPhase `json:"deletes"`
	// Why is what the first request failed by; empty: none has.
	Why string `json:"why,omitempty"`
}

// LoadPhase are the requests of one kind.
type LoadPhase struct {
	Answered int `json:"answered"` // with what was asked for
	Failed   int `json:"failed"`
	// Seconds is how long all took, and PerSecond how many of Answered that is in one.
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
	// Percentiles of the time from request to answer.
	P50 time.Duration `json:"p50"`
	P90 time.Duration `json:"p90"`
	P99 time.Duration `json:"p99"`
	Max time.Duration `json:"max"`
}

// StartLoad begins a load; done is called at its end, after the return. One goes on at a time. Where no context can be
// asked for, the error says why.
func (e *Engine) StartLoad(s LoadSettings, done func(LoadReport), now time.Time, out *Output) error {
	digits := s.Template.IMSI.String()
	first, err := strconv.ParseUint(digits, 10, 64)
	switch {
	case err != nil:
		return fmt.Errorf("the first IMSI of a load is digits, not %q", digits)
	case e.load != nil:
		return errors.New("a load goes on: wait for its end")
	case s.Contexts < 1 || s.Window < 1 || s.Hold < 0:
		return errors.New("a load needs a context, a place for a request, and a time that is not negative")
	case len(e.contexts)+s.Contexts > e.set.MaxContexts:
		return ErrFull
	}
	s.Template.Link, s.Template.NSAPI = LoadLink, cmp.Or(s.Template.NSAPI, firstNSAPI)
	if err := e.possible(&s.Template); err != nil { // at a rate, the second one would be tried only later
		return err
	}
	l := &Load{set: s, first: first, width: len(digits), began: now, done: func(LoadReport) {}}
	l.pace.fire = func(now time.Time, out *Output) { l.fill(e, now, out) }
	e.load = l
	if l.fill(e, now, out); e.load != l {
		return l.failed
	}
	l.done = done
	return nil
}

// take counts an event of the load. It reports whether it was one, also of a load that is over.
func (l *Load) take(about *Event) bool {
	if l == nil || about.Link != LoadLink {
		return about.Link == LoadLink
	}
	switch about.Kind {
	case Attached:
		l.keys = append(l.keys, about.Key)
		l.count(0, nil, about.Took)
	case Refused:
		l.count(0, about.failure(), about.Took)
	case Ended:
		switch {
		case !about.Closing:
		case about.Reason == ReasonDetached && about.Cause.Accepted():
			l.count(1, nil, about.Took)
		default:
			l.count(1, about.failure(), about.Took)
		}
	}
	return true
}

// failure is what the event says of a request that has come to nothing.
func (e *Event) failure() error {
	if e.Cause == 0 {
		return errors.New(e.Reason.String())
	}
	return fmt.Errorf("%s (%s, cause %d)", e.Reason, e.Cause, e.Cause)
}

// count notes what became of a request.
func (l *Load) count(phase int, failed error, took time.Duration) {
	l.waiting--
	if failed != nil {
		l.phases[phase].Failed++
		if l.failed == nil {
			l.failed = failed
		}
		return
	}
	l.phases[phase].Answered++
	l.took[phase] = append(l.took[phase], took)
}

// fill sends as many requests as are due and have room.
func (l *Load) fill(e *Engine, now time.Time, out *Output) {
	if l == nil || e.load != l || now.Before(l.began) {
		return
	}
	for l.started < l.total() && l.waiting < l.set.Window && l.due(now) {
		l.started++
		l.waiting++
		if err := l.next(e, now, out); err != nil {
			l.count(l.phase(), err, 0)
		}
	}
	switch {
	case l.started < l.total():
		if l.set.Rate > 0 && l.waiting < l.set.Window {
			e.timers.Set(&l.pace, now.Add(loadPace))
		}
	case l.waiting == 0:
		l.turn(e, now, out)
	}
}

// due reports whether the rate allows one more.
func (l *Load) due(now time.Time) bool {
	return l.set.Rate == 0 || l.started < 1+int(now.Sub(l.began).Seconds()*float64(l.set.Rate))
}

func (l *Load) phase() int {
	if l.deleting {
		return 1
	}
	return 0
}

// total is how many requests the phase has.
func (l *Load) total() int {
	if l.deleting {
		return len(l.keys)
	}
	return l.set.Contexts
}

// next sends a request.
func (l *Load) next(e *Engine, now time.Time, out *Output) error {
	if l.deleting {
		return e.Detach(l.keys[l.started-1], true, now, out)
	}
	a := l.set.Template
	var err error
	if a.IMSI, err = gtp.ParseIMSI(fmt.Sprintf("%0*d", l.width, l.first+uint64(l.started-1))); err != nil {
		return err
	}
	_, err = e.Attach(&a, now, out)
	return err
}

// turn ends a phase: deletes follow creates, after a while, and the report deletes.
func (l *Load) turn(e *Engine, now time.Time, out *Output) {
	l.phases[l.phase()].measure(l.took[l.phase()], now.Sub(l.began))
	e.timers.Stop(&l.pace)
	if !l.deleting && len(l.keys) > 0 {
		l.deleting, l.began, l.started = true, now.Add(l.set.Hold), 0
		e.timers.Set(&l.pace, l.began)
		l.fill(e, now, out)
		return
	}
	l.finish(e)
}

// stop ends a load before its time.
func (l *Load) stop(e *Engine, why error) {
	if l == nil {
		return
	}
	e.timers.Stop(&l.pace)
	l.failed = why
	l.finish(e)
}

// finish reports.
func (l *Load) finish(e *Engine) {
	e.load = nil
	report := LoadReport{Creates: l.phases[0], Deletes: l.phases[1]}
	if l.failed != nil {
		report.Why = l.failed.Error()
	}
	l.done(report)
}

func (p *LoadPhase) measure(took []time.Duration, all time.Duration) {
	p.Seconds = all.Seconds()
	if len(took) == 0 {
		return
	}
	p.PerSecond = float64(len(took)) / max(all.Seconds(), 1e-9)
	slices.Sort(took)
	at := func(percent int) time.Duration { return took[(len(took)-1)*percent/100] }
	p.P50, p.P90, p.P99, p.Max = at(50), at(90), at(99), took[len(took)-1]
}
