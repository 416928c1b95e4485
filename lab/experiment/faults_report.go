// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// drawFaults draws the world of a campaign for one way.
type drawFaults func(context.Context, *lab.Env, way) (*faultsWorld, error)

// faultsExperiment is the experiment of the campaigns of a subject.
func faultsExperiment(name, subject, title string, ways []way, draw drawFaults) lab.Experiment {
	return lab.Experiment{
		Name: name, NeedsRoot: true,
		Summary: subject + " is killed, restarted, reloaded and unplugged: flows lost, octets wrong, what is left behind",
		Run: func(ctx context.Context, e *lab.Env) error {
			form, err := faultsFormOf(e, ways)
			if err != nil {
				return err
			}
			all, err := campaigns(ctx, e, form, draw)
			if err != nil {
				return err
			}
			return finish(e, faultsReport(name, title, form, all))
		},
	}
}

// campaigns runs one campaign for each way.
func campaigns(ctx context.Context, e *lab.Env, form faultsForm, draw drawFaults) ([]*campaign, error) {
	e.Step("seed %d: the order of faults; repeat it by --seed %d", form.seed, form.seed)
	all := make([]*campaign, len(form.ways))
	group, ctx := errgroup.WithContext(ctx)
	if !form.together {
		group.SetLimit(1)
	}
	for i, w := range form.ways {
		all[i] = &campaign{env: e, way: w, form: form, random: rand.New(rand.NewPCG(form.seed, uint64(i)))}
		group.Go(func() (err error) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := all[i].runIn(ctx, draw); err != nil {
				return fmt.Errorf("%s: %w", w.title, err)
			}
			return nil
		})
	}
	return all, group.Wait()
}

// runIn draws the world, and goes through the campaign there.
func (c *campaign) runIn(ctx context.Context, draw drawFaults) (err error) {
	if c.faultsWorld, err = draw(ctx, c.env, c.way); err != nil {
		return err
	}
	defer func() {
		if e := c.close(); err == nil {
			err = e
		}
	}()
	return c.run(ctx)
}

// load is what goes on in the world.
func (c *campaign) load() string {
	var words []string
	if len(c.long) > 0 {
		words = append(words, fmt.Sprintf("%d TCP and %d UDP flows", c.form.streams, c.form.flows))
	}
	if len(c.shorts) > 0 {
		words = append(words, fmt.Sprintf("%.0f short flows a second", c.form.shorts))
	}
	if c.begin != nil {
		words = append(words, fmt.Sprintf("%d contexts at a time, which come and go", c.form.contexts))
	}
	return strings.Join(words, ", ")
}

// campaignOutcome is what a campaign has come to.
type campaignOutcome struct {
	lost      []string       // flows
	wrong     uint64         // octets, and datagrams
	silence   moment         // the longest
	datagrams map[string]int // lost, by what had happened last
	began     int            // short flows
	held      int            // that did not begin, since too many were open
	failed    int
	why       []string
}

// outcome counts, when all is over.
func (c *campaign) outcome() *campaignOutcome {
	o := &campaignOutcome{datagrams: map[string]int{}}
	for _, x := range c.streams.list {
		if err := x.fault(); err != nil {
			o.lost = append(o.lost, err.Error())
		}
		o.wrong += x.wrong()
		o.silence = longer(o.silence, x.silence())
	}
	for _, f := range c.datagrams {
		if err := f.fault(c.calmed); err != nil {
			o.lost = append(o.lost, err.Error())
		}
		o.wrong += uint64(f.wrong)
		o.silence = longer(o.silence, silence(f.packets))
		for _, p := range f.packets {
			if p.back.IsZero() {
				o.datagrams[c.lastBefore(p.sent)]++
			}
		}
	}
	for _, s := range c.short {
		n, why := s.failures()
		o.began, o.held, o.failed, o.why = o.began+s.begun, o.held+s.held, o.failed+n, append(o.why, why...)
	}
	return o
}

// noFault is what had happened before the first fault.
const noFault = "none yet"

// lastBefore is the fault that had happened last at a time.
func (c *campaign) lastBefore(at time.Time) string {
	name := noFault
	for _, x := range c.happened {
		if x.began.After(at) {
			break
		}
		name = x.name
	}
	return name
}

// within are the fault before a silence and those that happened in it, with when they began.
func (c *campaign) within(m moment) string {
	var names []string
	for i, x := range c.happened {
		if x.began.Before(m.ended) && (x.ended.After(m.began) || i+1 < len(c.happened) && c.happened[i+1].began.After(m.began)) {
			names = append(names, fmt.Sprintf("%s (%+.1f s)", x.name, x.began.Sub(m.began).Seconds()))
		}
	}
	return strings.Join(names, "; ")
}

