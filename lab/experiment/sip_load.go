// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/lab"
)

// Choices of sip-load.
const (
	sipLoadName = "sip-load"
	sipLoadRuns = 3
)

// sipLoad is the experiment sip-load.
var sipLoad = lab.Experiment{
	Name:      sipLoadName,
	Summary:   "calls and registrations a second through the SIP server, beside Kamailio, and a hundred and a thousand calls of the user agent that move at once",
	NeedsRoot: true,
	Needs:     []string{"sipp", "kamailio"},
	Run:       runSIPLoad,
}

// sipLoadForm is how much load there is.
type sipLoadForm struct {
	runs      int
	calls     int           // at sipSlow
	steps     []int         // calls a second that are tried, until one fails
	stepTime  time.Duration // of each
	registers int           // in a run
	users     int           // who register
	flocks    []sipFlock    // calls that move at once
}

// sipSlow is the rate, in calls a second, at which none may fail.
const sipSlow = 100

var (
	longSIPLoad = sipLoadForm{
		calls: 1000, steps: []int{200, 500, 1000, 1500, 2000, 3000, 4000}, stepTime: 2 * time.Second,
		registers: 10_000, users: 5000, flocks: []sipFlock{{size: 100}, {size: 100, loud: true}, {size: 1000}},
	}
	shortSIPLoad = sipLoadForm{calls: 50, steps: []int{500}, stepTime: 200 * time.Millisecond, registers: 500, users: 100, flocks: []sipFlock{{size: 10, loud: true}}}
)

// runSIPLoad is the experiment.
func runSIPLoad(ctx context.Context, e *lab.Env) error {
	form := longSIPLoad
	if e.Runs > 0 && e.Runs < longRun {
		form = shortSIPLoad
	}
	form.runs = cmp.Or(e.Runs, sipLoadRuns)
	flocks := slices.Clone(form.flocks)
	for i := range flocks {
		if err := measureFlock(ctx, e, &flocks[i], form.runs); err != nil {
			return fmt.Errorf("%v that move: %w", &flocks[i], err)
		}
	}
	results := map[maker]*sipLoads{isthmus: {}, kamailio: {}}
	for run := range form.runs {
		for _, who := range []maker{isthmus, kamailio} {
			e.Step("%s, run %d of %d", who.title(), run+1, form.runs)
			if err := results[who].measure(ctx, e, who, form); err != nil {
				return fmt.Errorf("%s: %w", who.title(), err)
			}
		}
	}
	return finish(e, sipLoadReport(form, results, flocks))
}

// sipLoads are what a server has done, run by run.
type sipLoads struct {
	failed    []float64 // calls, at sipSlow
	held      []float64 // the highest rate at which none failed, calls a second
	callsCPU  []float64 // calls in a second of the server's processor
	registers []float64 // registrations a second of the clock
	perCPU    []float64 // and in one of the server's processor
}

// measure measures one run with a server of its own.
func (s *sipLoads) measure(ctx context.Context, e *lab.Env, who maker, form sipLoadForm) (err error) {
	r, err := newSIPRig(ctx, e, who, form.users)
	if err != nil {
		return err
	}
	defer closing(&err, r.close)
	if err := s.call(ctx, r, form); err != nil {
		return err
	}
	took, err := r.registrations(ctx, form.registers)
	if err != nil {
		return err
	}
	registers, perCPU := float64(form.registers)/took.clock.Seconds(), float64(form.registers)/took.server.Seconds()
	s.registers, s.perCPU = append(s.registers, registers), append(s.perCPU, perCPU)
	e.Step("  %.0f registrations a second, %.0f in one of the server's processor", registers, perCPU)
	return nil
}

// call has calls made at one rate after the other, until some fail or fall behind.
func (s *sipLoads) call(ctx context.Context, r *sipRig, form sipLoadForm) error {
	if err := r.registerCallee(ctx); err != nil {
		return err
	}
	held, carried, server := 0, 0, time.Duration(0)
	for _, rate := range append([]int{sipSlow}, form.steps...) {
		calls := int(float64(rate) * form.stepTime.Seconds())
		if rate == sipSlow {
			calls = form.calls
		}
		failed, took, why, err := r.calls(ctx, rate, calls)
		if err != nil {
			return err
		}
		r.env.Step("  %d calls a second: %d of %d failed, in %.1f s", rate, failed, calls, took.clock.Seconds())
		if failed > 0 {
			r.env.Step("    %s", why)
		}
		if rate == sipSlow {
			s.failed = append(s.failed, float64(failed))
		}
		due := time.Duration(float64(calls) / float64(rate) * float64(time.Second))
		if failed > 0 || took.clock > due*11/10+sipLate {
			break
		}
		held, carried, server = rate, carried+calls, server+took.server
	}
	s.held = append(s.held, float64(held))
	if server > 0 {
		s.callsCPU = append(s.callsCPU, float64(carried)/server.Seconds())
	}
	return nil
}

// sipLate is how late the last call of a rate that holds may be: a message that was lost is repeated
// after half a second, and sipp starts and ends.
const sipLate = time.Second
