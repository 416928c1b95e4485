// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// A faster run than the one that is shown: a relay is asked 2 s behind the first
// ping, so that the pings must last longer.
func TestNATOthers(t *testing.T) {
	t.Parallel()
	ctx, e := testEnv(t)
	plan := matrixPlan{Pings: 9, Interval: 400 * time.Millisecond, Patience: answerWait}
	o, err := measureOthers(ctx, e, plan)
	if err != nil {
		t.Fatal(err)
	}
	r := &report.Report{Experiment: matrixName, Title: "NAT matrix, others", Peer: miredo.title()}
	o.addTo(r, missing(e, miredo), plan)
	if err := r.WriteText(t.Output()); err != nil {
		t.Fatal(err)
	}
	// Faults are pairs that do not connect. How soon neighbours meet has a test of its
	// own.
	if err := r.Verdict(false); err != nil {
		t.Error(err)
	}
	// Miredo's results are known: others mean that the boxes changed.
	if o.theirs == nil {
		return
	}
	if connected(o.theirs[1]) || connected(o.theirs[2]) {
		t.Error("Miredo's clients find each other behind a NAT that does not hairpin")
	}
}

// allConnected is a matrix in which every pair connects.
func allConnected() *matrix {
	m := asPromised()
	for _, row := range m.pairs {
		for j := range row {
			row[j] = pinged()
		}
	}
	return m
}

func TestOthersVerdict(t *testing.T) {
	plan := matrixPlan{Interval: time.Second}
	cases := func() caseResults {
		var all caseResults
		for range natCases {
			all = append(all, pinged())
		}
		return all
	}
	for _, c := range []struct {
		situation string
		change    func(*others)
		want      error
		text      string
	}{
		{"all is well", func(*others) {}, nil, "36 of 36 pairs connect"},
		{"a pair is not carried", func(o *others) { o.fallback.pairs[3][4] = pinged(allLost...) }, report.ErrWrong,
			"with the fall-back symmetric-random to symmetric-sequential does not connect"},
		{"neighbours do not meet", func(o *others) { o.ours[2] = pinged(allLost...) }, report.ErrWrong, "local_discovery alone: the clients do not connect"},
		{"neighbours meet late", func(o *others) { o.ours[1] = pinged(0) }, report.ErrMissed, "MISS"},
		{"Miredo's fail", func(o *others) { o.theirs = cases(); o.theirs[1] = pinged(allLost...) }, nil, "0/9"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			o := &others{fallback: allConnected(), ours: cases()}
			c.change(o)
			r := &report.Report{Experiment: matrixName}
			o.addTo(r, "needs root", plan)
			if err := r.Verdict(true); !errors.Is(err, c.want) {
				t.Errorf("verdict is %v, want %v", err, c.want)
			}
			var b strings.Builder
			if err := r.WriteText(&b); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(b.String(), c.text) {
				t.Errorf("the report lacks %q:\n%s", c.text, b.String())
			}
		})
	}
}

func TestFirstAnswer(t *testing.T) {
	for _, tt := range []struct {
		pings lab.PingResult
		want  time.Duration
	}{
		{pinged(), time.Millisecond},
		{pinged(0, 1), 2*time.Second + time.Millisecond},
		{pinged(allLost...), -1},
	} {
		if got := firstAnswer(tt.pings, time.Second); got != tt.want {
			t.Errorf("%v, want %v", got, tt.want)
		}
	}
}
