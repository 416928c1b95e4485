// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of the tour of a call.
const (
	callTourName = "call"
	// callTourWarm is how many packets are heard before a change and behind it: long enough to be seen.
	callTourWarm = 200
)

// callTour is the experiment: one round of the experiment handoff, told as it happens.
var callTour = lab.Experiment{
	Name:      callTourName,
	Summary:   "the tour: a call goes from an IPv6 UMTS to a GPRS with private IPv4 behind a NAT, by Teredo and SIP, and back, told as it happens",
	NeedsRoot: true,
	Needs:     natPrograms,
	Run:       runCallTour,
}

// callGuide takes the tour, in the topology of figure 4 of the Teredo paper.
type callGuide struct {
	env   *lab.Env
	net   *handoffNet
	heard *hearing // what the host hears
	callTale
}

func runCallTour(ctx context.Context, e *lab.Env) (err error) {
	e.Step("A call, from an IPv6 UMTS to a GPRS that has private IPv4 behind a NAT, and back. The terminal is ue, and calls host;\n" +
		"server and relay are Teredo's, and sip is the SIP server. === is the call: packets heard and lost, and the address in use.")
	g, err := newCallGuide(ctx, e)
	if err != nil {
		return err
	}
	// Last, since with Env.Keep it waits until the person has seen enough.
	defer func() { err = errors.Join(err, g.close()) }()
	box := g.net.boxes[0]
	all := newHandoffCases(g.net.handoffWorld, box)
	if err := g.tell(ctx, func() error { return g.net.cold(ctx, box, all) }); err != nil {
		return err
	}
	r, err := g.report(all)
	if err != nil {
		return err
	}
	return finish(e, r)
}

// newCallGuide draws the topology and starts all of it.
func newCallGuide(ctx context.Context, e *lab.Env) (*callGuide, error) {
	heard, err := newHearing(e.Dir)
	if err != nil {
		return nil, err
	}
	g := &callGuide{env: e, heard: heard, callTale: newCallTale()}
	if g.net, err = drawHandoff(ctx, e, handoffWorld{boxes: handoffNATs(false), guide: g}); err != nil {
		return nil, errors.Join(err, heard.remove())
	}
	return g, nil
}

// close ends all of it. What the host has heard stays.
func (g *callGuide) close() error {
	return errors.Join(g.net.close(), g.heard.close())
}

// report sets beside theory what the tour's handoffs have cost, and says where the sound is.
func (g *callGuide) report(all *handoffCases) (*report.Report, error) {
	if err := errors.Join(g.net.closePhones(), g.heard.close()); err != nil {
		return nil, err
	}
	sound, err := g.heard.read()
	if err != nil {
		return nil, err
	}
	there, back := all.cases[handoffCold].moves[0], all.cases[handoffBack].moves[0]
	t := callTable(there, back)
	if len(all.calls) > 0 {
		c := all.calls[0]
		t.Notes = append(t.Notes, fmt.Sprintf("Called in GPRS, by its Teredo address, the terminal answers after %.0f ms (by theory %.0f), and the host hears it after %.0f ms.",
			milliseconds(c.answered), milliseconds(c.theory), milliseconds(c.heard)))
	}
	begin, silence := longestSilence(sound)
	t.Notes = append(t.Notes, fmt.Sprintf("What the host has heard, %.1f s in two calls: %s; silent for %.0f ms from %.2f s on.",
		places(sound.Len()).Seconds(), g.heard.file.Name(), milliseconds(silence), begin.Seconds()))
	r := &report.Report{Experiment: callTourName, Title: "A call, there and back", Tables: []report.Table{t}}
	judgeHandoffs(r, []*handoffCase{all.cases[handoffCold], all.cases[handoffBack]})
	if silence == 0 {
		r.Fault("the host has heard no gap, although packets were lost to it")
	}
	return r, nil
}

// callTable has what the handoffs have cost, and what they cost by theory.
func callTable(there, back handoffMove) report.Table {
	t := report.Table{
		Title:   "the call's handoffs",
		Columns: []string{"", "to GPRS", "by theory", "back to UMTS", "by theory"},
		Notes: []string{
			"By theory a time is that of what must cross the radio (205 ms there and back), packet by packet; a gap is up to 40 ms longer, for the time between packets, of which 20 ms is none.",
			"Back in UMTS the kernel may tell of the carrier up to a second late: that is in D2, and in no gap, for Teredo carries the call until then.",
		},
	}
	stages := func(what string, names []string) {
		row := []string{what}
		for _, m := range []handoffMove{there, back} {
			took, needs, ok := m.part(names)
			if !ok {
				row = append(row, "-", "-")
				continue
			}
			row = append(row, fmt.Sprintf("%.1f", milliseconds(took)), fmt.Sprintf("%.1f", milliseconds(needs)))
		}
		t.Rows = append(t.Rows, row)
	}
	stages("D1, ms: until it is attached", stagesD1)
	stages("D2, ms: an address, by DHCP and Teredo; by UMTS", stagesD2)
	stages("D3, ms: relay, re-INVITE, 200, first media", stagesD3)
	// Lost is what is on the air when UMTS goes, and all until there is an address again; what is said
	// then waits in the Teredo client until the relay is found.
	_, attached, _ := there.part(stagesD1)
	_, addressed, _ := there.part(stagesD2)
	unsaid := there.radio.AtoB.Delay + attached + addressed
	gaps := func(what string, of func(handoffMove) sipGap, theory, lost time.Duration) {
		cell := func(d time.Duration) string { return fmt.Sprintf("%.1f", milliseconds(d)) }
		t.Rows = append(t.Rows,
			[]string{"gap " + what + ", ms", cell(of(there).longest), cell(theory), cell(of(back).longest), cell(flowGap)},
			[]string{"packets lost " + what, fmt.Sprint(of(there).lost), fmt.Sprintf("%.0f", lost.Seconds()/flowGap.Seconds()), fmt.Sprint(of(back).lost), "0"})
	}
	gaps("to the terminal", func(m handoffMove) sipGap { return m.down }, there.theoryDown(), there.theoryDown())
	gaps("from the terminal", func(m handoffMove) sipGap { return m.up }, there.theoryUp(), unsaid)
	return t
}
