// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Difference is a ratio that two runs of an experiment have measured.
type Difference struct {
	Experiment    string
	Figure        Figure // what it is, without its values
	First, Second Value
}

// Apart is by how much the larger median exceeds the smaller: 0.15 for 1.15 beside 1.
func (d Difference) Apart() float64 {
	a, b := d.First.Median(), d.Second.Median()
	switch {
	case a == b:
		return 0
	case a*b <= 0:
		return math.Inf(1)
	}
	return max(a/b, b/a) - 1
}

// Comparison sets the ratios of two sets of runs beside each other.
type Comparison struct {
	Ratios []Difference
	// Alone names experiments, and ratios of others, that only one of the sets has.
	Alone []string
	// Beside reports which runs were made beside other load.
	Beside []string
	// Wrong reports what behaved wrongly in which run.
	Wrong []string
}

// Compare compares the newest run of each experiment in two sets, which are ordered as
// Gather orders them.
func Compare(first, second []Run) *Comparison {
	c := &Comparison{}
	a, b := newest(first), newest(second)
	for _, name := range names(a, b) {
		x, y := a[name], b[name]
		if x == nil || y == nil {
			c.Alone = append(c.Alone, name)
			continue
		}
		c.tell(name+", first run: ", x)
		c.tell(name+", second run: ", y)
		c.compare(name, x.ratios(), y.ratios())
	}
	return c
}

// tell notes what does not show in the ratios of a run.
func (c *Comparison) tell(which string, r *Report) {
	if r.Beside != "" {
		c.Beside = append(c.Beside, which+r.Beside)
	}
	for _, fault := range r.Faults {
		c.Wrong = append(c.Wrong, which+"wrong: "+fault)
	}
}

// Alike reports whether both sets say the same. What has vanished from one of them does not: a
// way that passes nothing has no ratio.
func (c *Comparison) Alike(share float64) bool {
	apart := func(d Difference) bool { return d.Apart() > share }
	return len(c.Alone) == 0 && len(c.Wrong) == 0 && !slices.ContainsFunc(c.Ratios, apart)
}

// newest is the first run of each experiment.
func newest(runs []Run) map[string]*Report {
	reports := map[string]*Report{}
	for _, r := range runs {
		if reports[r.Experiment] == nil {
			reports[r.Experiment] = r.Report
		}
	}
	return reports
}

// names are the keys of both maps in order.
func names[V any](a, b map[string]V) (all []string) {
	for name := range a {
		all = append(all, name)
	}
	for name := range b {
		all = append(all, name)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// compare adds the ratios of one experiment.
func (c *Comparison) compare(experiment string, a, b map[string]Figure) {
	for _, name := range names(a, b) {
		x, both := a[name]
		y, other := b[name]
		if !both || !other {
			c.Alone = append(c.Alone, experiment+": "+name)
			continue
		}
		d := Difference{Experiment: experiment, Figure: x, First: x.Isthmus, Second: y.Isthmus}
		d.Figure.Isthmus, d.Figure.Peer = Value{}, Value{}
		c.Ratios = append(c.Ratios, d)
	}
}

// ratios are the figures that are ratios themselves, and the ratios to the peer of
// others, by name.
func (r *Report) ratios() map[string]Figure {
	ratios := map[string]Figure{}
	for _, f := range r.Figures {
		if f.Unit == "" && strings.Contains(f.Name, " / ") {
			if f.Isthmus.Known() {
				ratios[f.Name] = f
			}
			continue
		}
		if ratio, ok := f.Ratio(); ok {
			f.Name += ", Isthmus / " + r.Peer
			f.Unit, f.Decimals, f.Isthmus = "", 2, Measured(ratio)
			ratios[f.Name] = f
		}
	}
	return ratios
}

// Table lists the ratios that are farther apart than share, with the lowest and highest
// samples of each run: a figure that is as wide within a run is not known better.
func (c *Comparison) Table(share float64) Table {
	t := Table{Columns: []string{"figure", "first run", "second run", "apart"}, Notes: slices.Concat(c.Beside, c.Wrong)}
	for _, d := range c.Ratios {
		if apart := d.Apart(); apart > share {
			text := fmt.Sprintf("%.0f %%", 100*apart)
			if math.IsInf(apart, 1) {
				text = absentMark
			}
			t.Rows = append(t.Rows, []string{d.Experiment + ": " + d.Figure.Name, d.Figure.text(d.First), d.Figure.text(d.Second), text})
		}
	}
	t.Title = fmt.Sprintf("%d of %d median ratios are more than %.0f %% apart", len(t.Rows), len(c.Ratios), 100*share)
	if len(c.Alone) > 0 {
		t.Notes = append(t.Notes, "In one of the two alone: "+strings.Join(c.Alone, "; ")+".")
	}
	return t
}
