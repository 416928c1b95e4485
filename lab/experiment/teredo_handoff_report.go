// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/lab/report"
)

// teredoHandoffReport sets the makers beside each other; peer is nil if it could not
// run, for the reason given.
func teredoHandoffReport(ours, peer *teredoRecoveries, why string) *report.Report {
	r := &report.Report{
		Experiment: teredoHandoffName, Title: "Teredo handoff, result", Peer: miredo.title(),
		Notes: []string{
			fmt.Sprintf("A flow of a packet each %v from the client's current address to the host, which sends each back; lost is what does not come back.", flowGap),
			"Time to recovery is from the change to the first answer to a packet sent behind it; on server death, to the first answer of a host that was not contacted before.",
			fmt.Sprintf("The server dies beside a flow that does not need it. Moves are over links of %v one way; the hard one takes the carrier away.", moveDelay),
			"Miredo knows one server and one interface; by its source it takes 42 s or more to see that its server is gone.",
		},
	}
	theirs := func(value func(*teredoRecoveries) report.Value) report.Value {
		if peer == nil {
			return report.None(why)
		}
		return value(peer)
	}
	add := func(f report.Figure, value func(*teredoRecoveries) report.Value) {
		f.Isthmus, f.Peer = value(ours), theirs(value)
		r.Figures = append(r.Figures, f)
	}
	alone := func(f report.Figure, v report.Value, reason string) {
		f.Isthmus, f.Peer = v, report.None(reason)
		r.Figures = append(r.Figures, f)
	}
	add(report.Figure{Name: figureLAN, Unit: "s", Decimals: 3, Must: must(teredoHandoffName, figureLAN)},
		func(h *teredoRecoveries) report.Value { return seconds(h.lan) })
	add(report.Figure{Name: "LAN address change: packets lost"},
		func(h *teredoRecoveries) report.Value { return report.Measured(h.lanLost...) })
	add(report.Figure{Name: figureNATChange, Unit: "s", Decimals: 2, Must: must(teredoHandoffName, figureNATChange)},
		func(h *teredoRecoveries) report.Value { return seconds(h.nat) })
	add(report.Figure{Name: "NAT address change: packets lost"},
		func(h *teredoRecoveries) report.Value { return report.Measured(h.natLost...) })
	alone(report.Figure{Name: figureServerDeath, Unit: "s", Decimals: 2, Must: must(teredoHandoffName, figureServerDeath)},
		seconds(ours.server), "has one server")
	alone(report.Figure{Name: "server death: packets of another flow lost"}, report.Measured(ours.srvLost...), "has one server")
	const one = "has one interface"
	alone(report.Figure{Name: figureSoft, Must: must(teredoHandoffName, figureSoft)}, report.Measured(ours.softLost...), one)
	alone(report.Figure{Name: figureHard, Unit: "ms", Decimals: 1, Must: must(teredoHandoffName, figureHard)},
		report.Milliseconds(ours.hardGap...), one)
	alone(report.Figure{Name: "hard move: packets lost"}, report.Measured(ours.hardLost...), one)
	alone(report.Figure{Name: "round trip between client and host", Unit: "ms", Decimals: 1}, report.Milliseconds(ours.trip...), one)
	return r
}

// seconds is a value with durations as its samples.
func seconds(samples []time.Duration) (v report.Value) {
	for _, d := range samples {
		v.Samples = append(v.Samples, d.Seconds())
	}
	return v
}
