// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/gprs/sgsn"
	"github.com/isthmus-net/isthmus/gprs/sgsn/sgsnrole"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of the loads of gprs-attach.
const (
	loadRuns   = 5
	loadWindow = 500
	loadLook   = 20 * time.Millisecond // how often a load is looked after
)

// loadPool is where so many contexts have their addresses.
var loadPool = netip.MustParsePrefix("10.64.0.0/12")

// orderLoad has the SGSN create contexts and delete them, and waits for the end.
func (i instance) orderLoad(ctx context.Context, a sgsnrole.Loaded) (r sgsn.LoadReport, err error) {
	var started sgsnrole.Started
	if err := i.order(ctx, "sgsn", "load", a, &started); err != nil {
		return r, err
	}
	for {
		var l sgsnrole.Load
		if err := i.ask(ctx, "sgsn", "load", struct{}{}, &l); err != nil {
			return r, err
		}
		if !l.Going && l.Report != nil {
			return *l.Report, nil
		}
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-time.After(loadLook):
		}
	}
}

// loadForm is how much load there is.
type loadForm struct {
	few, many int           // contexts at once: osmo-ggsn has 1,024
	enough    time.Duration // of the GGSN's processor in one run
}

var (
	longLoad  = loadForm{few: 1000, many: 100_000, enough: 200 * time.Millisecond}
	shortLoad = loadForm{few: 100, many: 1000, enough: 10 * time.Millisecond} // one tick of the kernel's
)

// attachRates measures how many contexts GGSNs create and delete, as fast as an SGSN is answered.
func attachRates(ctx context.Context, e *lab.Env, rep *report.Report) error {
	runs, form := cmp.Or(e.Runs, loadRuns), longLoad
	if e.Runs > 0 && runs < longRun {
		form = shortLoad
	}
	for _, of := range []struct {
		contexts int
		by       []maker
	}{{form.few, []maker{osmocom, isthmus}}, {form.many, []maker{isthmus}}} {
		perTime := report.Figure{Name: fmt.Sprintf("%d at once: %s", of.contexts, figureContexts), Unit: "/s", Must: must(attachName, figureContexts)}
		creates := report.Figure{Name: fmt.Sprintf("%d at once: %s", of.contexts, figureCreates), Unit: "/s"}
		deletes := report.Figure{Name: fmt.Sprintf("%d at once: %s", of.contexts, figureDeletes), Unit: "/s"}
		for _, who := range of.by {
			e.Step("%s GGSN: contexts created and deleted, %d at once", who.title(), of.contexts)
			all, err := loadsOf(ctx, e, who, of.contexts, form.enough, runs)
			if err != nil {
				return fmt.Errorf("%s GGSN, %d contexts: %w", who.title(), of.contexts, err)
			}
			for i, f := range []*report.Figure{&perTime, &creates, &deletes} {
				into := &f.Isthmus
				if who != isthmus {
					into = &f.Peer
				}
				*into = report.Measured(all[i]...)
			}
		}
		rep.Figures = append(rep.Figures, perTime, creates, deletes)
	}
	return nil
}

// loadsOf are the rates of one GGSN: contexts in a second of its processor's time, and creates
// and deletes in one of the clock.
func loadsOf(ctx context.Context, e *lab.Env, who maker, contexts int, enough time.Duration, runs int) (rates [3][]float64, err error) {
	n, err := drawCore(ctx, e, "core", core4)
	if err != nil {
		return rates, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if who == isthmus {
		n.pool4, n.more = loadPool, "request_rate = 1000000\n"
	}
	if err := n.startGGSN(ctx, who); err != nil {
		return rates, err
	}
	ggsn := n.daemons.run[len(n.daemons.run)-1].PID()
	i := n.daemons.isthmus(n.sgsn, "sgsn")
	p, err := n.daemons.keep(i.run(ctx, fmt.Sprintf("[[sgsn]]\nlocal = [%q]\nmax_contexts = %d\nt3_response = \"1s\"\n", n.at.sgsn, contexts)))
	if err != nil {
		return rates, err
	}
	if err := running(ctx, p); err != nil {
		return rates, err
	}
	for run := range runs + 1 {
		var took time.Duration
		var created, creating, deleting float64
		for took < enough {
			before, err := processTime(ggsn)
			if err != nil {
				return rates, err
			}
			r, err := i.orderLoad(ctx, sgsnrole.Loaded{
				GGSN: n.at.ggsn.String(), APN: coreAPN(false), Type: "v4", IMSI: "240010100000000", GTP: 1, Contexts: contexts, Window: loadWindow,
			})
			if err == nil && (r.Creates.Answered != contexts || r.Deletes.Answered != contexts) {
				err = fmt.Errorf("%d were created, and %d deleted", r.Creates.Answered, r.Deletes.Answered)
			}
			if err != nil {
				return rates, err
			}
			after, err := processTime(ggsn)
			if err != nil {
				return rates, err
			}
			took, created = took+after-before, created+float64(contexts)
			creating, deleting = creating+r.Creates.Seconds, deleting+r.Deletes.Seconds
		}
		if run == 0 {
			continue // it takes the memory
		}
		for i, seconds := range []float64{took.Seconds(), creating, deleting} {
			rates[i] = append(rates[i], created/seconds)
		}
	}
	return rates, nil
}

// processTime is the processor's time that a process has had, with those that it has started.
func processTime(pid int) (sum time.Duration, err error) {
	const tick = 10 * time.Millisecond // USER_HZ is 100 on all that Linux runs on
	for _, one := range family(pid) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", one))
		if err != nil {
			return 0, err
		}
		_, fields, _ := strings.Cut(string(text), ") ") // the name may have blanks
		var user, system int64
		list := strings.Fields(fields)
		if len(list) < 13 {
			return 0, fmt.Errorf("process %d has %d fields", one, len(list))
		}
		if _, err := fmt.Sscan(list[11]+" "+list[12], &user, &system); err != nil {
			return 0, err
		}
		sum += time.Duration(user+system) * tick
	}
	return sum, nil
}
