// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"os"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// finish shows a report, writes its files if they are wanted, and gives the
// verdict.
func finish(e *lab.Env, r *report.Report) error {
	found := facts(e)
	r.Machine = found[0].Name + " " + found[0].Value + " on " + machine()
	r.Facts = append(found, r.Facts...)
	r.Command, r.Time = commandLine(os.Args), time.Now().UTC().Truncate(time.Second)
	write := r.WriteText
	if e.JSON {
		write = r.WriteJSON
	}
	if err := write(e.Out); err != nil {
		return fmt.Errorf("the report cannot be shown: %w", err)
	}
	if e.Dir != "" {
		if err := r.WriteFiles(e.Dir); err != nil {
			return err
		}
	}
	return r.Verdict(e.Strict)
}
