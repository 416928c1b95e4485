// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/lab/report"
	"github.com/isthmus-net/isthmus/sctp/assoc"
)

const (
	// studyAnchor is what the study has measured with default parameters, on average.
	studyAnchor = 227.0 // s
	// studyRTO is the RTO at the cut by which the law says that.
	studyRTO = 7100 * time.Millisecond
)

// studyDefaults are the default parameters by RFC 9260 alone, with an RTO at the cut that has grown to this.
func studyDefaults(rto time.Duration) assoc.Parameters {
	par := studyParameters(rto, studyRetrans, assoc.Defaults().HeartbeatInterval)
	par.RTOMax = assoc.Defaults().RTOMax
	return par
}

// namedParameters are parameters with a name.
type namedParameters struct {
	name string
	par  assoc.Parameters
}

// defaultRows are the rows of the table of default parameters.
func defaultRows() []namedParameters {
	rows := []namedParameters{
		{"RFC 9260 alone", studyDefaults(time.Second)}, {fmt.Sprintf("RFC 9260 alone, the RTO of %v", studyRTO), studyDefaults(studyRTO)},
		{"with RFC 7829", studyDefaults(time.Second)}, {"with early probes", studyDefaults(time.Second)},
	}
	for i := range rows[2:] {
		rows[2+i].par.PotentiallyFailedMaxRetrans = 0
	}
	rows[3].par.EarlyProbe = true
	return rows
}

// defaultsOnWires are those of figures 3 and 4, and of the table: of our media server, and of usrsctp, which has no early
// probes.
func (f *sctpCurves) defaultsOnWires() (ours, theirs []assoc.Parameters) {
	if len(f.backedOff) == 0 {
		return nil, nil
	}
	for _, rto := range f.backedOff {
		ours = append(ours, studyDefaults(rto))
	}
	rows := defaultRows()
	ours = append(ours, rows[2].par)
	return append(ours, rows[3].par), ours
}

// defaults compares what default parameters make of a silent cut, also where the RTO has grown before it to what the
// study's 227 s demand.
func (f *sctpCurves) defaults() error {
	t := report.Table{
		Title:   fmt.Sprintf("Default parameters, median (lowest to highest); the study: %.0f s on average, of an RTO that it does not tell", studyAnchor),
		Columns: []string{"", "by", "RTO at the cut, s", "first data, s", "new data, s", "path inactive, s", "RFC 9260, s", "longest without a delivery, s"},
	}
	for _, row := range defaultRows() {
		virtual, err := f.sweep(row.par)
		if err != nil {
			return err
		}
		with := func(p *assoc.Parameters) bool { return *p == row.par }
		for _, by := range []struct {
			name string
			seen []studySeen
		}{{"Isthmus in virtual time", virtual}, {mediaOnWires, ofWires(f.cuts, with)}, {usrsctpOnWires, ofWires(f.usrsctp, with)}} {
			if len(by.seen) == 0 {
				continue
			}
			cells := []string{row.name, by.name}
			for _, of := range []func(*studySeen) time.Duration{
				(*studySeen).rtoAtCut, func(s *studySeen) time.Duration { return s.first },
				func(s *studySeen) time.Duration { return s.fresh }, (*studySeen).declared,
			} {
				cells = append(cells, spread(inSeconds(by.seen, of).Samples, 2))
			}
			cells = append(cells, fmt.Sprint(lawDown(row.par.RTOMin, row.par.RTOMax, row.par.PathMaxRetrans).Seconds()))
			t.Rows = append(t.Rows, append(cells, spread(inSeconds(by.seen, func(s *studySeen) time.Duration { return s.gap }).Samples, 2)))
		}
	}
	f.tables = append(f.tables, t)
	return nil
}

// rtoAtCut is the RTO at the cut; below 0 if the server does not say it.
func (s *studySeen) rtoAtCut() time.Duration {
	if s.rto == 0 {
		return -1
	}
	return s.rto
}
