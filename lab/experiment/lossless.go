// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of the search for the rate that is carried without loss.
const (
	losslessLoss = 0.001 // of the packets
	// A hypervisor takes a processor away for milliseconds at a time, and whatever arrives
	// then is lost beyond what queues hold: most slices are to have no such moment.
	losslessSlice  = 3 * time.Millisecond
	losslessClimb  = 20    // slices in which a way's rate is found
	losslessRounds = 20    // slices around it, which count
	losslessFirst  = 500e3 // packets per second
	losslessTop    = 4e6
	losslessLeast  = 0.03 // the least step, as a share of the rate
)

// losslessTitle heads tables of such rates.
var losslessTitle = fmt.Sprintf("thousand packets per second without loss (at most %.1f %%): median (lowest to highest slice)", 100*losslessLoss)

// losslessNote explains how they are found.
var losslessNote = fmt.Sprintf("Each way's rate rises after a slice of %v without loss and falls after any other, by steps that shrink to 3 %%, so that half of its last slices are without loss. What the generator sends comes in groups of eight.", losslessSlice)

// climb is the search of one way: the rate rises until something is lost, falls until
// nothing is, and so stays where half of the slices lose.
type climb struct {
	rate, step float64
	rose       bool
}

func newClimb() *climb { return &climb{rate: losslessFirst, step: 1, rose: true} }

// learn takes a slice at the present rate.
func (c *climb) learn(lossless bool) {
	if lossless != c.rose {
		c.step = max(c.step/2, losslessLeast)
		c.rose = lossless
	}
	if lossless {
		c.rate = min(c.rate*(1+c.step), losslessTop)
	} else {
		c.rate /= 1 + c.step
	}
}

// lossless finds the rate that each way carries without loss, all in turn. Passed are
// the rates of the last slices.
func lossless[P any](ctx context.Context, c *throughputCase, paths []P, of func(P) way, slice func(P, load.Pace) (rate, error)) error {
	climbs := make([]*climb, len(paths))
	for i := range climbs {
		climbs[i] = newClimb()
	}
	for round := range losslessClimb + losslessRounds {
		for i := range paths {
			if err := ctx.Err(); err != nil {
				return err
			}
			at := (i + round) % len(paths)
			p, climb := paths[at], climbs[at]
			r, err := slice(p, load.Pace{Rate: climb.rate, Time: losslessSlice})
			if err != nil {
				return fmt.Errorf("%s: %w", of(p).title, err)
			}
			climb.learn(r.passed >= (1-losslessLoss)*r.offered)
			if round >= losslessClimb {
				r.passed = math.Min(r.passed, r.offered) // what was on its way before is in one of the two
				c.add(of(p), r)
			}
		}
	}
	return nil
}

// losslessReport collects the cases of an experiment.
type losslessReport struct {
	ways        []way
	bare        way
	rates, cpus report.Table
	figures     []report.Figure
}

func newLosslessReport(ways []way, bare way) *losslessReport {
	l := &losslessReport{ways: ways, bare: bare, cpus: cpuTable("IPv6 packet", ways)}
	l.rates = report.Table{Title: losslessTitle, Columns: l.cpus.Columns, Notes: []string{losslessNote}}
	l.cpus.Title = "without loss: " + l.cpus.Title
	return l
}

// add adds a case.
func (l *losslessReport) add(c *throughputCase) {
	row := []string{c.label()}
	for _, w := range l.ways {
		row = append(row, thousands(c.passed[w]))
	}
	l.rates.Rows = append(l.rates.Rows, row)
	l.rates.Notes = append(l.rates.Notes, c.rigNotes(l.bare)...)
	l.cpus.Rows = append(l.cpus.Rows, c.cpuRow(c.label(), l.ways))
	for _, w := range []way{wayTC, wayXDP, wayUser} {
		l.figures = append(l.figures, report.Figure{
			Name: fmt.Sprintf("%s: %s / forwarding, packets per second without loss", c.label(), w.title), Decimals: 2,
			Isthmus: report.Measured(pairs(c.passed[wayKernel], c.passed[w])...),
		})
	}
}

// to adds all of it to the report.
func (l *losslessReport) to(rep *report.Report) {
	rep.Tables = append(rep.Tables, l.rates, l.cpus)
	rep.Figures = append(rep.Figures, l.figures...)
}
