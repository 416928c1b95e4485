// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

const (
	testbedName       = "umts-wlan"
	testbedStatedName = "umts-wlan-stated"
)

// umtsWLAN is the experiment umts-wlan, and umtsWLANStated the same with the radios that the study states.
var (
	umtsWLAN = testbedExperiment(testbedName, testbedMeasured(),
		"the native IPv6 UMTS-WLAN testbed of the SCTP study, its table 1 beside what its radios carry here, and its levels of interworking")
	umtsWLANStated = testbedExperiment(testbedStatedName, testbedStated(),
		"the same with the round trips that the study states, 180 and 10 ms without jitter")
)

func testbedExperiment(name string, w testbedWorld, summary string) lab.Experiment {
	return lab.Experiment{
		Name: name, Summary: summary, NeedsRoot: true, Needs: testbedPrograms,
		Run: func(ctx context.Context, e *lab.Env) error { return runTestbed(ctx, e, name, w) },
		Up:  func(ctx context.Context, e *lab.Env) (*lab.Lab, error) { return upTestbed(ctx, e, name, w) },
	}
}

// upTestbed draws the testbed, and says what is in it.
func upTestbed(ctx context.Context, e *lab.Env, name string, w testbedWorld) (*lab.Lab, error) {
	begin := time.Now()
	n, err := drawTestbed(ctx, e, name, w)
	if err != nil {
		return nil, err
	}
	e.Step("The testbed is up after %.1f s.", time.Since(begin).Seconds())
	r := &report.Report{Experiment: name, Title: "The study's table 1, and the testbed"}
	if err := n.tableOne(ctx, r, 20, 100*time.Millisecond); err != nil {
		return nil, errors.Join(err, n.close())
	}
	tellLoad(e, r)
	if err := r.WriteText(e.Out); err != nil {
		return nil, errors.Join(err, n.close())
	}
	n.tell()
	return n.lab, nil
}

// tell says who has what address, and what to try.
func (n *testbedNet) tell() {
	e := n.daemons.env
	e.Step("The terminal has %v by WLAN, %v after it was asked who it is (EAP-TLS took %v of these), and %v by UMTS, after %v.",
		n.addresses[0], rounded(n.times.eap+n.times.address), rounded(n.times.eap), n.addresses[1], rounded(n.times.context))
	shell := fmt.Sprintf("%s lab shell --run %s", lab.Command(), n.lab.Name())
	e.Step("The media server is %v. Try:\n  %s ue -- isthmus sctp get %v:5000 voice --discard\n  %s ggsn-umts -- isthmus ggsn contexts\n  %s radius -- ip -6 route",
		testbedMedia, shell, bracketed(testbedMedia), shell, shell)
}

func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

func bracketed(a netip.Addr) string { return "[" + a.String() + "]" }

// runTestbed measures the radios, and goes through the levels of interworking.
func runTestbed(ctx context.Context, e *lab.Env, name string, w testbedWorld) (err error) {
	pings, every := 60, 500*time.Millisecond // over which the radios' jitter has the study's deviation
	if e.Runs > 0 && e.Runs < longRun {
		pings, every = 10, 100*time.Millisecond
	}
	begin := time.Now()
	n, err := drawTestbed(ctx, e, name, w)
	if err != nil {
		return err
	}
	defer closing(&err, n.close)
	r := &report.Report{Experiment: name, Title: "The study's table 1, and the testbed"}
	r.Figures = append(r.Figures,
		report.Figure{Name: figureTestbedUp, Unit: "s", Decimals: 1, Isthmus: report.Measured(time.Since(begin).Seconds()), Must: must(name, figureTestbedUp)},
		report.Figure{Name: "PDP context, from its request to the address", Unit: "ms", Isthmus: report.Milliseconds(n.times.context)},
		report.Figure{Name: "EAP-TLS, from the association to the open port", Unit: "ms", Isthmus: report.Milliseconds(n.times.eap)},
		report.Figure{Name: "address of the WLAN, with duplicate address detection", Unit: "ms", Isthmus: report.Milliseconds(n.times.address)})
	e.Step("rates and round trips of the radios")
	if err := n.tableOne(ctx, r, pings, every); err != nil {
		return err
	}
	if err := n.levels(ctx, r); err != nil {
		return err
	}
	return finish(e, r)
}

