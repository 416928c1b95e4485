// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/lab/report"
	"github.com/isthmus-net/isthmus/sctp"
)

// sctpFailoverReport shows the clocks beside the law, and what the cuts have done.
func sctpFailoverReport(f *sctpFound, curves *sctpCurves) *report.Report {
	r := &report.Report{
		Experiment: sctpFailoverName, Title: "SCTP over silent cuts", Peer: "MPTCP Reno",
		Tables: append([]report.Table{sctpClockTable(f.clocks)}, curves.tables...),
		Charts: curves.charts,
		Notes: []string{
			fmt.Sprintf("A message of %d octets each %v to the terminal, each %v from it, all in one stream. A cut loses what is on its way in both directions; no one is told.", cutSize, cutEvery, cutBack),
			"Clocks count from the cut, and are read where packets leave the server: first data on the other way; new data there; the path inactive, as the server says. The law: an RTO for the first, Path.Max.Retrans + 1 of them for the last (RFC 9260 section 8.2); for new data one with RFC 7829.",
			"Without RFC 7829 new data leaves a path that fails no sooner than it is inactive, but for what the window of the path holds back.",
			"RFC 9260 section 8.2 counts timeouts of data, and heartbeats on an idle address. While data is out its timeouts alone count with us; of a stack that asks and counts all the same, as soon as HB.Interval and half an RTO are over before data is sent again, the table of HB.Interval says when the path may be inactive at the earliest.",
			"Silent cuts, those beside MPTCP at the same time and nothing else: defaults (RTO.Min 1 s, Path.Max.Retrans 5), from the study's WLAN to its UMTS at mean delay, without jitter; the longest time between two deliveries at the terminal.",
			"Beside MPTCP: both go over the same cuts, with the same messages to the terminal; UMTS is a backup subflow (RFC 8684 section 3.3.8), of a new connection for each cut.",
			fmt.Sprintf("Points on real wires are of our media server, which our client gets a source from, and of usrsctp in UDP, a message each %v; all of them share the wires, and the same cut, and labs side by side do the same: a point is the average, with the range. They are read from the packets of both ends, but for the path inactive, which the server says. The source's digest is compared. What the RTO doubles in, default parameters, has wires of its own, and half as many messages. usrsctp has no early probes; its clock counts sleeps of 10 ms, which a loaded machine makes longer.", wireEvery),
			"The pictures are the study's figures 3 to 5 and 7. Its curves stand in images, so that theirs here are its equations, of which there is none for figure 7; what is in virtual time is the engine over models of the same wires, average and range of runs that are cut at other times.",
		},
	}
	worst := report.Value{}
	for _, c := range f.clocks {
		worst.Samples = append(worst.Samples, c.excess())
	}
	if worst.Known() { // all of them count, not their median
		worst.Samples = []float64{slices.Max(worst.Samples)}
	}
	strict, early := sctpBeyond(f.strict, 1, sctp.Defaults().RTOMin), sctpBeyond(f.early, 2, 0)
	r.Figures = []report.Figure{
		{Name: figureSCTPLaw, Decimals: 2, Isthmus: worst, Must: must(sctpFailoverName, figureSCTPLaw)},
		{Name: figureSCTPStrict, Unit: "ms", Decimals: 1, Isthmus: strict, Must: must(sctpFailoverName, figureSCTPStrict)},
		{Name: figureSCTPEarly, Unit: "ms", Decimals: 1, Isthmus: early, Must: must(sctpFailoverName, figureSCTPEarly)},
		{Name: "silent cut, by RFC 7829: longest time between two deliveries", Unit: "ms", Decimals: 1, Isthmus: timesOf(f.strict, sctpCut.silence)},
		{Name: "the same by RFC 7829, 95 % of them", Unit: "ms", Decimals: 1, Isthmus: most95(f.strict, sctpCut.silence)},
		{Name: "silent cut, early probe: longest time between two deliveries", Unit: "ms", Decimals: 1, Isthmus: timesOf(f.early, sctpCut.silence)},
		{Name: "the same, 95 % of them", Unit: "ms", Decimals: 1, Isthmus: most95(f.early, sctpCut.silence)},
		{Name: "these cuts: RTO of the WLAN at the cut, by equation 2 and RTO.Min", Unit: "ms", Decimals: 1, Isthmus: timesOf(slices.Concat(f.strict, f.early), func(c sctpCut) time.Duration { return c.rto })},
		{Name: "silent cut, server with one address: longest time between two deliveries", Unit: "ms", Decimals: 1, Isthmus: timesOf(f.beside, sctpCut.silence), Peer: f.gapsMPTCP()},
		{Name: figureSCTPMPTCP, Decimals: 2, Isthmus: f.ratioMPTCP(), Must: must(sctpFailoverName, figureSCTPMPTCP)},
		{Name: fmt.Sprintf(figureSCTPAlive, f.row), Unit: "%", Isthmus: report.Measured(100 * float64(f.alive) / float64(f.row)), Must: must(sctpFailoverName, figureSCTPAlive)},
		{Name: "the same: longest time between two deliveries", Unit: "ms", Decimals: 1, Isthmus: report.Milliseconds(f.silence)},
		{Name: figureSCTPWrong, Isthmus: report.Measured(float64(f.wrong.Load())), Must: must(sctpFailoverName, figureSCTPWrong)},
	}
	return r
}

