// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// otherShare is how much of all CPUs others may have before a table says so: what a
// machine does that no one works on.
const otherShare = 0.05

// otherLoad says what else ran, in a few words.
func otherLoad(o lab.Others) string {
	text := fmt.Sprintf("%.2f of %d CPUs were used by programs that are no part of the run", o.CPUs, runtime.NumCPU())
	if o.Stolen >= 0.005 {
		text += fmt.Sprintf(", and %.2f by the hypervisor", o.Stolen)
	}
	return text
}

// finish shows a report, writes its files if they are wanted, and gives the
// verdict.
func finish(e *lab.Env, r *report.Report) error {
	found := facts(e)
	r.Machine = found[0].Name + " " + found[0].Value + " on " + machine()
	r.Facts = append(found, r.Facts...)
	tellLoad(e, r)
	if e.Turns != nil {
		r.Fact("side by side", "%s", strings.Join(e.Turns.Names, ", "))
	}
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

// tellLoad says what else ran, and above the figures if that may have changed them.
func tellLoad(e *lab.Env, r *report.Report) {
	o, ok := e.Others()
	if !ok {
		return
	}
	r.Fact("other load", "%s", otherLoad(o))
	if o.CPUs+o.Stolen > otherShare*float64(runtime.NumCPU()) {
		r.Beside = "Measured beside other load: " + otherLoad(o) + "."
	}
}

// closing closes what a function has used, and keeps the error if there is none yet.
func closing(err *error, close func() error) {
	if e := close(); *err == nil {
		*err = e
	}
}
