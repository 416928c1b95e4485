// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package report holds what an experiment found and writes it: as tables for
// a terminal, as CSV and JSON for programs, and as a chart and one HTML page.
//
// A Table is a grid of text. A Figure is one measured number that stands
// beside what was published and what a peer reached on the same work:
//
//	published | Miredo | Isthmus | ratio | must
//
// Wrong behaviour and slow behaviour are kept apart. Wrong behaviour is a
// fault and always an error. A figure outside its must is shown with the word
// MISS; it is an error only to those who ask for a strict verdict.
package report

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Report is what one run of an experiment found.
type Report struct {
	// Experiment is the name by which it was started.
	Experiment string `json:"experiment"`
	// Title says what was done, in a few words.
	Title string `json:"title"`
	// Tables come before the figures.
	Tables []Table `json:"tables,omitempty"`
	// Peer is the name over the peer's column, "Miredo" for example; empty if
	// nothing stands beside Isthmus.
	Peer string `json:"peer"`
	// Figures are measured numbers beside others.
	Figures []Figure `json:"figures,omitempty"`
	// Charts are pictures beside the one that is made of the figures.
	Charts []Chart `json:"charts,omitempty"`
	// Notes explain the figures, one sentence each.
	Notes []string `json:"notes,omitempty"`
	// Beside reports load that was not the run's own, a sentence that stands under
	// every table; empty if there was none to speak of.
	Beside string `json:"beside,omitempty"`
	// Machine says what was measured and on what.
	Machine string `json:"machine,omitempty"`
	// Facts about machine and set-up: kernel, load, offloads and the like.
	Facts []Fact `json:"facts,omitempty"`
	// Command is what made the report, as typed.
	Command string `json:"command,omitempty"`
	// Time is when the experiment ended.
	Time time.Time `json:"time,omitzero"`
	// Faults is wrong behaviour, one sentence each.
	Faults []string `json:"faults,omitempty"`
}

// Fact is one thing to know about how figures came about.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Fact adds what should be known beside the figures.
func (r *Report) Fact(name, format string, args ...any) {
	r.Facts = append(r.Facts, Fact{name, fmt.Sprintf(format, args...)})
}

// Table is a grid of text with a title. Every row has as many cells as there
// are columns; the first column names the row.
type Table struct {
	Title   string     `json:"title"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
	Notes   []string   `json:"notes,omitempty"`
}

// Errors that Verdict wraps.
var (
	// ErrWrong reports wrong behaviour.
	ErrWrong = errors.New("wrong behaviour")
	// ErrMissed reports figures outside their musts.
	ErrMissed = errors.New("figures outside their musts")
)

// Fault adds a sentence about wrong behaviour.
func (r *Report) Fault(format string, args ...any) {
	r.Faults = append(r.Faults, fmt.Sprintf(format, args...))
}

// Missed lists the figures outside their musts.
func (r *Report) Missed() []string {
	var missed []string
	for _, f := range r.Figures {
		if f.Missed() {
			missed = append(missed, fmt.Sprintf("%s is %s, must be %s", f.Name, f.number(f.Isthmus.Median()), f.mustText()))
		}
	}
	return missed
}

// Verdict is nil if the experiment went well: no fault and, when strict, no
// figure outside its must.
func (r *Report) Verdict(strict bool) error {
	if len(r.Faults) > 0 {
		return fmt.Errorf("%w: %s", ErrWrong, strings.Join(r.Faults, "; "))
	}
	if missed := r.Missed(); strict && len(missed) > 0 {
		return fmt.Errorf("%w: %s", ErrMissed, strings.Join(missed, "; "))
	}
	return nil
}

// grid is the table of the figures. A column in which nothing stands is left
// out, but for that of Isthmus and the musts.
func (r *Report) grid() Table {
	t := Table{Title: r.Title, Columns: []string{"figure", "published", r.Peer, "Isthmus", "Isthmus / " + r.Peer, "must"}, Notes: r.Notes}
	if r.Machine != "" {
		t.Notes = append(t.Notes[:len(t.Notes):len(t.Notes)], "Measured: "+r.Machine)
	}
	for _, f := range r.Figures {
		must := f.mustText()
		if f.Missed() {
			must += " " + missMark
		}
		t.Rows = append(t.Rows, []string{f.label(), f.text(f.Published), f.text(f.Peer), f.text(f.Isthmus), f.ratioText(), must})
	}
	for _, column := range []int{4, 2, 1} { // from the right, so that numbers hold
		if !slices.ContainsFunc(t.Rows, func(row []string) bool { return row[column] != absentMark }) {
			t.drop(column)
		}
	}
	return t
}

// drop removes a column.
func (t *Table) drop(column int) {
	t.Columns = slices.Delete(t.Columns, column, column+1)
	for i := range t.Rows {
		t.Rows[i] = slices.Delete(t.Rows[i], column, column+1)
	}
}

// summary draws the figures that were measured; each has a scale of its own,
// since units differ and the ratio is what counts. Its ok is false if there is
// nothing to draw.
func (r *Report) summary() (c Chart, ok bool) {
	b := &Bars{Apart: true}
	for _, f := range r.Figures {
		if !f.Isthmus.Known() {
			continue
		}
		b.Groups = append(b.Groups, r.group(f))
	}
	return Chart{Title: r.Title, Bars: b}, len(b.Groups) > 0
}

// group draws one figure.
func (r *Report) group(f Figure) Group {
	return Group{
		Label: f.label(), Decimals: &f.Decimals, Must: f.Must,
		Bars: []Bar{{"published", Published, f.Published}, {r.Peer, Peer, f.Peer}, {"Isthmus", Ours, f.Isthmus}},
	}
}

// all lists every table, that of the figures last.
func (r *Report) all() []Table {
	tables := r.others()
	if len(r.Figures) > 0 {
		t := r.grid()
		t.Notes = r.note(t.Notes)
		tables = append(tables, t)
	}
	return tables
}

// others lists the tables beside that of the figures.
func (r *Report) others() []Table {
	tables := slices.Clone(r.Tables)
	for i := range tables {
		tables[i].Notes = r.note(tables[i].Notes)
	}
	return tables
}

// note adds to the notes of a table what load it was measured beside.
func (r *Report) note(notes []string) []string {
	if r.Beside == "" {
		return notes
	}
	return append(slices.Clip(notes), r.Beside)
}