// faultsReport makes the tables.
func faultsReport(name, title string, form faultsForm, all []*campaign) *report.Report {
	rep := &report.Report{Experiment: name, Title: title}
	rep.Fact("seed", "%d", form.seed)
	rep.Fact("load", "%s", all[0].load())
	rep.Fact("faults", "for %v on each way, %v to %v apart", form.time, form.shortest, form.longest)
	table := report.Table{Title: "datagrams of long flows lost by fault, of how many faults", Columns: []string{"fault"}}
	rows := map[string][]string{}
	var order []string
	for i, c := range all {
		table.Columns = append(table.Columns, c.way.title)
		o := c.outcome()
		c.figures(rep, o)
		for _, f := range append([]fault{{name: noFault}}, c.faults...) {
			if rows[f.name] == nil {
				order = append(order, f.name)
				rows[f.name] = make([]string, len(all))
			}
			lost := "-" // without long flows
			if len(c.long) > 0 {
				lost = fmt.Sprint(o.datagrams[f.name])
			}
			rows[f.name][i] = fmt.Sprintf("%s of %d", lost, c.times(f.name))
		}
	}
	for _, fault := range order {
		table.Rows = append(table.Rows, append([]string{fault}, rows[fault]...))
	}
	rep.Tables = append(rep.Tables, table)
	return rep
}

// times is how often a fault has happened.
func (c *campaign) times(name string) (n int) {
	for _, x := range c.happened {
		if x.name == name {
			n++
		}
	}
	return n
}

// shownFaults is how many sentences about one thing a report has.
const shownFaults = 5

// figures adds what the campaign has come to.
func (c *campaign) figures(rep *report.Report, o *campaignOutcome) {
	add := func(figure, unit string, decimals int, value float64) {
		rep.Figures = append(rep.Figures, report.Figure{
			Name: c.way.title + ": " + figure, Unit: unit, Decimals: decimals,
			Isthmus: report.Measured(value), Must: must(rep.Experiment, figure),
		})
	}
	if len(c.long) > 0 {
		add(figureFlowsLost, "", 0, float64(len(o.lost)))
		add(figureOctetsWrong, "", 0, float64(o.wrong))
		add(figureSilence, "s", 1, o.silence.length().Seconds())
	}
	add(figureStartsFailed, "", 0, float64(c.failedStarts))
	add(figureLeft, "", 0, float64(len(c.left)))
	add(figureFilesMore, "", 0, float64(c.last.files-c.first.files))
	add(figureRoutinesMore, "", 0, float64(c.last.routines-c.first.routines))
	add(figureMemoryGrown, "", 2, float64(c.last.memory)/float64(c.first.memory))
	happened := fmt.Sprintf("%d faults", len(c.happened))
	if len(c.short) > 0 {
		happened += fmt.Sprintf("; %d short flows, %d held back while too many were open, %d failed %v", o.began, o.held, o.failed, o.why)
		add(figureShortFailed, "%", 3, 100*float64(o.failed)/float64(max(1, o.began)))
	}
	for what, list := range map[string][]string{"a flow was lost": o.lost, "left behind": c.left, "": c.wrong} {
		for i, text := range list {
			if i == shownFaults {
				rep.Fault("%s: %s (%d in all)", c.way.title, what, len(list))
				break
			}
			rep.Fault("%s: %s", c.way.title, strings.TrimPrefix(what+": "+text, ": "))
		}
	}
	if o.wrong > 0 {
		rep.Fault("%s: %d octets or datagrams arrived otherwise than they were sent", c.way.title, o.wrong)
	}
	if len(o.lost) > 0 {
		rep.Notes = append(rep.Notes, c.subject.told()...)
	}
	rep.Notes = append(rep.Notes,
		fmt.Sprintf("%s: %s.", c.way.title, happened),
		fmt.Sprintf("%s: the first process held %v, the last one %v.", c.way.title, c.first, c.last))
	if o.silence.length() > 0 {
		rep.Notes = append(rep.Notes, fmt.Sprintf("%s: the longest silence began at %s. What happened until its end: %s.",
			c.way.title, o.silence.began.Format("15:04:05.000"), c.within(o.silence)))
	}
	if c.notes != nil {
		for _, text := range c.notes() {
			rep.Notes = append(rep.Notes, c.way.title+": "+text)
		}
	}
}
