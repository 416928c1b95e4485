// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/lab/report"
)

// handoffReport tells what handoffs have cost.
func handoffReport(r *handoffResult) *report.Report {
	cases := slices.DeleteFunc(slices.Clone(r.cases), func(c *handoffCase) bool { return len(c.moves) == 0 })
	rep := &report.Report{
		Experiment: handoffName, Title: "A call between UMTS and GPRS",
		Tables: []report.Table{handoffTable(cases), stageTable(cases), handoffCalls(r.called)},
		Notes: []string{
			"A call of G.711, 50 packets a second each way, between a terminal and a host with IPv6 alone; times are read from captures on the terminal's links and at the host, but for the moment just before the change.",
			"Both radios have the rates and the mean delay of the published UMTS link (384 kbit/s up, 2 Mbit/s down, 205 ms there and back, without jitter but in the row that says so): over Teredo the call takes 99 kbit/s each way, more than a GPRS of that time carries. All other links are cables without delay.",
			"Cold: UMTS is lost; then the terminal attaches to GPRS, has its address by DHCP in one round trip, and its Teredo client qualifies. The SGSN is told to attach by an order: a modem's signalling is not on the air. Pre-qualified: Teredo stands by, and the way to the host is open there. Soft: the default route by UMTS goes while both work, and UMTS behind the move. Back: UMTS comes again while Teredo works; the kernel may tell of its carrier a second late, which is in D2.",
			"D1 is until the attachment, or until the re-INVITE where nothing is to be attached; D2 until Teredo's address, or that by UMTS; D3 from there to the first media at the terminal: relay discovery, re-INVITE, media.",
			"A gap is the longest time between two packets of which the second came after the change; 20 ms is none. By theory it is what must cross the radio, packet by packet of this very handoff, each with its time on the line and the delay; what comes beyond has up to 40 ms of the time between packets in it.",
		},
	}
	rep.Figures = handoffFigures(cases, r)
	if r.without != nil {
		rep.Tables = append(rep.Tables, report.Table{
			Title: "without a Teredo client", Columns: []string{"GPRS", "packets to the terminal", "packets from the terminal"},
			Rows: [][]string{{fmt.Sprintf("attached for %v", r.without.silence), fmt.Sprint(r.without.down), fmt.Sprint(r.without.up)}},
		})
		if r.without.up+r.without.down > 0 {
			rep.Fault("without Teredo %d packets of media came, and %d went: the handoff shows nothing", r.without.down, r.without.up)
		}
	}
	if columns := handoffColumns(cases); len(columns) > 1 {
		rep.Tables = append(rep.Tables, othersTable(columns))
	}
	if len(r.rows) > 0 {
		rep.Tables = append(rep.Tables, rowTable(r.rows))
		judgeRows(rep, r.rows)
	}
	judgeHandoffs(rep, cases)
	rep.Charts = timelines(cases)
	return rep
}

// judgeHandoffs finds wrong behaviour.
func judgeHandoffs(rep *report.Report, cases []*handoffCase) {
	for _, c := range cases {
		for _, m := range c.moves {
			if m.bindings != 1 {
				rep.Fault("%v: %d bindings were left, not one", c, m.bindings)
			}
			if m.hangs && !m.byeReceived {
				rep.Fault("%v: the BYE did not come to the new address", c)
			}
			for _, fate := range m.fates {
				rep.Notes = append(rep.Notes, fmt.Sprintf("%v: %s.", c, fate))
			}
		}
	}
}

// handoffTable has a row for each case.
func handoffTable(cases []*handoffCase) report.Table {
	t := report.Table{
		Title: "handoffs: median (lowest to highest), ms",
		Columns: []string{
			"NAT at the GGSN", "handoff", "handoffs", "D1", "D2", "D3", "gap down", "by theory", "gap up", "by theory", "lost down", "lost up",
		},
	}
	for _, c := range cases {
		t.Rows = append(t.Rows, []string{
			c.box.String() + c.world.special(), c.kind.String(), fmt.Sprint(len(c.moves)),
			spread(c.all(handoffMove.d1), 1), spread(c.all(handoffMove.d2), 1), spread(c.all(handoffMove.d3), 1),
			spread(c.all(func(m handoffMove) float64 { return m.gapDown() }), 1), c.theory(handoffMove.theoryDown),
			spread(c.all(func(m handoffMove) float64 { return m.gapUp() }), 1), c.theory(handoffMove.theoryUp),
			plainNumbers(c.all(func(m handoffMove) float64 { return m.lostDown() })), plainNumbers(c.all(func(m handoffMove) float64 { return m.lostUp() })),
		})
	}
	return t
}

// theory is what theory allows a gap.
func (c *handoffCase) theory(of func(handoffMove) time.Duration) string {
	if c.kind.media() == sipSoft {
		return fmt.Sprint(flowGap.Milliseconds())
	}
	return fmt.Sprintf("%.1f", c.median(func(m handoffMove) float64 { return milliseconds(of(m)) }))
}

