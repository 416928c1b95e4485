// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"slices"

	"github.com/isthmus-net/isthmus/lab/report"
)

// publishedRoundTrip is one column of the table of 1998: microseconds for
// naptSizes.
type publishedRoundTrip struct {
	name  string
	times [6]float64
}

// publishedRoundTrips are those of a Windows NT driver on Pentium PCs. The
// forwarder's 632 at 512 bytes is printed as 6320.
var publishedRoundTrips = []publishedRoundTrip{
	{"v4-v4, 1998", [6]float64{246, 262, 297, 364, 487, 603}},
	{"v6-v6, 1998", [6]float64{244, 261, 295, 360, 482, 596}},
	{"forwarder, 1998", [6]float64{397, 448, 508, 632, 871, 1059}},
	{"translator, 1998", [6]float64{424, 463, 540, 658, 918, 1104}},
}

// Columns of publishedRoundTrips.
const (
	publishedForwarder  = 2
	publishedTranslator = 3
)

// naptJudged are the sizes with a must.
var naptJudged = []int{64, 512, 1440}

// leastAdded is the smallest added time that is told from none, in microseconds:
// what a translator adds may be less than what a slice is uncertain by.
const leastAdded = 0.05

// naptLatencyReport is table 1 of 1998 with today's columns beside.
func naptLatencyReport(cases []*latencyCase, rounds int) *report.Report {
	rep := &report.Report{
		Experiment: naptLatencyName, Title: "Round trips through one translator, bare veth", Peer: "tayga",
		Tables: []report.Table{roundTripTable(cases), addedTable(cases), percentilesTable("round trip", cases, naptLatencyWays)},
		Notes: []string{
			"Ratios and differences are those of the medians of slices that followed each other: median (lowest to highest).",
			fmt.Sprintf("%d round trips a size and way, one per %v: echo requests, which the far host's kernel answers.", rounds*latencySlice, naptLatencyGap),
			"Stamps are eBPF's, at the end of inside's cable; two cables lie between the hosts, and one in the columns v4-v4 and v6-v6.",
			"The translators of Isthmus are stateful NAT64, each echo in a session of the ICMP table; tayga is stateless.",
			"The far host's answers may be fragmented. All cables carry 1500 bytes, which Isthmus is told (lowest_ipv6_mtu); tayga cuts the answers of 1440 bytes in two, of which the first counts.",
			fmt.Sprintf("Where a translator adds less than %.2f µs over forwarding, tayga's addition is compared with that.", leastAdded),
		},
	}
	rep.Fact("sender", "AF_PACKET through the interface's own egress, bound to CPU %d", senderCPU)
	rep.Fact("offloads", "segmentation and checksum off at all ends; GRO on at the hosts' ends of the XDP way only, which gives them NAPI")
	bars := &report.Bars{Unit: "µs", Decimals: 1}
	for _, c := range cases {
		rep.Figures = append(rep.Figures, roundTripFigures(c)...)
		bars.Groups = append(bars.Groups, wayBars(c.label(), routed(naptLatencyWays), func(w way) []float64 { return present(medians(c.rounds[w])) }))
		for _, w := range naptLatencyWays {
			if c.lost[w] > 0 && (w.ours() || w == wayKernel) {
				rep.Fault("%s lost %d of %d echo requests of %d bytes", w.title, c.lost[w], rounds*latencySlice, c.size)
			}
		}
	}
	rep.AddChart(report.Chart{Name: "round-trips", Title: "Round trips, µs", Bars: bars})
	return rep
}

