// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
	"github.com/isthmus-net/isthmus/sctp/assoc"
)

const sctpParametersName = "sctp-parameters"

// sctpParameters is the experiment sctp-parameters.
var sctpParameters = lab.Experiment{
	Name:      sctpParametersName,
	Summary:   "which parameters of SCTP to choose between WLAN and UMTS: what each costs in a cut and without one, and over delay and loss, in virtual time; those to take and the study's own on real wires, beside usrsctp",
	NeedsRoot: true,
	Run:       runSCTPParameters,
}

// parameterRow is a choice of parameters, and what it has cost.
type parameterRow struct {
	name string
	par  assoc.Parameters

	gap      report.Value // the longest time without a delivery over a silent cut, s
	down     report.Value // cut to the path inactive, s
	back     report.Value // return of the wire to data by it, s
	repeated report.Value // sent again without a cut: by UMTS with its jitter, %
	far      report.Value // the same by a UMTS of twice the delay, %
	strayed  report.Value // the same by WLAN that loses 3 %: times in an hour that data left a path that was whole
}

// parameterRows are the sweep, and what the study and the RFCs have.
func parameterRows(short bool) (rows []*parameterRow) {
	add := func(name string, par assoc.Parameters) { rows = append(rows, &parameterRow{name: name, par: par}) }
	add("the study's figure 2", studyParameters(4*time.Second, 5, 10*time.Second))
	add("the study's figure 12", studyParameters(180*time.Millisecond, 2, 10*time.Second))
	alone := assoc.Defaults()
	alone.Strict()
	alone.PotentiallyFailedMaxRetrans = alone.PathMaxRetrans
	add("defaults of RFC 9260", alone)
	failing := assoc.Defaults()
	failing.Strict()
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
					par.PathMaxRetrans, par.HeartbeatInterval = most, beat
					if !early {
						par.Strict()
					}
					add("", par)
				}
			}
		}
	}
	return rows
}

func runSCTPParameters(ctx context.Context, e *lab.Env) error {
	short := e.Runs > 0 && e.Runs < longRun
	rows, runs := parameterRows(short), studyRuns/2
	if short {
		runs = 1
	}
	for i, row := range rows {
		if i%10 == 0 {
			e.Step("%d of %d choices, in virtual time", i, len(rows))
		}
		if err := row.measure(runs, short); err != nil {
			return err
		}
	}
	chosen := chooseParameters(rows)
	if short { // those whose timers are short, without early probes and with them
		chosen = rows[len(rows)-2:]
	}
	e.Step("the choices to compare, over delay and loss")
	grid, err := parameterGrid(chosen, short)
	if err != nil {
		return err
	}
	e.Step("the same on real wires: %d transfers over a cut, and by UMTS's jitter", len(chosen))
	wires, err := parametersOnWires(ctx, sideBySide(e), chosen, short)
	if err != nil {
		return err
	}
	return finish(e, sctpParametersReport(rows, chosen, grid, wires))
}

// chooseParameters are the choices to compare: the recommended ones first, then those of the study and of the RFCs.
func chooseParameters(rows []*parameterRow) (chosen []*parameterRow) {
	for _, early := range []bool{false, true} {
		if r := recommend(rows, early); r != nil {
			named := *r
			named.name = map[bool]string{false: "recommended by the RFCs", true: "recommended with early probes"}[early]
			chosen = append(chosen, &named)
		}
	}
	for _, r := range rows {
		if r.name != "" {
			chosen = append(chosen, r)
		}
	}
	return chosen
}

// law is when the path is inactive, about: by an RTO that UMTS may have.
func (r *parameterRow) law() time.Duration {
	return lawDown(max(r.par.RTOMin, 200*time.Millisecond), r.par.RTOMax, r.par.PathMaxRetrans)
}

