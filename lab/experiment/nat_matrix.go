// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/lab"
)

// matrixKinds are the NAT kinds of the matrix, in the order of its rows. The first
// fiveKinds are those for which there are published figures.
var matrixKinds = []lab.NATKind{
	lab.FullCone, lab.AddressRestricted, lab.PortRestricted, lab.SymmetricRandom, lab.SymmetricSequential,
	lab.SymmetricPreserving,
}

const fiveKinds = 5

// matrixPlan says how the matrix is measured.
type matrixPlan struct {
	// Pings of each pair, and the time between them. A pair needs up to
	// three bubbles 2 s apart (RFC 4380 section 5.2.6), so that all pings
	// together must last longer.
	Pings    int
	Interval time.Duration
	// Patience is how long the last ping of a pair that is known to connect may
	// take; 0 is as long as any.
	Patience time.Duration
}

// fullMatrix is the matrix as it is published: nine pings, one a second.
var fullMatrix = matrixPlan{Pings: 9, Interval: time.Second}

// hostInterval is the time between pings to and from the IPv6 host. Nothing is
// repeated there that a longer time would wait for.
const hostInterval = 20 * time.Millisecond

// matrix is what one maker's clients reached.
type matrix struct {
	// pairs holds the pings from row to column.
	pairs [][]lab.PingResult
	// out and in hold the pings of each kind to and from the IPv6 host.
	out, in []lab.PingResult
}

// connected reports whether a pair found each other and stayed connected: the
// last ping was answered.
func connected(r lab.PingResult) bool { return r.Sent() > 0 && r.RTT[r.Sent()-1] >= 0 }

// score is the number of pairs that connect, of the first kinds.
func (m *matrix) score(kinds int) int {
	n := 0
	for _, row := range m.pairs[:kinds] {
		for _, r := range row[:kinds] {
			if connected(r) {
				n++
			}
		}
	}
	return n
}

// measureMatrix measures the matrix with one maker's programs in all roles.
// The caller closes the topology, also after an error.
//
// Each kind has two clients, one that starts and one that is called. Every
// pair of them is cold when its turn comes: what a client learns of one peer
// helps it with no other.
func measureMatrix(ctx context.Context, e *lab.Env, who maker, plan matrixPlan, step func(string, ...any)) (*matrix, *teredoNet, error) {
	n, err := drawTeredo(ctx, e, "matrix-"+string(who), teredoPlan{NATs: slices.Concat(matrixKinds, matrixKinds)})
	if err != nil {
		return nil, nil, err
	}
	m := &matrix{}
	return m, n, m.measure(ctx, n, who, plan, step)
}

func (m *matrix) measure(ctx context.Context, n *teredoNet, who maker, plan matrixPlan, step func(string, ...any)) error {
	if err := n.startAll(ctx, who); err != nil {
		return err
	}
	step("%s: %d clients have their addresses", who.title(), len(n.clients))
	callers, called := n.clients[:len(matrixKinds)], n.clients[len(matrixKinds):]
	if err := m.hosts(ctx, n, callers, called, plan); err != nil {
		return err
	}
	step("%s: pinged the IPv6 host both ways", who.title())
	for range callers {
		m.pairs = append(m.pairs, make([]lab.PingResult, len(called)))
	}
	for round := range callers {
		if err := m.round(ctx, callers, called, round, plan); err != nil {
			return err
		}
		step("%s: pinged %d of %d pairs", who.title(), (round+1)*len(called), len(callers)*len(called))
	}
	return nil
}

// hosts has each caller ping the host, then the host ping each called client:
// both ways cold. They take turns, since the time of the first ping counts.
func (m *matrix) hosts(ctx context.Context, n *teredoNet, callers, called []*teredoClient, plan matrixPlan) error {
	ping := func(from *lab.Node, to netip.Addr, into *[]lab.PingResult) error {
		r, err := from.Ping(ctx, lab.Ping{To: to, Count: plan.Pings, Interval: hostInterval, Timeout: answerWait})
		*into = append(*into, r)
		return err
	}
	for _, c := range callers {
		if err := ping(c.node, hostAddr, &m.out); err != nil {
			return err
		}
	}
	for _, c := range called {
		if err := ping(n.host, c.addr, &m.in); err != nil {
			return err
		}
	}
	return nil
}

// round pings one pair of every row at once, such that no client is in two
// pairs: the ports of sequential NATs are predicted, which a second new peer
// at the same time would upset.
func (m *matrix) round(ctx context.Context, callers, called []*teredoClient, round int, plan matrixPlan) error {
	column := func(row int) int { return (row + round) % len(called) }
	results, err := together(len(callers), func(row int) (lab.PingResult, error) {
		p := lab.Ping{To: called[column(row)].addr, Count: plan.Pings, Interval: plan.Interval}
		if callers[row].expected(row, column(row)) {
			p.Timeout = plan.Patience
		}
		return callers[row].node.Ping(ctx, p)
	})
	for row, r := range results {
		m.pairs[row][column(row)] = r
	}
	return err
}

// together runs f for 0 to n-1 at once and gives the results in order.
func together[T any](n int, f func(int) (T, error)) ([]T, error) {
	results, errs := make([]T, n), make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { results[i], errs[i] = f(i) })
	}
	wait.Wait()
	return results, errors.Join(errs...)
}

// natMatrix is the experiment.
func natMatrix(ctx context.Context, e *lab.Env) (err error) {
	e.Step("NAT matrix: every kind of NAT to every other, and to an IPv6 host; two minutes")
	ours, peer, done, err := measureMatrices(ctx, e, fullMatrix)
	// Last, since with Env.Keep it waits until the person has seen enough.
	defer func() { err = errors.Join(err, done()) }()
	if err != nil {
		return err
	}
	others, err := measureOthers(ctx, e, fullMatrix)
	if err != nil {
		return err
	}
	r := matrixReport(ours, peer, missing(e, miredo))
	others.addTo(r, missing(e, miredo), fullMatrix)
	return finish(e, r)
}

// measureMatrices measures both makers' matrices side by side; the peer's is
// nil if it cannot run. The caller calls done in any case, which ends the
// topologies.
func measureMatrices(ctx context.Context, e *lab.Env, plan matrixPlan) (ours, peer *matrix, done func() error, err error) {
	makers := []maker{isthmus}
	if missing(e, miredo) == "" {
		makers = append(makers, miredo)
	}
	var mu sync.Mutex
	step := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		e.Step("  "+format, args...)
	}
	nets := make([]*teredoNet, len(makers))
	measured, err := together(len(makers), func(i int) (m *matrix, err error) {
		its := *e
		its.Keep = e.Keep && makers[i] == isthmus
		if m, nets[i], err = measureMatrix(ctx, &its, makers[i], plan, step); err != nil {
			err = fmt.Errorf("%s: %w", makers[i].title(), err)
		}
		return m, err
	})
	done = func() (err error) {
		for _, n := range slices.Backward(nets) { // ours, which may stay, last
			if n != nil {
				err = errors.Join(err, n.Close())
			}
		}
		return err
	}
	if len(measured) > 1 {
		peer = measured[1]
	}
	return measured[0], peer, done, err
}