// roundTripFigures are the ratios that have a must, and the other hooks beside.
func roundTripFigures(c *latencyCase) (figures []report.Figure) {
	at := slices.Index(naptSizes, c.size)
	forwarder, translator := publishedRoundTrips[publishedForwarder].times[at], publishedRoundTrips[publishedTranslator].times[at]
	for _, w := range []way{wayTC, wayXDP, wayUser} {
		ratio, added := c.overForwarding(w)
		ratio.Published, added.Published = report.Measured(translator/forwarder), report.Measured(translator-forwarder)
		ratios := addedRatios(medians(c.rounds[wayKernel]), medians(c.rounds[w]), medians(c.rounds[wayTayga]))
		against := report.Figure{Name: c.label() + ", " + w.title + ": " + figureTaygaAdded, Decimals: 1, Isthmus: report.Measured(ratios...)}
		if w == wayTC && slices.Contains(naptJudged, c.size) {
			ratio.Must, added.Must = must(naptLatencyName, figureRoundTrip), must(naptLatencyName, figureAdded)
			against.Must = must(naptLatencyName, figureTaygaAdded)
		}
		figures = append(figures, ratio, added, against)
	}
	return figures
}

// overForwarding is how a way's round trips compare with forwarding, beside tayga's.
func (c *latencyCase) overForwarding(w way) (ratio, added report.Figure) {
	forwarding, tayga, mine := medians(c.rounds[wayKernel]), medians(c.rounds[wayTayga]), medians(c.rounds[w])
	label := c.label() + ", " + w.title + ": "
	ratio = report.Figure{
		Name: label + figureRoundTrip, Decimals: 2,
		Peer: report.Measured(timePairs(forwarding, tayga)...), Isthmus: report.Measured(timePairs(forwarding, mine)...),
	}
	added = report.Figure{
		Name: label + figureAdded, Unit: "µs", Decimals: 2,
		Peer: report.Measured(differences(forwarding, tayga)...), Isthmus: report.Measured(differences(forwarding, mine)...),
	}
	return ratio, added
}

// addedRatios are how many times what mine adds over forwarding the other adds.
func addedRatios(forwarding, mine, other []float64) []float64 {
	var ratios []float64
	for i := range min(len(forwarding), len(mine), len(other)) {
		if forwarding[i] > 0 && mine[i] > 0 && other[i] > 0 {
			ratios = append(ratios, (other[i]-forwarding[i])/max(mine[i]-forwarding[i], leastAdded))
		}
	}
	return ratios
}

// present leaves out rounds without samples.
func present(v []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(v), func(x float64) bool { return x == 0 })
}

// roundTripTable is table 1 with today's columns.
func roundTripTable(cases []*latencyCase) report.Table {
	first := []string{"IPv6 packet"}
	for _, p := range publishedRoundTrips {
		first = append(first, p.name)
	}
	t := wayTable(roundTripTitle, naptLatencyWays, first...)
	for _, c := range cases {
		row := []string{c.label()}
		for _, p := range publishedRoundTrips {
			row = append(row, fmt.Sprintf("%.0f", p.times[slices.Index(naptSizes, c.size)]))
		}
		t.Rows = append(t.Rows, c.medianRow(naptLatencyWays, row...))
	}
	return t
}

// roundTripTitle heads tables of round trips.
const roundTripTitle = "round trip, µs: median (lowest to highest slice)"

// medianRow is a row of the medians of slices.
func (c *latencyCase) medianRow(ways []way, first ...string) []string {
	return cells(ways, func(w way) string { return spread(present(medians(c.rounds[w])), 2) }, first...)
}

// addedTable reports what each translator adds.
func addedTable(cases []*latencyCase) report.Table {
	ways := slices.DeleteFunc(slices.Clone(naptLatencyWays), func(w way) bool { return !w.runs() })
	t := wayTable("added over forwarding, µs, and ratio to forwarding: medians of pairs", ways, "IPv6 packet", "1998")
	for _, c := range cases {
		at := slices.Index(naptSizes, c.size)
		forward, translate := publishedRoundTrips[publishedForwarder].times[at], publishedRoundTrips[publishedTranslator].times[at]
		forwarding := medians(c.rounds[wayKernel])
		t.Rows = append(t.Rows, cells(ways, func(w way) string {
			mine := medians(c.rounds[w])
			return fmt.Sprintf("%.2f, %.2f", report.Measured(differences(forwarding, mine)...).Median(), report.Measured(timePairs(forwarding, mine)...).Median())
		}, c.label(), fmt.Sprintf("%.0f, %.2f", translate-forward, translate/forward)))
	}
	return t
}
