// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"time"

	"github.com/isthmus-net/isthmus/lab"
)

// Choices of napt-latency.
const (
	naptLatencyName   = "napt-latency"
	naptLatencyGap    = 300 * time.Microsecond // time for a program to come to rest
	naptLatencyRounds = 60
	naptLatencyLimit  = answerWait // an answer that takes longer is lost
)

// naptSizes are those of the 1998 table, in bytes of the IPv6 packet.
var naptSizes = []int{64, 128, 256, 512, 1024, 1440}

// naptLatencyWays take turns in each round.
var naptLatencyWays = []way{wayDirect4, wayDirect6, wayKernel, wayTayga, wayUser, wayTC, wayXDP}

// naptLatency is the experiment napt-latency.
var naptLatency = lab.Experiment{
	Name:      naptLatencyName,
	Summary:   "round trips through a translator: tc, XDP and user space, tayga, plain kernel forwarding (1998, table 1)",
	NeedsRoot: true,
	Needs:     []string{"tayga"},
	Run:       runNAPTLatency,
}

func runNAPTLatency(ctx context.Context, e *lab.Env) error {
	rounds := cmp.Or(e.Runs, naptLatencyRounds)
	r, done, err := startRig(ctx, e, naptLatencyName, &translating{}, rigPlan{Ways: naptLatencyWays})
	if err != nil {
		return err
	}
	defer done()
	cases, err := r.roundTrips(ctx, e, naptSizes, rounds)
	if err != nil {
		return err
	}
	rep := naptLatencyReport(cases, rounds)
	if err := r.checkPaths(ctx, rep); err != nil {
		return err
	}
	if err := writeSamples(e, naptLatencyName, cases, naptLatencyWays); err != nil {
		return err
	}
	return finish(e, rep)
}

// roundTrips measures echoes of all sizes.
func (r *rig) roundTrips(ctx context.Context, e *lab.Env, sizes []int, rounds int) (cases []*latencyCase, err error) {
	for _, size := range sizes {
		e.Step("%d bytes: %d round trips on each way, one per %v", size, rounds*latencySlice, naptLatencyGap)
		c, err := r.latency(ctx, "", size, rounds)
		if err != nil {
			return nil, err
		}
		cases = append(cases, c)
	}
	return cases, nil
}
