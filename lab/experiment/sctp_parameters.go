// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
	"github.com/isthmus-net/isthmus/sctp/assoc"
)

const sctpParametersName = "sctp-parameters"

// sctpParameters is the experiment sctp-parameters.
var sctpParameters = lab.Experiment{
	Name:    sctpParametersName,
	Summary: "which parameters of SCTP to choose between WLAN and UMTS: what each costs in a cut and without one, beside the study's own, in virtual time",
	Run:     runSCTPParameters,
}

// parameterRow is a choice of parameters, and what it has cost.
type parameterRow struct {
	name string
	par  assoc.Parameters

	gap      report.Value // the longest time without a delivery over a silent cut, s
	down     report.Value // cut to the path inactive, s
	back     report.Value // return of the wire to data by it, s
	repeated report.Value // sent again without a cut: by UMTS with its jitter, %
	strayed  report.Value // the same by WLAN that loses 3 %: times in an hour that data left a path that was whole
}

// parameterRows are the sweep, and what the study and the RFCs have.
func parameterRows(short bool) (rows []*parameterRow) {
	add := func(name string, par assoc.Parameters) { rows = append(rows, &parameterRow{name: name, par: par}) }
	add("the study's figure 2", studyParameters(4*time.Second, 5, 10*time.Second))
	add("the study's figure 12", studyParameters(180*time.Millisecond, 2, 10*time.Second))
	alone := assoc.Defaults()
	alone.EarlyProbe, alone.PotentiallyFailedMaxRetrans = false, alone.PathMaxRetrans
	add("defaults of RFC 9260", alone)
	failing := assoc.Defaults()
	failing.EarlyProbe = false
	add("defaults, RFC 7829", failing)
	add("defaults, early probes", assoc.Defaults())
	lows, retrans, beats := inTime(0.1, 0.2, 0.5, 1), []int{1, 2, 5}, inTime(1, 5, 30)
	if short {
		lows, retrans, beats = inTime(0.2), []int{2}, inTime(1)
	}
	for _, early := range []bool{false, true} {
		for _, low := range lows {
			for _, most := range retrans {
				for _, beat := range beats {
					par := assoc.Defaults()
					par.RTOMin, par.RTOInitial, par.RTOMax = low, time.Second, 10*time.Second
					par.PathMaxRetrans, par.HeartbeatInterval, par.EarlyProbe = most, beat, early
					add("", par)
				}
			}
		}
	}
	return rows
}

func runSCTPParameters(_ context.Context, e *lab.Env) error {
	short := e.Runs > 0 && e.Runs < longRun
	rows, runs := parameterRows(short), studyRuns/2
	if short {
		runs = 1
	}
	for i, row := range rows {
		if i%10 == 0 {
			e.Step("%d of %d choices", i, len(rows))
		}
		if err := row.measure(runs, short); err != nil {
			return err
		}
	}
	return finish(e, sctpParametersReport(rows))
}

// measure plays a cut, and hours without one.
func (r *parameterRow) measure(runs int, short bool) error {
	down := lawDown(max(r.par.RTOMin, 200*time.Millisecond), r.par.RTOMax, r.par.PathMaxRetrans)
	over, err := studySweep(studyCase{
		par: r.par, wires: studyWires(false), lead: 5 * time.Second, every: studyEvery,
		cut: min(2*down, 2*time.Minute) + 2*time.Second, tail: r.par.HeartbeatInterval + 2*r.par.RTOMin + 2*time.Second,
	}, runs)
	if err != nil {
		return err
	}
	r.gap = inSeconds(over, func(s *studySeen) time.Duration { return s.gap })
	r.down = inSeconds(over, (*studySeen).declared)
	r.back = inSeconds(over, func(s *studySeen) time.Duration { return s.back })
	quiet := 2 * time.Minute
	if short {
		quiet = 10 * time.Second
	}
	wires := studyWires(true)
	jittered, err := studySweep(studyCase{par: r.par, wires: [2]lab.WireConfig{wires[1], wires[0]}, lead: quiet, every: studyEvery}, runs)
	if err != nil {
		return err
	}
	r.repeated = repeated(jittered)
	lossy := studyWires(false)
	lossy[0].AtoB.Loss, lossy[0].BtoA.Loss = 0.03, 0.03
	lost, err := studySweep(studyCase{par: r.par, wires: lossy, lead: quiet, every: studyEvery}, runs)
	for i := range lost {
		r.strayed.Samples = append(r.strayed.Samples, float64(lost[i].strayed)*float64(time.Hour)/float64(quiet))
	}
	return err
}

