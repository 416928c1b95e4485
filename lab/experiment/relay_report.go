// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/lab/report"
)

// ratioFigure is a figure that is itself a ratio, one for each round.
func ratioFigure(experiment, label, figure string, ratios []float64) report.Figure {
	return report.Figure{Name: label + ": " + figure, Decimals: 2, Isthmus: report.Measured(ratios...), Must: must(experiment, figure)}
}

// pairs are the ratios of b to a, round by round; a round in which one is missing
// is left out.
func pairs(a, b []float64) []float64 {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if a[i] > 0 && b[i] > 0 {
			ratios = append(ratios, b[i]/a[i])
		}
	}
	return ratios
}

// thousands prints rates in thousands: median, lowest and highest.
func thousands(v []float64) string {
	if len(v) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f (%.0f to %.0f)", report.Measured(v...).Median()/1e3, slices.Min(v)/1e3, slices.Max(v)/1e3)
}

// strays is the share of packets that may go another way than their column says:
// the first ones, before the relay trusts its client.
const strays = 0.02

// checkPaths looks whether packets took the ways that the columns are named
// after: in the kernel where the column says so, through the engine else.
func (r *relayPaths) checkPaths(ctx context.Context, rep *report.Report) error {
	for _, p := range r.paths {
		if !p.way.ours() {
			continue
		}
		status, err := control.NewClient(p.socket(r.dir)).Status(ctx)
		if err != nil {
			return err
		}
		if len(status.Instances) != 1 {
			return errors.New("the relay is not in its own status")
		}
		fast, engine := forwarded(status.Instances[0].Values)
		other := engine
		if p.way == wayUser {
			other = fast
		}
		if fast+engine == 0 || other > strays*(fast+engine) {
			rep.Fault("%s forwarded %.0f packets in the kernel and %.0f through the engine", p.way.title(), fast, engine)
		}
	}
	return nil
}

// forwarded is how many packets a relay has forwarded in the kernel and through
// its engine.
func forwarded(values map[string]float64) (fast, engine float64) {
	for name, n := range values {
		if strings.HasPrefix(name, "fastpath_packets_total_forward_") {
			fast += n
		}
	}
	return fast, values["to_clients_total"] + values["to_ipv6_total"]
}
