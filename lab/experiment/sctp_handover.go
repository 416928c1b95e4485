// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
	"github.com/isthmus-net/isthmus/sctp"
)

const sctpHandoverName = "sctp-handover"

// sctpHandover is the experiment sctp-handover.
var sctpHandover = lab.Experiment{
	Name:      sctpHandoverName,
	Summary:   "figure 12 of the SCTP study: HB.interval against throughput over the return from UMTS to WLAN, of which no one is told",
	NeedsRoot: true,
	Needs:     testbedPrograms,
	Run:       runSCTPHandover,
}

// Choices of sctp-handover.
const (
	// handoverRuns are returns for each interval.
	handoverRuns = 3
	// handoverAway is how long the WLAN is cut, and handoverWindow the time from its return on in which octets count.
	handoverAway                        = 4 * time.Second
	handoverWindow, handoverWindowShort = 15 * time.Second, 3 * time.Second
	handoverMessage                     = 1200
	handoverMost                        = 2
)

// handoverIntervals are the values of HB.interval, those of the short form the first and the last but two.
var handoverIntervals = []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second}

// handoverSetting is what the ends of an association are given.
type handoverSetting struct {
	title string
	role  report.Role
	with  func(interval time.Duration) sctp.Parameters
}

// handoverSettings are that of the study's figure, and the same with an RTO that is longer than a round trip of UMTS, strictly
// by the RFCs; and ours.
var handoverSettings = []handoverSetting{
	{"PMR 2, RTO 180 ms, by RFC 9260 alone", report.Reference, handoverStrict(180 * time.Millisecond)},
	{"PMR 2, RTO 1 s, by RFC 9260 alone", report.Peer, handoverStrict(time.Second)},
	{"defaults, with the early probe", report.Ours, func(interval time.Duration) sctp.Parameters {
		par := sctp.Defaults()
		par.HeartbeatInterval = interval
		return par
	}},
}

// handoverStrict has one RTO, and neither RFC 7829 nor the early probe.
func handoverStrict(rto time.Duration) func(time.Duration) sctp.Parameters {
	return func(interval time.Duration) sctp.Parameters {
		par := sctp.Defaults()
		par.RTOInitial, par.RTOMin, par.RTOMax = rto, rto, rto
		par.PathMaxRetrans, par.PotentiallyFailedMaxRetrans, par.AssociationMaxRetrans = handoverMost, handoverMost, 1000
		par.HeartbeatInterval = interval
		par.Strict()
		return par
	}
}

// handoverPoint is what was measured with one setting and one interval.
type handoverPoint struct {
	interval time.Duration
	rate     report.Value // kB/s in the window
	back     report.Value // ms from the return of the WLAN to the first data by it
}

// runSCTPHandover is the experiment.
func runSCTPHandover(ctx context.Context, e *lab.Env) error {
	intervals, window := handoverIntervals, handoverWindow
	if e.Runs > 0 && e.Runs < longRun {
		intervals, window = []time.Duration{handoverIntervals[0], handoverIntervals[2]}, handoverWindowShort
	}
	points := make([][]handoverPoint, len(handoverSettings))
	shared := sideBySide(e)
	shared.Step("side by side, each setting in a testbed of its own")
	working, all := errgroup.WithContext(ctx)
	for i, setting := range handoverSettings {
		working.Go(func() error {
			return inTestbed(all, shared, sctpHandoverName, testbedMean(), func(ctx context.Context, n *testbedNet, c *cutNet) (err error) {
				points[i], err = n.sweep(ctx, c, setting, intervals, window)
				return err
			})
		})
	}
	if err := working.Wait(); err != nil {
		return err
	}
	return finish(e, handoverReport(points, window))
}

// sweep measures a setting with one interval after the other.
func (n *testbedNet) sweep(ctx context.Context, c *cutNet, s handoverSetting, intervals []time.Duration, window time.Duration) ([]handoverPoint, error) {
	e := n.daemons.env
	var points []handoverPoint
	for _, interval := range intervals {
		p := handoverPoint{interval: interval}
		for range min(cmp.Or(e.Runs, handoverRuns), handoverRuns) {
			if err := n.returns(ctx, c, s.with(interval), window, &p); err != nil {
				return nil, fmt.Errorf("%s, HB.interval %v: %w", s.title, interval, err)
			}
		}
		e.Step("%s, HB.interval %v: %.0f kB/s, data by WLAN after %.0f ms", s.title, interval, p.rate.Median(), p.back.Median())
		points = append(points, p)
	}
	return points, nil
}

