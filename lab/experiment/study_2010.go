// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"path/filepath"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// study2010 is all of the SCTP study, with one page of its figures and tables.
var study2010 = lab.Experiment{
	Name:      "study-2010",
	Summary:   "every figure and table of the SCTP study of 2010, those that wait more than they work side by side, and with --out one page of them",
	NeedsRoot: true,
	Run: func(ctx context.Context, e *lab.Env) error {
		return onOnePage(ctx, e, "The SCTP study of 2010, and Isthmus", studyStages)
	},
}

// studyStage is experiments side by side, and how long they take on two cores.
type studyStage struct {
	about       time.Duration
	experiments []lab.Experiment
}

// studyStages have table 1, figures 2 to 12, and what the study left open. Side by side are labs of some hundred packets a
// second that wait for timers; what fills a line has the machine for itself.
var studyStages = []studyStage{
	{time.Minute, []lab.Experiment{umtsWLAN}},
	{14 * time.Minute, []lab.Experiment{sctpTSN, sctpFailover, sctpRestore, sctpSeamless}},
	{3 * time.Minute, []lab.Experiment{sctpParameters}},
	{6 * time.Minute, []lab.Experiment{sctpTransports}},
	{3 * time.Minute, []lab.Experiment{sctpStreamsExperiment}},
	{6 * time.Minute, []lab.Experiment{sctpHandover}},
	{10 * time.Second, []lab.Experiment{sctpPrefixes}},
}

// onOnePage runs one stage after the other, and gathers what they have found.
func onOnePage(ctx context.Context, e *lab.Env, title string, stages []studyStage) error {
	var err error
	for i, s := range stages {
		left := time.Duration(0)
		for _, s := range stages[i:] {
			left += s.about
		}
		e.Step("stage %d of %d; what is left takes about %.0f minutes", i+1, len(stages), math.Ceil(left.Minutes()))
		if err = errors.Join(err, s.run(ctx, e)); ctx.Err() != nil {
			return err
		}
	}
	if e.Dir == "" {
		return err
	}
	runs, _, failed := report.Gather(e.Dir)
	if failed == nil {
		page := filepath.Join(e.Dir, "index.html")
		if failed = report.WriteIndexFile(page, title, ".", runs); failed == nil {
			e.Step("%s: %d experiments", page, len(runs))
		}
	}
	return errors.Join(err, failed)
}

// run runs the experiments of a stage, each to its end. Lines of progress say whose they are, and reports stay whole.
func (s *studyStage) run(ctx context.Context, e *lab.Env) error {
	if len(s.experiments) == 1 {
		return lab.RunAll(ctx, s.experiments, e)
	}
	shared, turns := sideBySide(e), &lab.Turns{}
	shared.Turns, shared.Live = turns, false
	reports := &oneByOne{to: e.Out}
	for _, x := range s.experiments {
		turns.Names = append(turns.Names, x.Name)
	}
	var running sync.WaitGroup
	failed := make([]error, len(s.experiments))
	for i, x := range s.experiments {
		running.Go(func() {
			var out bytes.Buffer
			one := *shared
			one.Out, one.Progress = &out, &saying{shared.Progress, x.Name + ": "}
			err := turns.Join(func() error { return lab.RunAll(ctx, []lab.Experiment{x}, &one) })
			_, unwritten := reports.Write(out.Bytes())
			failed[i] = errors.Join(err, unwritten)
		})
	}
	running.Wait()
	return errors.Join(failed...)
}

// saying writes each text behind a word of its own.
type saying struct {
	to   io.Writer
	word string
}

// Write implements io.Writer.
func (s *saying) Write(b []byte) (int, error) {
	if _, err := s.to.Write(append([]byte(s.word), b...)); err != nil {
		return 0, err
	}
	return len(b), nil
}
