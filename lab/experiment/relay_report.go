// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"slices"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/lab/report"
)

// relayDirection is a way through a relay.
type relayDirection string

// The two ways.
const (
	encapsulating relayDirection = "IPv6 to IPv4"
	decapsulating relayDirection = "IPv4 to IPv6"
)

// startRelayPaths starts a lab with the relay topology; done ends it.
func startRelayPaths(ctx context.Context, e *lab.Env, name string) (r *relayPaths, done func(), err error) {
	all, err := peers.Find()
	if err != nil {
		return nil, nil, fmt.Errorf("%s sets Isthmus beside Miredo: %w", name, err)
	}
	l, err := e.New(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	e.Step("starting the relays of Miredo and Isthmus beside a plain router")
	r, err = newRelayPaths(ctx, l, e.Binary, all)
	if err != nil {
		_ = l.Close()
		return nil, nil, err
	}
	return r, func() { r.close(); _ = l.Close() }, nil
}

// pairReport is a report whose figures are ratios of two paths in one round.
type pairReport struct{ report.Report }

func relayReport(name, title string) *pairReport {
	return &pairReport{report.Report{
		Experiment: name, Title: title, Peer: "Miredo",
		Notes: []string{"Ratios are medians of the ratios of slices that followed each other (lowest to highest)."},
	}}
}

// addRatio adds the figure Isthmus / Miredo of one case.
func (r *pairReport) addRatio(label, figure string, peer, isthmus []float64) {
	r.Figures = append(r.Figures, report.Figure{
		Name: label + ", " + figure + " / Miredo", Decimals: 2, Peer: report.Measured(1),
		Isthmus: report.Measured(pairs(peer, isthmus)...), Must: must(r.Experiment, figure),
	})
}

// addKernelRatio adds the figure Isthmus / plain forwarding of one case.
func (r *pairReport) addKernelRatio(label, figure string, kernel, isthmus []float64) {
	r.Figures = append(r.Figures, report.Figure{
		Name: label + ", " + figure + " / kernel forwarding", Decimals: 2, Isthmus: report.Measured(pairs(kernel, isthmus)...),
	})
}

// pairs are the ratios of b to a, round by round.
func pairs(a, b []float64) []float64 {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if a[i] > 0 {
			ratios = append(ratios, b[i]/a[i])
		}
	}
	return ratios
}

// thousands prints rates in thousands.
func thousands(v []float64) string {
	if len(v) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f (%.0f to %.0f)", report.Measured(v...).Median()/1e3, slices.Min(v)/1e3, slices.Max(v)/1e3)
}
