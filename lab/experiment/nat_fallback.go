// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// measureFallback measures the matrix of pairs with a relay that carries between
// clients, which all of them name.
func measureFallback(ctx context.Context, e *lab.Env, plan matrixPlan, step func(string, ...any)) (m *matrix, err error) {
	its := *e
	its.Keep = false
	n, err := drawTeredo(ctx, &its, "matrix-fallback", teredoPlan{NATs: slices.Concat(matrixKinds, matrixKinds), Fallback: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if err := n.startAll(ctx, isthmus); err != nil {
		return nil, err
	}
	for _, c := range n.clients {
		if err := c.awaitFallback(ctx); err != nil {
			return nil, err
		}
	}
	callers, called := n.clients[:len(matrixKinds)], n.clients[len(matrixKinds):]
	m = &matrix{}
	for range callers {
		m.pairs = append(m.pairs, make([]lab.PingResult, len(called)))
	}
	for round := range callers {
		if err := m.round(ctx, callers, called, round, plan); err != nil {
			return nil, err
		}
	}
	step("Isthmus with the fall-back: pinged %d pairs", len(callers)*len(called))
	return m, nil
}

// awaitFallback waits until the relay carries for the client.
func (c *teredoClient) awaitFallback(ctx context.Context) error {
	var state struct {
		Bound bool `json:"fallback_bound"`
	}
	err := poll(ctx, daemonStart, 10*time.Millisecond, func(ctx context.Context) (bool, error) {
		err := c.isthmus().state(ctx, &state)
		return state.Bound, err
	})
	if err != nil {
		return fmt.Errorf("the relay does not carry for %s (%s NAT): %w", c.name, c.kind, err)
	}
	return nil
}

// addFallback adds the matrix with the fall-back to the report. A pair that does
// not connect is wrong: nothing is left that it could lack.
func (m *matrix) addFallback(r *report.Report) {
	t := m.pairTable(isthmus)
	t.Title = "Isthmus at both ends with a relay that carries between clients, cold: answered pings, and time of the first in ms"
	r.Tables = append(r.Tables, t)
	for _, f := range []struct {
		name  string
		kinds int
	}{{figureFallback, fiveKinds}, {figureSixFallback, len(matrixKinds)}} {
		r.Figures = append(r.Figures, report.Figure{Name: f.name, Isthmus: report.Measured(float64(m.score(f.kinds))), Must: must(matrixName, f.name)})
	}
	for i, row := range m.pairs {
		for j, pings := range row {
			if !connected(pings) {
				r.Fault("with the fall-back %s to %s does not connect (%d of %d pings)", matrixKinds[i], matrixKinds[j], pings.Received(), pings.Sent())
			}
		}
	}
}