// What a choice may cost while nothing is cut to be recommended.
const (
	mayRepeat = 1.0 // %, on average
	mayStray  = 30  // an hour, of 3 % loss, on average
)

// recommend is the choice that is found the soonest to be cut off, of those that cost little while nothing is; of
// alike ones that which takes the fewest heartbeats. nil: none costs so little.
func recommend(rows []*parameterRow, early bool) (best *parameterRow) {
	for _, r := range rows {
		if r.par.EarlyProbe != early || !r.gap.Known() || mean(r.repeated.Samples) > mayRepeat || mean(r.strayed.Samples) > mayStray {
			continue
		}
		const alike = 0.02 // s
		if best == nil || mean(r.gap.Samples) < mean(best.gap.Samples)-alike ||
			mean(r.gap.Samples) < mean(best.gap.Samples)+alike && r.par.HeartbeatInterval > best.par.HeartbeatInterval {
			best = r
		}
	}
	return best
}

func mean(v []float64) (sum float64) {
	for _, x := range v {
		sum += x / float64(len(v))
	}
	return sum
}

func sctpParametersReport(rows []*parameterRow) *report.Report {
	columns := []string{"", "RTO.Min, s", "RTO.Max, s", "Path.Max.Retrans", "HB.Interval, s", "early probes", "longest without a delivery, s", "cut to path inactive, s", "back by WLAN, s", "repeated by UMTS, %", "moves off a WLAN with 3 % loss, an hour"}
	cells := func(r *parameterRow) []string {
		return []string{
			r.name, fmt.Sprint(r.par.RTOMin.Seconds()), fmt.Sprint(r.par.RTOMax.Seconds()), fmt.Sprint(r.par.PathMaxRetrans), fmt.Sprint(r.par.HeartbeatInterval.Seconds()), fmt.Sprint(r.par.EarlyProbe),
			spread(r.gap.Samples, 2), spread(r.down.Samples, 2), spread(r.back.Samples, 2), spread(r.repeated.Samples, 2), spread(r.strayed.Samples, 0),
		}
	}
	best := report.Table{Title: "Recommended, beside the study's settings and the defaults", Columns: columns}
	for _, early := range []bool{false, true} {
		if r := recommend(rows, early); r != nil {
			named := *r
			named.name = map[bool]string{false: "recommended by the RFCs", true: "recommended with early probes"}[early]
			best.Rows = append(best.Rows, cells(&named))
		}
	}
	all := report.Table{Title: "All choices, RFC 7829 on", Columns: columns}
	for _, r := range rows {
		if r.name != "" {
			best.Rows = append(best.Rows, cells(r))
		} else {
			all.Rows = append(all.Rows, cells(r))
		}
	}
	return &report.Report{
		Experiment: sctpParametersName, Title: "Parameters of SCTP between WLAN and UMTS", Tables: []report.Table{best, all},
		Notes: []string{
			"The engine in virtual time over models of the study's WLAN and UMTS. A silent cut of the WLAN, with UMTS at mean delay; and, with nothing cut, UMTS with the study's jitter as the first way, and a WLAN that loses 3 % each way.",
			fmt.Sprintf("Recommended is what is without a delivery for the shortest time over a cut, of those that repeat no more than %v %% by UMTS, and leave a WLAN that works no more than %d times an hour; of alike ones that with the longest HB.Interval.", mayRepeat, mayStray),
			"The study has left recommended parameters to future work; its own settings stand beside them.",
		},
	}
}