// returns has an association send as fast as it can by UMTS, and brings the WLAN back.
func (n *testbedNet) returns(ctx context.Context, c *cutNet, par sctp.Parameters, window time.Duration, p *handoverPoint) (err error) {
	server, ue, err := c.associate(ctx, par)
	if err != nil {
		return err
	}
	f := &ourFlow{ownFlow: newOwnFlow(), client: server, server: ue}
	defer closing(&err, f.stop)
	var back atomic.Pointer[time.Time] // the first data by WLAN since it was cleared
	ue.Observe(func(at time.Time, p *sctp.Passage) {
		if p.Local == n.addresses[0] {
			back.CompareAndSwap(nil, &at)
		}
	})
	f.run(func() error { return f.send(handoverMessage) })
	f.run(f.receive)
	n.wlan.Cut()
	defer n.wlan.Restore()
	if err := pause(ctx, handoverAway); err != nil {
		return err
	}
	back.Store(nil)
	n.wlan.Restore()
	begin, before := time.Now(), f.got.Load()
	if err := pause(ctx, window); err != nil {
		return err
	}
	p.rate.Samples = append(p.rate.Samples, float64(f.got.Load()-before)/1e3/time.Since(begin).Seconds())
	after := window // and no data has come by it
	if at := back.Load(); at != nil {
		after = at.Sub(begin)
	}
	p.back.Samples = append(p.back.Samples, inMilliseconds(after))
	_, err = f.octets(ctx)
	return err
}

// handoverReport draws throughput and the time to the return over HB.interval.
func handoverReport(points [][]handoverPoint, window time.Duration) *report.Report {
	r := &report.Report{
		Experiment: sctpHandoverName, Title: "HB.interval over the return from UMTS to WLAN",
		Notes: []string{
			fmt.Sprintf("The server sends as fast as it can. The WLAN is cut for %v, and comes back without a word; octets that the terminal gets count from then on, for %v. A window without data by WLAN counts with its length.", handoverAway, window),
			fmt.Sprintf("Medians of %d returns. Each setting has a testbed of its own, side by side, so that no CPU is told beside throughput: sctp-fairness and sctp-transports have that of a message on lines with no other load.", handoverRuns),
			"The study's figure has no numbers in its text: throughput falls as HB.interval grows, since data return with an answered heartbeat. By the RFCs these come each HB.interval and RTO, within half an RTO; their clock begins about when the WLAN goes, so that data wait for what is left of them when it is back.",
			"usrsctp 0.9.5 is not beside us: it leaves the source address of IPv6 packets to the system, and this server has one address, as the study's has: whatever path a terminal with two means, its packets leave by one. On wires to a server with two addresses sctp-restore and sctp-parameters have it.",
			"The figure's RTO.Max of 180 ms is less than the round trip of UMTS: what goes by it is taken for lost again and again, and sent again by the WLAN, whose return is noticed by that, whatever HB.interval is.",
		},
	}
	rates, backs := &report.Plot{X: "HB.interval, s", Y: "throughput, kB/s"}, &report.Plot{X: "HB.interval, s", Y: "first data by WLAN, s"}
	for i, setting := range handoverSettings {
		rate, back := report.Curve{Name: setting.title, Role: setting.role}, report.Curve{Name: setting.title, Role: setting.role}
		for _, p := range points[i] {
			x := p.interval.Seconds()
			rate.Add(x, p.rate)
			var seconds report.Value
			for _, s := range p.back.Samples {
				seconds.Samples = append(seconds.Samples, s/1e3)
			}
			back.Add(x, seconds)
			r.Figures = append(r.Figures,
				report.Figure{Name: fmt.Sprintf("%s: HB.interval %v: throughput", setting.title, p.interval), Unit: "kB/s", Isthmus: p.rate},
				report.Figure{Name: fmt.Sprintf("%s: HB.interval %v: first data by WLAN", setting.title, p.interval), Unit: "ms", Isthmus: p.back})
		}
		rates.Curves, backs.Curves = append(rates.Curves, rate), append(backs.Curves, back)
	}
	r.Charts = []report.Chart{
		{Name: "throughput", Title: "Figure 12: throughput over the return to WLAN", Plot: rates},
		{Name: "return", Title: "Figure 6 in this testbed: from the return of the WLAN to the first data by it", Plot: backs},
	}
	return r
}
