// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// study2010 is all of the SCTP study, with one page of its figures and tables.
var study2010 = lab.Experiment{
	Name:      "study-2010",
	Summary:   "every figure and table of the SCTP study of 2010, one experiment after the other, and with --out one page of them",
	NeedsRoot: true,
	Run: func(ctx context.Context, e *lab.Env) error {
		return onOnePage(ctx, e, "The SCTP study of 2010, and Isthmus", studyExperiments)
	},
}

// studyExperiments are those of table 1 and of figures 2 to 12, in their order, and what the study left open.
var studyExperiments = []lab.Experiment{
	umtsWLAN, sctpTSN, sctpFailover, sctpRestore, sctpTransports, sctpStreamsExperiment, sctpHandover, sctpParameters, sctpSeamless, sctpPrefixes,
}

// onOnePage runs experiments, and gathers what they have found.
func onOnePage(ctx context.Context, e *lab.Env, title string, experiments []lab.Experiment) error {
	err := lab.RunAll(ctx, experiments, e)
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