// stageTable has what each stage takes, and what it must take.
func stageTable(cases []*handoffCase) report.Table {
	t := report.Table{
		Title:   "stages: what must cross the radio, and what was measured, ms",
		Columns: []string{"NAT at the GGSN", "handoff", "stage", "octets up", "octets down", "on the line", "by theory", "measured"},
	}
	for _, c := range cases {
		for k, first := range c.moves[0].stages {
			number := func(of func(handoffStage, handoffMove) float64) float64 {
				return c.median(func(m handoffMove) float64 { return of(m.stages[k], m) })
			}
			t.Rows = append(t.Rows, []string{
				c.box.String() + c.world.special(), c.kind.String(), first.name,
				fmt.Sprintf("%.0f", number(func(s handoffStage, _ handoffMove) float64 { return s.octets(true) })),
				fmt.Sprintf("%.0f", number(func(s handoffStage, _ handoffMove) float64 { return s.octets(false) })),
				fmt.Sprintf("%.1f", number(func(s handoffStage, m handoffMove) float64 { return milliseconds(s.line(m.radio)) })),
				fmt.Sprintf("%.1f", number(func(s handoffStage, m handoffMove) float64 { return milliseconds(s.theory(m.radio)) })),
				spread(c.all(func(m handoffMove) float64 { return milliseconds(m.stages[k].took) }), 1),
			})
		}
	}
	return t
}

// octets are those that must go one way.
func (s handoffStage) octets(up bool) (sum float64) {
	for _, d := range s.demands {
		if d.up == up {
			sum += float64(d.octets)
		}
	}
	return sum
}

// handoffCalls has the calls to the terminal where it is behind a cold handoff.
func handoffCalls(all []*handoffCases) report.Table {
	t := report.Table{
		Title:   "calls to the terminal at its Teredo address, by the SIP server: median (lowest to highest), ms",
		Columns: []string{"NAT at the GGSN", "calls", "INVITE to 200", "by theory", "INVITE to media"},
	}
	for _, c := range all {
		var answered, theory, heard []float64
		for _, m := range c.calls {
			answered, heard = append(answered, milliseconds(m.answered)), append(heard, milliseconds(m.heard))
			theory = append(theory, milliseconds(m.theory))
		}
		t.Rows = append(t.Rows, []string{c.box.String() + c.cases[0].world.special(), fmt.Sprint(len(c.calls)), spread(answered, 1), spread(theory, 1), spread(heard, 1)})
	}
	return t
}

// all are the numbers of a case, handoff by handoff.
func (c *handoffCase) all(number func(handoffMove) float64) []float64 {
	all := make([]float64, len(c.moves))
	for i, m := range c.moves {
		all[i] = number(m)
	}
	return all
}

func (c *handoffCase) median(number func(handoffMove) float64) float64 {
	return report.Measured(c.all(number)...).Median()
}

// handoffFigures are those that have a must.
func handoffFigures(cases []*handoffCase, r *handoffResult) (all []report.Figure) {
	add := func(c *handoffCase, figure, unit string, decimals int, values []float64) {
		f := report.Figure{Name: figure, Unit: unit, Decimals: decimals, Isthmus: report.Measured(values...), Must: must(handoffName, figure)}
		if c != nil {
			f.Name = c.box.String() + ", " + figure
		}
		all = append(all, f)
	}
	var soft, bindings []float64
	for _, c := range cases {
		if c.world.special() != "" {
			continue // the mean of a delay is no bound, and musts are of our programs
		}
		bindings = append(bindings, c.all(func(m handoffMove) float64 { return m.left() })...)
		switch c.kind {
		case handoffCold:
			if c.box.restricted() {
				add(c, figureColdDown, "ms", 1, c.all(handoffMove.beyondDown))
				add(c, figureColdUp, "ms", 1, c.all(handoffMove.beyondUp))
			}
		case handoffHard:
			add(c, figureWarmDown, "ms", 1, c.all(handoffMove.beyondDown))
			add(c, figureWarmUp, "ms", 1, c.all(handoffMove.beyondUp))
		default:
			soft = append(soft, c.all(func(m handoffMove) float64 { return m.lost() })...)
		}
	}
	if len(soft) > 0 {
		add(nil, figureHandoffLost, "", 0, []float64{slices.Max(soft)})
	}
	add(nil, figureHandoffBindings, "", 0, bindings)
	for _, row := range r.rows {
		if row.world.loss > 0 && row.world.special() == "" {
			add(nil, figureHandoffAlive, "%", 1, []float64{row.percent(row.alive)})
			add(nil, figureHandoffSingle, "%", 1, []float64{row.percent(row.single)})
			add(nil, figureHandoffUnreached, "", 0, []float64{float64(row.made - row.reached)})
		}
	}
	return all
}

// timelines are pictures of the stages of hard handoffs, one for each kind.
func timelines(cases []*handoffCase) (all []report.Chart) {
	for _, kind := range []handoffKind{handoffCold, handoffHard} {
		b := &report.Bars{Unit: "ms", Decimals: 1}
		for _, c := range cases {
			if c.kind != kind {
				continue
			}
			g := report.Group{Label: c.box.String() + c.world.special()}
			for k, s := range c.moves[0].stages {
				took := c.all(func(m handoffMove) float64 { return milliseconds(m.stages[k].took) })
				needs := c.all(func(m handoffMove) float64 { return milliseconds(m.stages[k].theory(m.radio)) })
				g.Bars = append(g.Bars, report.Bar{Name: s.name, Role: report.Ours, Value: report.Measured(took...)},
					report.Bar{Name: "by theory", Role: report.Reference, Value: report.Measured(needs...)})
			}
			b.Groups = append(b.Groups, g)
		}
		if len(b.Groups) > 0 {
			name := [...]string{handoffCold: "cold", handoffHard: "pre-qualified"}[kind]
			all = append(all, report.Chart{Name: name, Title: "Stages of a handoff to GPRS, " + kind.String(), Bars: b})
		}
	}
	return all
}
