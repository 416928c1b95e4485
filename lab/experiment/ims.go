// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of ims.
const (
	imsName  = "ims"
	imsCalls = 10
	// imsTrip is how far the IMS is from the GGSN, there and back: no multiple of the time between packets.
	imsTrip = 25 * time.Millisecond
)

// ims is the experiment: figure 1 of the paper of 2006 on moves over Teredo, by IPv6 alone.
var ims = lab.Experiment{
	Name:      imsName,
	Summary:   "the tour: two UEs with IPv6 alone register by AKA through P-, I- and S-CSCF, call each other, and one gets another address in the middle of the call",
	NeedsRoot: true,
	Run:       runIMS,
}

func runIMS(ctx context.Context, e *lab.Env) (err error) {
	e.Step("IMS: two UEs of a mobile core that has IPv6 alone register by AKA and call each other, and one moves.")
	g, err := newIMS(ctx, e)
	if err != nil {
		return err
	}
	// Last, since with Env.Keep it waits until the person has seen enough.
	defer func() { err = errors.Join(err, g.close()) }()
	g.lead(ctx)
	return finish(e, g.report())
}

// lead takes the steps.
func (g *imsGuide) lead(ctx context.Context) {
	calls := cmp.Or(g.env.Runs, imsCalls)
	steps := []walkStep{
		{"P-CSCF, I-CSCF and two S-CSCFs start, each 'isthmus run' with a [[registrar]]; then a GGSN that knows the P-CSCF, and an SGSN", g.serveAll},
		{"UE 1 attaches, with a context of IPv6 alone, and learns its P-CSCF by protocol configuration options", func(ctx context.Context) (string, error) { return g.attach(ctx, g.ue1) }},
		{"UE 2 does so, too", func(ctx context.Context) (string, error) { return g.attach(ctx, g.ue2) }},
		{"UE 1 tries to register with a card of another key", g.wrongKey},
		{"UE 1 registers with its own card", g.registerUE1},
		{"UE 2 registers with a card that has seen higher sequence numbers than the network knows", g.registerUE2},
		{"UE 1 calls UE 2 by its public identity", g.call},
		{"Media pass both ways", g.media},
		{"UE 1 loses its PDP context, and gets another one with another /64, in the middle of the call", g.handoff},
		{"UE 2 hangs up: BYE reaches UE 1 where it is now", g.hangUp},
	}
	if calls > 1 {
		steps = append(steps, walkStep{fmt.Sprintf("All of it again, %d times: call, move, BYE", calls-1), func(ctx context.Context) (string, error) { return g.again(ctx, calls-1) }})
	}
	g.take(ctx, steps)
}

// again makes further calls with a move in each.
func (g *imsGuide) again(ctx context.Context, times int) (string, error) {
	for range times {
		for _, do := range []func(context.Context) (string, error){g.call, g.handoff, g.hangUp} {
			if _, err := do(ctx); err != nil {
				return "", err
			}
		}
	}
	return "", nil
}

// report is the steps, and what was measured.
func (g *imsGuide) report() *report.Report {
	r := &report.Report{
		Experiment: imsName, Title: "Calls and moves in an IMS",
		Notes: []string{
			fmt.Sprintf("A wire of %d ms there and back lies between GGSN and IMS; all else is bare veth, and all programs are on one machine. Media go from UE to UE by the GGSN, and do not pass the wire.", imsTrip.Milliseconds()),
			"Times are read from captures: those of UEs on the link between SGSN and GGSN, out of the tunnels, those of CSCFs on theirs. By theory each crossing of the wire takes half its round trip, a TCP connection that is opened over it a whole one before the message, and everything else nothing.",
			"A request goes by TCP where UDP would not do (RFC 3261 section 18.1.1): of a UE from 1,201 octets on, since its link has 1400, of a CSCF from 1,301 on. With its credentials an INVITE is as large. A UE that has moved has to open a connection again.",
			"A gap is the longest time between two packets of which the second came after the PDP context was ended; 20 ms is none. UE 2 sends to the new address when it has the re-INVITE: it follows none that it is only sent from, which would be sooner.",
		},
	}
	g.tell(r)
	r.Tables = append(r.Tables, g.registrationTable())
	if len(g.calls) > 0 {
		r.Tables = append(r.Tables, g.calls[0].hopTable())
	}
	// A call whose move has failed is told of by its step.
	g.calls = slices.DeleteFunc(g.calls, func(c *imsCall) bool { return c.bindings == 0 })
	if len(g.calls) > 0 {
		r.Tables = append(r.Tables, g.callTable())
	}
	for n, c := range g.calls {
		if c.bindings != 1 {
			r.Fault("call %d: %d bindings of UE 1 were left, not one", n+1, c.bindings)
		}
	}
	return r
}

