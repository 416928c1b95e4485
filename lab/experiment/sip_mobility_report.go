// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/lab/report"
)

// sipReport tells what moves have cost.
func sipReport(cases []*sipCase, early []*sipEarly) *report.Report {
	r := &report.Report{
		Experiment: sipMobilityName, Title: "Calls that move", Peer: sipKamailio,
		Tables: []report.Table{sipTable(cases), earlyTable(early)},
		Notes: []string{
			"A call of G.711, 50 packets a second each way. All times are read from captures at the terminal's links and at the host, but for the moment just before the change.",
			"Soft: the routes prefer the other link while both work. Hard: the address in use is removed. A lost carrier the kernel tells of within a second, and the telephone looks each 20 ms. Both links are equally long. Their routers are known but for the rows that say otherwise, where the round trip is that of the links, for there the solicitation and its answer take one. An address that is to be checked comes to the other link with the change, and waits for duplicate address detection.",
			"A gap is the longest time between two packets of which the second came after the change; 20 ms is none. By theory a hard move's is, to the terminal, the packet times that begin within a round trip, and one: 60 or 80 ms of 50. To that time a router that is not known adds a round trip of its link, an address that is to be checked one to two seconds (RFC 4862), a re-INVITE that is lost T1, 500 ms (RFC 3261 section 17.1.1.2), unless media are latched. Theory and the column before it are of 95 % of moves; of 20 %, two in a row are lost in 4 %. Where everything is lost, so are single packets of media, and ARP or neighbour discovery of the host.",
			"The 200 is the first to an INVITE from the new address: where two repeats of the re-INVITE are lost, that of an INVITE with Replaces.",
			"Under Kamailio stand moves of the same telephone with Kamailio as the server where it registers, by IPv6 and with a round trip of 50 ms alone.",
			"Telephones are in one process with the lab, the SIP server in one of its own. Calls go between the two directly, from their first INVITE on if the terminal makes them.",
		},
	}
	ours := slices.DeleteFunc(slices.Clone(cases), func(c *sipCase) bool { return c.world.mode == sipKamailio })
	theirs := slices.DeleteFunc(slices.Clone(cases), func(c *sipCase) bool { return c.world.mode != sipKamailio })
	r.Figures = append(sipTimes(ours, theirs), sipGaps(ours, theirs)...)
	for _, c := range cases {
		for _, m := range c.moves {
			if m.bindings != 1 {
				r.Fault("%v: %d bindings were left, not one", c, m.bindings)
			}
			if !m.byeReceived {
				r.Fault("%v: the BYE did not come to the new address", c)
			}
		}
	}
	return r
}

// sipTable has a row for each case: median and highest.
func sipTable(cases []*sipCase) report.Table {
	t := report.Table{
		Title: "moves: median (lowest to highest), ms",
		Columns: []string{
			"server", "family", "round trip", "move", "moves", "change to re-INVITE", "re-INVITE to 200",
			"gap down", "95 %", "by theory", "gap up", "lost down", "lost up",
		},
	}
	for _, c := range cases {
		t.Rows = append(t.Rows, []string{
			c.world.mode, c.world.family(), c.world.title(c.host), c.kind.String(), fmt.Sprint(len(c.moves)),
			spread(c.all(sipMove.inviteTime), 2), spread(c.answers(), 1),
			spread(c.all(sipMove.gapDown), 1), fmt.Sprintf("%.1f", within(c.all(sipMove.gapDown), 95)), c.theoryText(), spread(c.all(sipMove.gapUp), 1),
			plainNumbers(c.all(sipMove.lostDown)), plainNumbers(c.all(sipMove.lostUp)),
		})
	}
	return t
}

// theoryText is what theory allows.
func (c *sipCase) theoryText() string {
	least, most := c.theory()
	if least == most {
		return fmt.Sprint(least.Milliseconds())
	}
	text := fmt.Sprintf("%d to %d", least.Milliseconds(), most.Milliseconds())
	if c.host.everything {
		text += ", and media lost"
	}
	return text
}

// Numbers of a move, times in milliseconds.

func (m sipMove) inviteTime() float64 { return milliseconds(m.invite) }
func (m sipMove) gapDown() float64    { return milliseconds(m.down.longest) }
func (m sipMove) gapUp() float64      { return milliseconds(m.up.longest) }
func (m sipMove) longestGap() float64 { return max(m.gapDown(), m.gapUp()) }
func (m sipMove) lostDown() float64   { return float64(m.down.lost) }
func (m sipMove) lostUp() float64     { return float64(m.up.lost) }
func (m sipMove) lost() float64       { return m.lostDown() + m.lostUp() }
func (m sipMove) left() float64       { return float64(m.bindings) }
func (m sipMove) reached() float64 {
	if m.byeReceived {
		return 100
	}
	return 0
}