// measure plays a cut, and hours without one.
func (r *parameterRow) measure(runs int, short bool) error {
	down := r.law()
	over, err := studySweep(studyCase{
		par: r.par, wires: studyWires(false), lead: 5 * time.Second, every: studyEvery,
		cut: min(2*down, 2*time.Minute) + 2*time.Second, tail: r.par.HeartbeatInterval + 5*r.par.RTOMax/2 + 2*time.Second, // RTO has been backed off
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
	far, err := studySweep(studyCase{par: r.par, wires: [2]lab.WireConfig{changed(wires[1], 2, 0), wires[0]}, lead: quiet, every: studyEvery}, runs)
	if err != nil {
		return err
	}
	r.far = repeated(far)
	lossy := studyWires(false)
	lossy[0] = changed(lossy[0], 1, 0.03)
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
		if r.par.EarlyProbe != early || !r.gap.Known() || mean(r.repeated.Samples) > mayRepeat || mean(r.far.Samples) > mayRepeat || mean(r.strayed.Samples) > mayStray {
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

// changed is a wire with so many times the delay and jitter, that loses a share of all packets.
func changed(w lab.WireConfig, times, loss float64) lab.WireConfig {
	for _, lane := range []*lab.LaneConfig{&w.AtoB, &w.BtoA} {
		lane.Delay = time.Duration(times * float64(lane.Delay))
		lane.Jitter = time.Duration(times * float64(lane.Jitter))
		lane.Loss = loss
	}
	return w
}

// Of UMTS's delay, and of all packets of both wires.
var (
	gridTimes  = []float64{0.5, 1, 2, 4}
	gridLosses = []float64{0, 0.01, 0.03, 0.05}
)

// parameterGrid is what choices cost over delay and loss.
func parameterGrid(chosen []*parameterRow, short bool) (t report.Table, err error) {
	times, losses, quiet, runs := gridTimes, gridLosses, time.Minute, 2
	if short {
		times, losses, quiet, runs = times[2:3], losses[1:2], 5*time.Second, 1
	}
	t.Title = "Over delay and loss: longest without a delivery over a silent cut, s; sent again by UMTS with its jitter and no cut, %"
	t.Columns = []string{"", "lost, %"}
	for _, of := range times {
		t.Columns = append(t.Columns, fmt.Sprintf("UMTS of %v times the delay", of))
	}
	for _, r := range chosen {
		for _, loss := range losses {
			cells := []string{r.name, fmt.Sprint(100 * loss)}
			for _, of := range times {
				wlan, umts := changed(lab.WLAN(), 1, loss), changed(lab.UMTS(), of, loss)
				over, err := studySweep(studyCase{
					par: r.par, wires: [2]lab.WireConfig{wlan, changed(umtsWithoutJitter(), of, loss)}, lead: 5 * time.Second, every: studyEvery, cut: min(2*r.law(), 2*time.Minute) + 2*time.Second,
				}, runs)
				if err != nil {
					return t, err
				}
				by, err := studySweep(studyCase{par: r.par, wires: [2]lab.WireConfig{umts, wlan}, lead: quiet, every: studyEvery}, runs)
				if err != nil {
					return t, err
				}
				cells = append(cells, spread(inSeconds(over, func(s *studySeen) time.Duration { return s.gap }).Samples, 2)+"; "+spread(repeated(by).Samples, 2))
			}
			t.Rows = append(t.Rows, cells)
		}
	}
	return t, nil
}

// parametersLabs are those side by side, of which each has another phase of the heartbeats at the wire's return.
const parametersLabs = 3

// parametersOnWires sets what choices cost on real wires, our media server and usrsctp, beside virtual time: over a silent
// cut, and by UMTS's jitter.
func parametersOnWires(ctx context.Context, e *lab.Env, chosen []*parameterRow, short bool) (t report.Table, err error) {
	over := wireCase{wires: studyWires(false), lead: time.Second, every: wireEvery, labs: parametersLabs, phase: studyHeartbeat}
	var theirs []assoc.Parameters
	for _, r := range chosen {
		over.pars = append(over.pars, r.par)
		if !r.par.EarlyProbe { // which usrsctp has not
			theirs = append(theirs, r.par)
		}
		over.cut = max(over.cut, r.law()*11/10+time.Second)
		over.tail = max(over.tail, r.par.HeartbeatInterval+3*r.par.RTOMin/2+2*time.Second)
	}
	by := over
	by.wires, by.lead, by.cut, by.phase, by.tail = [2]lab.WireConfig{lab.UMTS(), lab.WLAN()}, time.Minute, 0, 0, 0
	if short {
		over.labs, by.labs, by.lead = 1, 1, 2*time.Second
	}
	overPeer, byPeer := over, by
	overPeer.pars, byPeer.pars = theirs, theirs
	working, ctx := errgroup.WithContext(ctx)
	var seen parametersSeen
	working.Go(func() (err error) { seen.cuts[0], seen.cuts[1], err = onWires(ctx, e, &over, &overPeer); return err })
	working.Go(func() (err error) { seen.quiet[0], seen.quiet[1], err = onWires(ctx, e, &by, &byPeer); return err })
	if err := working.Wait(); err != nil {
		return t, err
	}
	return seen.table(chosen, over.cut, over.tail), nil
}

// parametersSeen is what was seen on real wires, of our media server and of usrsctp.
type parametersSeen struct{ cuts, quiet [2][]wireSeen }

// table has a cut and what followed it last no longer than these times.
func (s *parametersSeen) table(chosen []*parameterRow, cut, tail time.Duration) report.Table {
	t := report.Table{Title: fmt.Sprintf("On real wires and in virtual time: median (lowest to highest); runs on wires: %d", max(len(s.cuts[0])/len(chosen), 1)), Columns: []string{""}}
	for _, what := range []string{"longest without a delivery, s", "cut to path inactive, s", "back by WLAN, s", "repeated by UMTS, %"} {
		t.Columns = append(t.Columns, what+": Isthmus", "usrsctp", "virtual")
	}
	for _, r := range chosen {
		of := func(p *assoc.Parameters) bool { return *p == r.par }
		cells := []string{r.name}
		for _, k := range []struct {
			time    func(*studySeen) time.Duration
			within  time.Duration
			virtual report.Value
		}{
			{func(s *studySeen) time.Duration { return s.gap }, cut, r.gap}, {(*studySeen).declared, cut, r.down},
			{func(s *studySeen) time.Duration { return s.back }, tail, r.back},
		} {
			for i := range s.cuts {
				cells = append(cells, s.cell(r, i, secondsOr(timesOnWires(s.cuts[i], k.time, of), k.within)))
			}
			cells = append(cells, spread(k.virtual.Samples, 2))
		}
		for i := range s.quiet {
			cells = append(cells, s.cell(r, i, spread(repeated(ofWires(s.quiet[i], of)).Samples, 2)))
		}
		t.Rows = append(t.Rows, append(cells, spread(r.repeated.Samples, 2)))
	}
	return t
}

// cell is that of our media server or usrsctp, in which some choices cannot be made.
func (*parametersSeen) cell(r *parameterRow, by int, seen string) string {
	if by == 1 && r.par.EarlyProbe {
		return "-"
	}
	return seen
}

// secondsOr are times in seconds, if it came to that in the time that there was for it.
func secondsOr(seen report.Value, within time.Duration) string {
	if !seen.Known() {
		return fmt.Sprintf("not in %.0f", within.Seconds())
	}
	return spread(seen.Samples, 2)
}

func sctpParametersReport(rows, chosen []*parameterRow, grid, wires report.Table) *report.Report {
	columns := []string{"", "RTO.Min, s", "RTO.Max, s", "Path.Max.Retrans", "HB.Interval, s", "early probes", "longest without a delivery, s", "cut to path inactive, s", "back by WLAN, s", "repeated by UMTS, %", "by one of twice the delay, %", "moves off a WLAN with 3 % loss, an hour"}
	cells := func(r *parameterRow) []string {
		return []string{
			r.name, fmt.Sprint(r.par.RTOMin.Seconds()), fmt.Sprint(r.par.RTOMax.Seconds()), fmt.Sprint(r.par.PathMaxRetrans), fmt.Sprint(r.par.HeartbeatInterval.Seconds()), fmt.Sprint(r.par.EarlyProbe),
			spread(r.gap.Samples, 2), spread(r.down.Samples, 2), spread(r.back.Samples, 2), spread(r.repeated.Samples, 2), spread(r.far.Samples, 2), spread(r.strayed.Samples, 0),
		}
	}
	best := report.Table{Title: "Recommended, beside the study's settings and the defaults", Columns: columns}
	for _, r := range chosen {
		best.Rows = append(best.Rows, cells(r))
	}
	all := report.Table{Title: "All choices, RFC 7829 on", Columns: columns}
	for _, r := range rows {
		if r.name == "" {
			all.Rows = append(all.Rows, cells(r))
		}
	}
	return &report.Report{
		Experiment: sctpParametersName, Title: "Parameters of SCTP between WLAN and UMTS", Tables: []report.Table{best, wires, grid, all},
		Notes: []string{
			"The engine in virtual time over models of the study's WLAN and UMTS. A silent cut of the WLAN, with UMTS at mean delay; and, with nothing cut, UMTS with the study's jitter as the first way, also of twice the delay, and a WLAN that loses 3 % each way.",
			fmt.Sprintf("Recommended is what is without a delivery for the shortest time over a cut, of those that repeat no more than %v %% by UMTS, of twice its delay, too, and leave a WLAN that works no more than %d times an hour; of alike ones that with the longest HB.Interval.", mayRepeat, mayStray),
			fmt.Sprintf("On real wires our media server sends to our client, and usrsctp to usrsctp in UDP by wires of its own, a message each %v with each of the choices, which share the wires and the cut; of labs side by side each has a longer cut, so that the wire returns at another phase of the heartbeats. usrsctp has no early probes. It counts missed heartbeats beside timeouts of data, and its clock counts sleeps of 10 ms, which a loaded machine makes longer.", wireEvery),
			"The study has left recommended parameters, and the influence of delay and loss, to future work; its own settings stand beside them.",
		},
	}
}