// registrationTable has a row for each registration.
func (g *imsGuide) registrationTable() report.Table {
	t := report.Table{Title: "registrations", Columns: []string{"who", "REGISTERs of the UE", "messages on its link", "first REGISTER to the end, ms", "by theory, ms", "came to"}}
	for _, one := range g.registrations {
		t.Rows = append(t.Rows, []string{
			one.who, fmt.Sprint(one.requests), fmt.Sprint(one.messages), fmt.Sprintf("%.1f", milliseconds(one.took)), fmt.Sprintf("%.1f", milliseconds(one.theory)), one.end,
		})
	}
	return t
}

// hopTable tells where the call has been when.
func (c *imsCall) hopTable() report.Table {
	t := report.Table{Title: "the first call, hop by hop", Columns: []string{"message", "where", "by", "after, ms", "by theory, ms"}}
	for _, h := range c.hops {
		t.Rows = append(t.Rows, []string{h.what, h.where, h.transport, fmt.Sprintf("%.1f", milliseconds(h.at)), fmt.Sprintf("%.1f", milliseconds(h.theory))})
	}
	return t
}

// callTable has what was measured of all calls, beside theory.
func (g *imsGuide) callTable() report.Table {
	t := report.Table{Title: "calls with a move: median (lowest to highest), ms", Columns: []string{"what", fmt.Sprintf("of %d", len(g.calls)), "by theory"}}
	row := func(what string, of, theory func(*imsCall) time.Duration) {
		cells := []string{what, spread(g.each(of), 1), "-"}
		if theory != nil {
			cells[2] = spread(g.each(theory), 1)
		}
		t.Rows = append(t.Rows, cells)
	}
	row("first INVITE to its 200", func(c *imsCall) time.Duration { return c.last().at }, func(c *imsCall) time.Duration { return c.last().theory })
	row("PDP context ended, until the new one is open", func(c *imsCall) time.Duration { return c.opened }, nil)
	row("PDP context ended, until UE 1 sends from its new address", func(c *imsCall) time.Duration { return c.back }, nil)
	row("from then until UE 2 has the re-INVITE", func(c *imsCall) time.Duration { return c.reinvited }, (*imsCall).reinviteTheory)
	row("from then until UE 1 has the 200", func(c *imsCall) time.Duration { return c.moved }, func(c *imsCall) time.Duration { return c.reinviteTheory() + imsTrip })
	row("REGISTER from the new address to its 200", func(c *imsCall) time.Duration { return c.renewed.took }, func(c *imsCall) time.Duration { return c.renewed.theory })
	row("gap to UE 1", func(c *imsCall) time.Duration { return c.down.longest }, func(c *imsCall) time.Duration { return c.back + c.reinviteTheory() })
	row("gap from UE 1", func(c *imsCall) time.Duration { return c.up.longest }, func(c *imsCall) time.Duration { return c.back })
	t.Notes = []string{"Media come in packets of 20 ms: a gap is what theory says, and up to two of them."}
	for _, lost := range []struct {
		what string
		of   func(*imsCall) float64
	}{
		{"packets lost to UE 1", func(c *imsCall) float64 { return float64(c.down.lost) }}, {"packets lost from UE 1", func(c *imsCall) float64 { return float64(c.up.lost) }},
	} {
		var all []float64
		for _, c := range g.calls {
			all = append(all, lost.of(c))
		}
		t.Rows = append(t.Rows, []string{lost.what, plainNumbers(all), "-"})
	}
	return t
}

// each are the times of all calls, in milliseconds.
func (g *imsGuide) each(of func(*imsCall) time.Duration) (all []float64) {
	for _, c := range g.calls {
		all = append(all, milliseconds(of(c)))
	}
	return all
}