// What the rates of radios are measured by: datagrams of UDP, more than a radio carries, for so long once its queue is
// full.
const (
	testbedDatagram = 1300
	testbedHeaders  = 40 + 8
	testbedFill     = time.Second
	testbedMeasure  = 2 * time.Second
)

// tableOne measures rates and round trips between the terminal and the media server, and shows the study's table 1 beside
// them.
func (n *testbedNet) tableOne(ctx context.Context, r *report.Report, pings int, every time.Duration) error {
	trips, err := together(2, func(i int) (lab.PingResult, error) {
		return n.ue.Ping(ctx, lab.Ping{To: testbedMedia, From: n.addresses[i], Count: pings, Interval: every, Timeout: 3 * time.Second})
	})
	if err != nil {
		return err
	}
	for i, t := range trips {
		if t.Lost() > 0 {
			r.Fault("%d of %d pings by %s were lost", t.Lost(), t.Sent(), cutLinks[i])
		}
	}
	var rates [4]float64 // one after the other: emulating WLAN takes much of a processor
	for i := range rates {
		if rates[i], err = n.rate(ctx, i/2, i%2 == 1); err != nil {
			return err
		}
	}
	trip := func(i int) string {
		mean, deviation := trips[i].Mean()
		return fmt.Sprintf("%.1f ms, sd %.1f", inMilliseconds(mean), inMilliseconds(deviation))
	}
	both := func(i int) string { return fmt.Sprintf("%.2f down, %.2f up", rates[2*i]/1e6, rates[2*i+1]/1e6) }
	r.Tables = append(r.Tables, report.Table{
		Title:   "Table 1 of the study, and what its radios do here",
		Columns: []string{"", "3G UMTS", "measured", "802.11a/b/g/n", "measured"},
		Rows: [][]string{
			{"coverage", "wide area, 15-20 km", "-", "local area, 50-800 m", "-"},
			{"data rate, Mbit/s", "low, up to 2", both(1), "high, 5-500", both(0)},
			{"round trip", "high, 150-500 ms", trip(1), "low, 5-50 ms", trip(0)},
			{"security", "strong (AKA)", "CHAP, by RADIUS", "relatively weak (WPA-PSK)", "EAP-TLS, by the same server"},
			{"mobility", "link layer", "-", "layer 3", "-"},
			{"cost", "high", "-", "low", "-"},
		},
		Notes: []string{fmt.Sprintf("Rates are those of packets, by UDP, each direction of each radio by itself; round trips are of %d pings, one each %v.", pings, every)},
	})
	for i, link := range []string{"WLAN", "UMTS"} {
		mean, _ := trips[i].Mean()
		w := n.radios[i]
		r.Figures = append(r.Figures,
			report.Figure{Name: link + ": round trip, mean", Unit: "ms", Decimals: 1, Isthmus: report.Milliseconds(mean),
				Published: report.Measured(n.trips[i])},
			report.Figure{Name: link + ": rate down", Unit: "Mbit/s", Decimals: 2, Isthmus: report.Measured(rates[2*i] / 1e6), Published: report.Measured(float64(w.BtoA.Rate) / 1e6)},
			report.Figure{Name: link + ": rate up", Unit: "Mbit/s", Decimals: 3, Isthmus: report.Measured(rates[2*i+1] / 1e6), Published: report.Measured(float64(w.AtoB.Rate) / 1e6)})
	}
	return nil
}

// rate measures what a radio carries, in bit/s of packets.
func (n *testbedNet) rate(ctx context.Context, radio int, up bool) (float64, error) {
	w := n.radios[radio]
	c := lab.DatagramConfig{From: n.media, To: n.ue, Addr: n.addresses[radio], Size: testbedDatagram}
	carried := w.BtoA.Rate
	if up {
		c.From, c.To, c.Addr, c.Local, carried = n.ue, n.media, testbedMedia, n.addresses[radio], w.AtoB.Rate
	}
	c.Rate = int(float64(carried) * 1.2 / 8 / (testbedDatagram + testbedHeaders))
	c.Skip = int(testbedFill.Seconds() * float64(c.Rate))
	c.Count = c.Skip + int(testbedMeasure.Seconds()*float64(c.Rate))
	r, err := lab.Datagrams(ctx, c)
	return r.Rate(testbedDatagram + testbedHeaders), err
}
