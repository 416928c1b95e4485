// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of the row with many destinations.
const (
	hopsName   = throughputName + "-hops"
	hopsNumber = 1_000
	hopsMeets  = 6    // rounds in which clients and relay meet
	hopsUneven = 0.4  // share of packets that each next hop gets at least
	hopsCalm   = 50e3 // packets per second that all ways carry
	hopsTries  = 5
)

// hopsWays take turns.
var hopsWays = []way{wayKernel, wayMiredo, wayUser, wayTC, wayXDP}

// manyHops adds the row with many destinations over several next hops.
func manyHops(ctx context.Context, e *lab.Env, rep *report.Report, rounds int) (err error) {
	l, err := e.New(ctx, hopsName)
	if err != nil {
		return err
	}
	defer closing(&err, l.Close)
	e.Step("starting routers with four next hops each")
	h, err := newHops(ctx, e, l)
	if err != nil {
		return err
	}
	defer h.close()
	table := wayTable(fmt.Sprintf("%d destinations over 4 next hops, 64 bytes: thousand packets per second at full load", hopsNumber), hopsWays, "direction")
	table.Notes = []string{"Two next hops in each family, each on a device of its own; packets are of destinations in random order."}
	costs := cpuTable("direction", hopsWays)
	for _, d := range []direction{toIPv4, toIPv6} {
		e.Step("%s, %d destinations: %d rounds", d, hopsNumber, rounds)
		if err := h.judgeShares(rep, d); err != nil {
			return err
		}
		c := newRateCase(d, load.MinTaggedSize)
		for range rounds {
			for _, w := range h.ways {
				if err := ctx.Err(); err != nil {
					return err
				}
				r, _, err := h.slice(w, d, w.way.fullLoad())
				if err != nil {
					return err
				}
				c.add(w.way, r)
			}
		}
		table.Rows = append(table.Rows, c.passedRow(hopsWays, string(d)))
		costs.Rows = append(costs.Rows, c.cpuRow(string(d), hopsWays))
		rep.Figures = append(rep.Figures, report.Figure{
			Name: fmt.Sprintf("%s, %d destinations over 4 next hops: XDP / kernel forwarding, packets per second", d, hopsNumber), Decimals: 2,
			Isthmus: report.Measured(pairs(c.passed[wayKernel], c.passed[wayXDP])...),
		})
	}
	rep.Tables = append(rep.Tables, table, costs)
	return nil
}

// judgeShares looks whether both next hops get their share, under a load that all ways
// carry: what is lost under another tells of queues, and not of next hops. A machine that
// had no processor for a way shows a few packets of it, and is asked again.
func (h *hops) judgeShares(rep *report.Report, d direction) error {
	for _, w := range h.ways {
		if !w.way.ours() {
			continue
		}
		var s [2]float64
		for try := 0; try < hopsTries && (try == 0 || uneven(s)); try++ {
			var err error
			if _, s, err = h.slice(w, d, load.Pace{Rate: hopsCalm, Time: loadSlice}); err != nil {
				return err
			}
		}
		if uneven(s) {
			rep.Fault("%s sent %.0f packets to one next hop and %.0f to the other, %s", w.way.title, s[0], s[1], d)
		}
	}
	return nil
}

func uneven(s [2]float64) bool { return min(s[0], s[1]) < hopsUneven*(s[0]+s[1]) }

// slice loads one way and returns what passes, and how much of it by each next
// hop.
func (h *hops) slice(w *hopsWay, d direction, pace load.Pace) (r rate, shares [2]float64, err error) {
	lane := load.Lane{First: (w.number - 1) * hopsNumber, Count: hopsNumber, Start: rand.IntN(hopsNumber)}
	meters := w.toRight
	client, mapped := w.client(0)
	host := netip.MustParseAddr("2001:db8:8000::2")
	if d == toIPv4 {
		lane.Frame, lane.ToClient, lane.Target = load.Frame6(w.mac[w.cable("a6")], w.mac["a6"], load.Packet(host, netip.AddrFrom16(client), load.MinTaggedSize)), true, 2*(w.number-1)
	} else {
		meters, lane.Target = w.toLeft, 2*(w.number-1)+1
		inner := load.Packet(netip.AddrFrom16(client), host, load.MinTaggedSize)
		lane.Frame = load.Frame6(w.mac[w.cable("a4")], w.mac["a4"], inner)
		if w.way.runs() {
			lane.Frame = load.Frame4(w.mac[w.cable("a4")], w.mac["a4"], mapped, w.relay, inner)
		}
	}
	got, err := h.run(w.way, []load.Lane{lane}, pace, meters[:]...)
	if err != nil {
		return r, shares, err
	}
	for i := range shares {
		shares[i] = float64(got.at[i])
	}
	return got.rate(), shares, nil
}

// close closes what is open; the lab stops the relays.
func (h *hops) close() {
	h.usage.close()
	for _, c := range h.closers {
		_ = c()
	}
}