// excess is how far a clock is from the law, in what it may be: a round trip and a twentieth of the law.
func (c *sctpClock) excess() float64 {
	worst := 0.0
	for _, pair := range [][2]time.Duration{{c.first, c.firstL}, {c.down, c.downL}} {
		may := c.srtt + pair[1]/20
		worst = max(worst, float64(max(pair[0]-pair[1], pair[1]-pair[0]))/float64(may))
	}
	return worst
}

func sctpClockTable(clocks []sctpClock) report.Table {
	t := report.Table{Title: "Clocks of a silent cut, s", Columns: []string{"RTO", "Path.Max.Retrans", "RFC 7829", "first data", "law", "new data", "path inactive", "law"}}
	for _, c := range clocks {
		second := func(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
		failing := "off"
		if c.failing {
			failing = "on"
		}
		t.Rows = append(t.Rows, []string{second(c.rto), fmt.Sprint(c.most), failing, second(c.first), second(c.firstL), second(c.fresh), second(c.down), second(c.downL)})
	}
	return t
}

// gapsMPTCP are the times without a delivery by MPTCP, or why there are none.
func (f *sctpFound) gapsMPTCP() report.Value {
	if f.noMPTCP != "" {
		return report.None(f.noMPTCP)
	}
	return timesOf(f.mptcp, sctpCut.silence)
}

// ratioMPTCP is the gap of MPTCP to ours, medians both.
func (f *sctpFound) ratioMPTCP() report.Value {
	theirs, ours := f.gapsMPTCP(), timesOf(f.beside, sctpCut.silence)
	if !theirs.Known() || !ours.Known() {
		return theirs
	}
	return report.Measured(theirs.Median() / ours.Median())
}

// timesOf are times of cuts or moves, in ms.
func timesOf[T any](all []T, of func(T) time.Duration) (v report.Value) {
	for _, one := range all {
		v.Samples = append(v.Samples, inMilliseconds(of(one)))
	}
	return v
}

// most95 is what 95 % of them do not go over.
func most95[T any](all []T, of func(T) time.Duration) report.Value {
	times := slices.Sorted(slices.Values(timesOf(all, of).Samples))
	if len(times) == 0 {
		return report.Measured(0)
	}
	return report.Measured(times[(len(times)*95+99)/100-1])
}

func (c sctpCut) silence() time.Duration { return c.gap }

// sctpBeyond is how much longer silences are than so many round trips of the new way, and another time.
func sctpBeyond(cuts []sctpCut, trips int, and time.Duration) report.Value {
	return timesOf(cuts, func(c sctpCut) time.Duration { return c.gap - time.Duration(trips)*c.rtt - and })
}

func inMilliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