// all are the numbers of a case, move by move.
func (c *sipCase) all(number func(sipMove) float64) []float64 {
	all := make([]float64, len(c.moves))
	for i, m := range c.moves {
		all[i] = number(m)
	}
	return all
}

// answers are the times to a 200, of the moves that had one.
func (c *sipCase) answers() (all []float64) {
	for _, m := range c.moves {
		if m.answer > 0 {
			all = append(all, milliseconds(m.answer))
		}
	}
	return all
}

// ofAll are the numbers of all cases.
func ofAll(cases []*sipCase, number func(sipMove) float64) (all []float64) {
	for _, c := range cases {
		all = append(all, c.all(number)...)
	}
	return all
}

// told are the cases in which the kernel tells of the change at once.
func told(cases []*sipCase) []*sipCase {
	return slices.DeleteFunc(slices.Clone(cases), func(c *sipCase) bool { return !c.kind.told() })
}

// sipTimes are the figures of all moves at once, with our server and with Kamailio in its place.
func sipTimes(ours, theirs []*sipCase) []report.Figure {
	all := []report.Figure{
		{Name: figureReinvite, Unit: "ms", Decimals: 2, Isthmus: reinviteTime(ours), Peer: reinviteTime(theirs)},
		{Name: figureBindings, Isthmus: report.Measured(ofAll(ours, sipMove.left)...), Peer: report.Measured(ofAll(theirs, sipMove.left)...)},
		{Name: figureBYE, Unit: "%", Isthmus: lowest(ofAll(ours, sipMove.reached)), Peer: lowest(ofAll(theirs, sipMove.reached))},
	}
	for i := range all {
		all[i].Must = must(sipMobilityName, all[i].Name)
	}
	return all
}

// reinviteTime is the time to the re-INVITE that 99 % of all moves keep within.
func reinviteTime(cases []*sipCase) report.Value {
	if len(cases) == 0 {
		return report.Measured()
	}
	return report.Measured(within(ofAll(told(cases), sipMove.inviteTime), 99))
}

// lowest is the lowest of some values, if there are any.
func lowest(values []float64) report.Value {
	if len(values) == 0 {
		return report.Measured()
	}
	return report.Measured(slices.Min(values))
}

// sipMust is the round trip of the figures that have a must.
const sipMust = 50 * time.Millisecond

// sipGaps are the figures of single cases; beside each stands the same one with Kamailio as the server.
func sipGaps(ours, theirs []*sipCase) (all []report.Figure) {
	for _, c := range ours {
		figures := c.figures()
		for _, other := range theirs {
			if other.world.ipv6 != c.world.ipv6 || other.kind != c.kind || other.world.title(other.host) != c.world.title(c.host) {
				continue
			}
			for i, f := range other.figures() {
				figures[i].Peer = f.Isthmus
			}
		}
		all = append(all, figures...)
	}
	return all
}

// figures are those of a case, if any have a must.
func (c *sipCase) figures() (all []report.Figure) {
	add := func(figure, unit string, decimals int, values ...float64) {
		all = append(all, report.Figure{
			Name: c.world.family() + ", " + figure, Unit: unit, Decimals: decimals,
			Isthmus: report.Measured(values...), Must: must(sipMobilityName, figure),
		})
	}
	switch {
	case c.host.loss > 0:
		if figure, ok := c.lossyFigure(); ok {
			add(figure, "ms", 0, within(c.all(sipMove.longestGap), 95))
		}
	case c.host.trip != sipMust || !c.kind.told():
	case c.kind == sipHard:
		add(figureHardDown, "ms", 1, beyond(c.all(sipMove.gapDown), milliseconds(c.host.trip))...)
		add(figureHardUp, "ms", 1, c.all(sipMove.gapUp)...)
	default:
		add(figureSoftLost, "", 0, slices.Max(c.all(sipMove.lost)))
		add(figureSoftGap, "ms", 1, c.all(sipMove.longestGap)...)
	}
	return all
}

// lossyFigure is the figure of a case in which packets are lost, if there is one.
func (c *sipCase) lossyFigure() (name string, ok bool) {
	switch {
	case c.host.loss != sipLoss || c.host.everything || c.world.repeat > 0:
		return "", false
	case c.host.latch:
		return figureLossyLatch, true
	}
	return figureLossyPlain, true
}

// within is what so many in a hundred of the values do not exceed.
func within(values []float64, percent float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(int(math.Ceil(percent/100*float64(len(sorted))))-1, 0)]
}

// beyond is what values have above a least one.
func beyond(values []float64, least float64) []float64 {
	more := make([]float64, len(values))
	for i, v := range values {
		more[i] = v - least
	}
	return more
}
