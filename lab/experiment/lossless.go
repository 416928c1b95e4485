// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of the search for the rate that is carried without loss.
const (
	losslessLoss = 0.001 // of the packets
	// A hypervisor takes a processor away for milliseconds at a time, and whatever arrives
	// then is lost beyond what queues hold: most slices are to have no such moment. Queues of
	// programs in user space hold more, and who works on them must be waked first.
	losslessSlice = 3 * time.Millisecond
	losslessUser  = 20 * time.Millisecond
	losslessLate  = 500 * time.Microsecond // that packets may be under way: what a queue takes up is not carried

	losslessClimb  = 20    // slices in which a way's rate is found
	losslessRounds = 20    // slices around it, which count
	losslessFirst  = 500e3 // packets per second
	losslessTop    = 4e6
	losslessLeast  = 0.03 // the least step, as a share of the rate
)

// losslessTitle heads tables of such rates.
var losslessTitle = fmt.Sprintf("thousand packets per second without loss (at most %.1f %%): median (lowest to highest slice)", 100*losslessLoss)

// losslessNote explains how they are found.
var losslessNote = fmt.Sprintf("Each way's rate rises after a slice of %v, of programs in user space %v, without loss and falls after any other, by steps that shrink to 3 %%, so that half of its last slices are without loss. Packets of no more than %v may be under way when the last one is sent: what a queue takes up is not carried. What the generator sends comes in groups of eight.", losslessSlice, losslessUser, losslessLate)

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
func lossless(ctx context.Context, c *rateCase, ways []way, slice func(at int, pace load.Pace) (rate, error)) error {
	climbs := make([]*climb, len(ways))
	for i := range climbs {
		climbs[i] = newClimb()
	}
	return inTurn(ctx, losslessClimb+losslessRounds, len(ways), func(round, at int) error {
		pace := load.Pace{Rate: climbs[at].rate, Time: losslessSlice}
		if ways[at].userSpace() {
			pace.Time = losslessUser
		}
		r, err := slice(at, pace)
		if err != nil {
			return err
		}
		queued := (r.delivered - r.passed) * float64(pace.Time)
		climbs[at].learn(r.delivered >= (1-losslessLoss)*r.offered && queued <= r.delivered*float64(losslessLate))
		if round >= losslessClimb {
			r.passed = math.Min(r.delivered, r.offered) // what was on its way before is in one of the two
			c.add(ways[at], r)
		}
		return nil
	})
}

// withoutLoss adds the second view of a rig's ways, the first of which is a cable: not what
// passes of a load that none can carry, but the load that each carries.
func (r *rig) withoutLoss(ctx context.Context, e *lab.Env, rep *report.Report, directions []direction, sizes ...int) error {
	ways := r.plan.Ways
	cpus := cpuTable("IPv6 packet", ways)
	cpus.Title = "without loss: " + cpus.Title
	rates := report.Table{Title: losslessTitle, Columns: cpus.Columns, Notes: []string{losslessNote}}
	for _, d := range directions {
		for _, size := range sizes {
			c := newRateCase(d, size)
			e.Step("%s: searching the rate that each way carries", c.label())
			err := lossless(ctx, c, ways, func(at int, pace load.Pace) (rate, error) { return r.slice(r.paths[at], d, size, pace) })
			if err != nil {
				return err
			}
			rates.Rows, cpus.Rows = append(rates.Rows, c.passedRow(ways, c.label())), append(cpus.Rows, c.cpuRow(c.label(), ways))
			rates.Notes = append(rates.Notes, c.rigNotes(ways[0])...)
			for _, w := range ways {
				if !w.ours() {
					continue
				}
				rep.Figures = append(rep.Figures, report.Figure{
					Name: fmt.Sprintf("%s: %s / forwarding, packets per second without loss", c.label(), w.title), Decimals: 2,
					Isthmus: report.Measured(pairs(c.passed[wayKernel], c.passed[w])...),
				})
			}
		}
	}
	rep.Tables = append(rep.Tables, rates, cpus)
	return nil
}
