// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/lab/report"
)

// seamlessReport shows what handovers cost.
func seamlessReport(f *seamlessFound) *report.Report {
	r := &report.Report{
		Experiment: sctpSeamlessName, Title: "Handovers between WLAN and UMTS", Peer: "MPTCP Reno",
		Notes: []string{
			fmt.Sprintf("A message of %d octets each %v in both directions. Gaps are the longest time between two deliveries, in the middle of which the WLAN goes: the time between messages is in them.", cutSize, cutEvery),
			"The terminal is on a WLAN behind IEEE 802.1X and on UMTS behind SGSN and GGSN, the server has one address; SCTP has default parameters. Round trips are of pings right before.",
			"Announced: the terminal's radio says that it has lost its network, with all that was on the air. Make before break: the terminal leaves the WLAN a second before. Silent: no one is told.",
			fmt.Sprintf("A SIP call is one of G.711, 50 packets a second each way, from the terminal to the media server's host: it moves by re-INVITE (RFC 3261 section 14), and what is on its way by the WLAN is lost. Before the break the terminal's routes prefer UMTS. Its gaps are read from captures; %v is none. Calls, handovers with jitter and those in a row go on side by side; those of SCTP that have musts, and MPTCP's, one after the other.", flowGap),
			"The return begins when the terminal's link works again, which is when it has proved who it is. It has kept its address, so that it does not look for others that have it.",
		},
	}
	for _, kind := range seamlessKinds {
		moves := f.moves[kind]
		trips := 1
		if kind == seamlessSilent {
			trips = 2
		}
		beyond := func(half int, gap func(seamlessMove) time.Duration) report.Value {
			return timesOf(moves, func(m seamlessMove) time.Duration { return gap(m) - time.Duration(half)*m.trip/2 })
		}
		down := 2 * trips
		if kind == seamlessBefore {
			down = 1
		}
		r.Figures = append(r.Figures,
			report.Figure{Name: fmt.Sprintf(figureSeamlessDown, kind, seamlessTrips(down)), Unit: "ms", Decimals: 1, Isthmus: beyond(down, seamlessMove.gapDown), Must: must(sctpSeamlessName, fmt.Sprintf(figureSeamlessDown, kind, seamlessTrips(down)))})
		if kind != seamlessSilent {
			name := fmt.Sprintf(figureSeamlessUp, kind, seamlessTrips(1))
			r.Figures = append(r.Figures, report.Figure{Name: name, Unit: "ms", Decimals: 1, Isthmus: beyond(1, seamlessMove.gapUp), Must: must(sctpSeamlessName, name)})
		}
		r.Figures = append(r.Figures,
			report.Figure{Name: kind.String() + ": gap to the terminal", Unit: "ms", Decimals: 1, Isthmus: timesOf(moves, seamlessMove.gapDown), Peer: f.peer(kind)},
			report.Figure{Name: kind.String() + ": gap to the terminal, 95 % of them", Unit: "ms", Decimals: 1, Isthmus: most95(moves, seamlessMove.gapDown)},
			report.Figure{Name: kind.String() + ": gap from the terminal", Unit: "ms", Decimals: 1, Isthmus: timesOf(moves, seamlessMove.gapUp)},
			report.Figure{Name: kind.String() + ": gap from the terminal, 95 % of them", Unit: "ms", Decimals: 1, Isthmus: most95(moves, seamlessMove.gapUp)})
		if shaky := f.shaky[kind]; len(shaky) > 0 {
			r.Figures = append(r.Figures,
				report.Figure{Name: kind.String() + ", with jitter: gap to the terminal", Unit: "ms", Decimals: 1, Isthmus: timesOf(shaky, seamlessMove.gapDown)},
				report.Figure{Name: kind.String() + ", with jitter: gap to the terminal, 95 % of them", Unit: "ms", Decimals: 1, Isthmus: most95(shaky, seamlessMove.gapDown)})
		}
		r.Figures = append(r.Figures, callFigures(kind, f.calls[kind])...)
		if slices.Contains(mptcpKinds, kind) {
			name := fmt.Sprintf(figureSeamlessMPTCP, kind)
			r.Figures = append(r.Figures, report.Figure{Name: name, Decimals: 2, Isthmus: f.ratio(kind), Must: must(sctpSeamlessName, name)})
		}
	}
	back := slices.Concat(f.moves[seamlessAnnounced], f.moves[seamlessBefore])
	r.Figures = append(r.Figures,
		report.Figure{Name: "return to WLAN: EAP-TLS", Unit: "ms", Decimals: 1, Isthmus: timesOf(back, func(m seamlessMove) time.Duration { return m.eap })},
		report.Figure{Name: "return to WLAN: duplicate address detection", Unit: "ms", Isthmus: report.Measured(0)},
		report.Figure{Name: figureSeamlessBack, Unit: "ms", Decimals: 1, Must: must(sctpSeamlessName, figureSeamlessBack),
			Isthmus: timesOf(back, func(m seamlessMove) time.Duration { return m.data - 2*m.wlan })},
		report.Figure{Name: fmt.Sprintf(figureSeamlessAlive, f.row), Unit: "%", Isthmus: report.Measured(100 * float64(f.alive) / float64(f.row)), Must: must(sctpSeamlessName, figureSeamlessAlive)},
		report.Figure{Name: "the same: longest gap to the terminal", Unit: "ms", Isthmus: report.Milliseconds(f.rowGap)},
		report.Figure{Name: figureSCTPWrong, Isthmus: report.Measured(float64(f.wrong.Load())), Must: must(sctpSeamlessName, figureSCTPWrong)})
	return r
}

func (m seamlessMove) gapDown() time.Duration { return m.down }
func (m seamlessMove) gapUp() time.Duration   { return m.up }

// seamlessTrips says how many halves of a round trip a gap may have.
func seamlessTrips(halves int) string {
	return map[int]string{1: "half a round trip", 2: "a round trip", 4: "two round trips"}[halves]
}

// peer is the gap of MPTCP.
func (s *seamlessFound) peer(kind seamlessKind) report.Value {
	switch {
	case !slices.Contains(mptcpKinds, kind):
		return report.Value{}
	case s.why != "":
		return report.None(s.why)
	}
	return timesOf(s.mptcp[kind], seamlessMove.gapDown)
}

// ratio is the gap of MPTCP to ours, medians both.
func (s *seamlessFound) ratio(kind seamlessKind) report.Value {
	if s.why != "" {
		return report.None(s.why)
	}
	return report.Measured(s.peer(kind).Median() / timesOf(s.moves[kind], seamlessMove.gapDown).Median())
}
