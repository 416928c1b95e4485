// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// spread draws samples around a middle with a tail to the right.
func spread(rng *rand.Rand, n int, middle, width float64) []float64 {
	samples := make([]float64, n)
	for i := range samples {
		samples[i] = middle + width*math.Abs(rng.NormFloat64()) + 3*width*math.Max(0, rng.ExpFloat64()-3)
	}
	return samples
}

// sampleHistogram has every role, a long tail and an average alone.
func sampleHistogram() *Histogram {
	rng := rand.New(rand.NewPCG(1, 2))
	h := &Histogram{Unit: "µs", Bin: 1}
	h.AddAverage("NICI-Teredo, published", Published, 7.56)
	h.AddAverage("Miredo, published", Published, 28.55)
	h.Add("kernel forwarding", Reference, spread(rng, 2000, 6.1, 1))
	h.Add("Miredo", Peer, spread(rng, 2000, 31, 4))
	h.Add("Isthmus, user space", Ours, spread(rng, 2000, 22, 3))
	h.Add("Isthmus, tc", OursTC, spread(rng, 2000, 5.1, 0.8))
	h.Add("Isthmus, XDP", OursXDP, spread(rng, 2000, 6.0, 0.7))
	return h
}

// sampleBars has groups of many bars with ranges.
func sampleBars() *Bars {
	b := &Bars{Unit: "thousand packets per second", Decimals: 0}
	for i, size := range []int{48, 64, 512, 1280} {
		f := 1 / float64(i+1)
		b.Groups = append(b.Groups, Group{Label: fmt.Sprintf("IPv6 to IPv4, %d bytes", size), Bars: []Bar{
			{"published", Published, Measured(61.8 * f)},
			{"kernel forwarding", Reference, Measured(700*f, 820*f, 760*f)},
			{"Miredo", Peer, Measured(180*f, 170*f, 190*f)},
			{"Isthmus, user space", Ours, Measured(300*f, 310*f, 250*f)},
			{"Isthmus, tc", OursTC, Measured(1200*f, 1100*f, 1333*f)},
			{"Isthmus, XDP", OursXDP, Measured(2200*f, 2100*f, 2433*f)},
		}})
	}
	return b
}

// samplePlot has curves with ranges, dots, and a curve without points.
func samplePlot() *Plot {
	p := &Plot{X: "RTO, s", Y: "time to the first data, s", Curves: []Curve{{Name: "theory", Role: Reference}, {Name: "Isthmus", Role: Ours}, {Name: "dots", Role: Peer, Dots: true}, {Name: "none", Role: Peer}}}
	for _, rto := range []float64{0.2, 0.5, 1, 2, 4} {
		p.Curves[0].Add(rto, Measured(6*rto))
		p.Curves[1].Add(rto, Measured(6*rto, 6.1*rto, 6.4*rto))
		p.Curves[2].Add(rto, Measured(5*rto))
	}
	return p
}

// The point of a value is its average, and what is not known has none.
func TestCurvePoints(t *testing.T) {
	c := Curve{}
	c.Add(2, Measured(1, 2, 6))
	c.Add(3, None("needs root"))
	if diff := cmp.Diff([]Point{{X: 2, Y: 3, Low: 1, High: 6}}, c.Points); diff != "" {
		t.Errorf("points differ (-want +got):\n%s", diff)
	}
	rows := (&Plot{X: "x", Y: "y", Curves: []Curve{{Name: "c", Points: []Point{{1.5, 3725361842, 3725361842, 3725361842}}}}}).table("TSN").Rows
	if want := []string{"c", "1.5", "3725361842", "3725361842", "3725361842"}; !cmp.Equal(want, rows[0]) {
		t.Errorf("the row of a TSN is %q, want %q", rows[0], want)
	}
}

func TestHistogramCountsEverySample(t *testing.T) {
	h := &Histogram{Unit: "µs", Bin: 1}
	h.Add("few", Ours, []float64{2.0, 2.5, 3.0, 9.5})
	h.Add("none", Peer, nil)
	h.AddAverage("paper", Published, 7.5)
	want := []Series{
		{Name: "few", Role: Ours, Samples: 4, First: 2, Shares: []float64{50, 25, 0, 0, 0, 0, 0, 25}, Average: 4.25, Median: 2.75, P99: 9.5, P999: 9.5},
		{Name: "paper", Role: Published, Average: 7.5},
	}
	if diff := cmp.Diff(want, h.Series); diff != "" {
		t.Errorf("series differ (-want +got):\n%s", diff)
	}
	table := h.table("Spread")
	wantRows := [][]string{{"2", "50", "0"}, {"3", "25", "0"}, {"9", "25", "0"}}
	if diff := cmp.Diff(wantRows, table.Rows); diff != "" {
		t.Errorf("rows of the CSV differ (-want +got):\n%s", diff)
	}
}

// What is published as shares is drawn as it stands, and what it leaves out is said.
func TestHistogramOfShares(t *testing.T) {
	h := &Histogram{Unit: "µs", Bin: 1}
	h.AddShares("paper", Published, 10000, 2.5, []float64{0, 0, 60, 39, 0.9, 0.1})
	h.AddShares("its tail is left out", Published, 10000, 3.5, []float64{0, 0, 0, 60, 38.6})
	want := []Series{
		{Name: "paper", Role: Published, Samples: 10000, First: 2, Shares: []float64{60, 39, 0.9, 0.1}, Average: 2.5, Median: 2, P99: 3, P999: 4},
		{Name: "its tail is left out", Role: Published, Samples: 10000, First: 3, Shares: []float64{60, 38.6}, Average: 3.5, Median: 3},
	}
	if diff := cmp.Diff(want, h.Series); diff != "" {
		t.Errorf("series differ (-want +got):\n%s", diff)
	}
	_, end := h.span()
	for i, want := range []string{"median 2, p99 3", "median 3, p99 not known, 1.4% beyond"} {
		if got := h.words(h.Series[i], end); got != want {
			t.Errorf("row %d says %q, want %q", i, got, want)
		}
	}
}

func TestQuantileIsASample(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	for _, c := range []struct {
		situation string
		sorted    []float64
		q, want   float64
	}{
		{"99 of 100", hundred, 0.99, 99},
		{"99.9 of 100 is the last", hundred, 0.999, 100},
		{"of one sample", hundred[:1], 0.99, 1},
		{"half of two", hundred[:2], 0.5, 1},
	} {
		t.Run(c.situation, func(t *testing.T) {
			if got := quantile(c.sorted, c.q); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// What the axis does not reach is said.
func TestHistogramTellsOfItsTail(t *testing.T) {
	samples := make([]float64, 1000)
	for i := range samples {
		samples[i] = 5.5
		if i < 6 {
			samples[i] = 4000
		}
	}
	h := &Histogram{Unit: "µs", Bin: 1}
	h.Add("Isthmus", Ours, samples)
	first, end := h.span()
	if first != 0 || end > mostBins {
		t.Errorf("the axis shows bins %d to %d, want them from 0 and few", first, end)
	}
	if got := h.words(h.Series[0], end); !strings.Contains(got, "0.6% beyond") {
		t.Errorf("the row says %q, nothing of the tail", got)
	}
}

// The longest sample of a group fills the room, others are drawn to scale.
func TestBarsAreToScale(t *testing.T) {
	p := axis{to: 50, start: 100, end: 300}
	for _, c := range []struct{ value, want float64 }{{0, 100}, {12.5, 150}, {50, 300}} {
		if got := p.at(c.value); got != c.want {
			t.Errorf("%v is drawn at %v, want %v", c.value, got, c.want)
		}
	}
	c, ok := sample().summary()
	if !ok || len(c.Bars.Groups) != 3 {
		t.Fatalf("the summary is %+v, want three groups", c.Bars)
	}
	start := c.Bars.Groups[0] // Miredo 40 to 50, Isthmus 10 to 50, nothing published
	if got := start.longest(); got != 50 {
		t.Errorf("the longest is %v, want 50", got)
	}
	if got := len(start.known()); got != 2 {
		t.Errorf("the first figure has %d bars, want 2: what was not published has none", got)
	}
}

// A tall chart is cut, and its parts keep one scale.
func TestTallChartsAreCut(t *testing.T) {
	c := Chart{Title: "Rates", Bars: sampleBars()}
	if got := len(c.parts()); got != 1 {
		t.Errorf("a chart of four groups has %d parts", got)
	}
	c.Bars.Groups = append(c.Bars.Groups, sampleBars().Groups...)
	parts := c.parts()
	if len(parts) != 3 || parts[2].Title != "Rates (3 of 3)" || len(parts[2].Bars.Groups) != 2 {
		t.Fatalf("a chart of eight groups has parts %+v", parts)
	}
	for _, p := range parts {
		if _, _, longest := p.Bars.columns(); longest != 2433 {
			t.Errorf("the scale of %s ends at %v, want 2433", p.Title, longest)
		}
	}
}

func TestTicksAreRound(t *testing.T) {
	for _, c := range []struct {
		situation string
		from, to  float64
		want      []float64
	}{
		{"a small range", 0, 40, []float64{0, 10, 20, 30, 40}},
		{"percent", 0, 47, []float64{0, 10, 20, 30, 40}},
		{"not from zero", 33, 95, []float64{40, 60, 80}},
		{"below one", 0, 0.6, []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6}},
		{"nothing", 0, 0, []float64{0}},
	} {
		t.Run(c.situation, func(t *testing.T) {
			got := ticks(c.from, c.to)
			if diff := cmp.Diff(c.want, got, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })); diff != "" {
				t.Errorf("ticks differ (-want +got):\n%s", diff)
			}
		})
	}
}

// Every picture is XML, says what it shows, and survives text that is hostile.
func TestPicturesAreXML(t *testing.T) {
	hostile := `<script>"&' ]]>` + "\x00"
	charts := []Chart{
		{Name: "h", Title: "Latency", Histogram: sampleHistogram()},
		{Name: "b", Title: "Rates", Bars: sampleBars()},
		{Name: "p", Title: "Clocks", Plot: samplePlot()},
		{Name: "q", Title: "No curve", Plot: &Plot{}},
		{Name: "y", Title: "Hostile", Plot: &Plot{X: hostile, Y: hostile, Curves: []Curve{{Name: hostile, Role: Role(hostile), Points: []Point{{1, 1, 0, 2}}}}}},
		{Name: "e", Title: "Empty", Bars: &Bars{}},
		{Name: "n", Title: "Nothing", Histogram: &Histogram{Unit: "µs", Bin: 1}},
		{Name: "z", Title: "Zero", Bars: &Bars{Groups: []Group{{Label: "all lost", Bars: []Bar{{"Isthmus", Ours, Measured(0, 0)}}}}}},
		{Name: "x", Title: hostile, Bars: &Bars{Unit: hostile, Groups: []Group{{Label: hostile, Bars: []Bar{{hostile, Role(hostile), Measured(1)}}}}}},
	}
	for _, c := range charts {
		t.Run(c.Title, func(t *testing.T) {
			text := c.svg()
			var picture struct {
				Title string `xml:"title"`
				Desc  string `xml:"desc"`
				Role  string `xml:"role,attr"`
			}
			if err := xml.Unmarshal([]byte(text), &picture); err != nil {
				t.Fatalf("no XML: %v\n%s", err, text)
			}
			if picture.Title == "" || picture.Role != "img" {
				t.Errorf("the picture does not say what it is: %+v", picture)
			}
			if strings.Contains(text, "<script>") || strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
				t.Errorf("the picture holds what it must not:\n%s", text)
			}
		})
	}
	if err := (&Chart{Title: "no kind"}).WriteSVG(new(strings.Builder)); err == nil {
		t.Error("a chart without a kind is written without complaint")
	}
}

// A page can be made again from the file that a run leaves.
func TestJSONHoldsTheWholeReport(t *testing.T) {
	want := sample()
	want.AddChart(Chart{Name: "spread", Title: "Latency", Histogram: sampleHistogram()})
	want.AddChart(Chart{Name: "rates", Title: "Rates", Bars: sampleBars()})
	want.AddChart(Chart{Name: "clocks", Title: "Clocks", Plot: samplePlot()})
	want.Fact("kernel", "Linux %s", "6.1")
	var b strings.Builder
	if err := want.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	got := new(Report)
	if err := json.Unmarshal([]byte(b.String()), got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what was read differs from what was written (-want +got):\n%s", diff)
	}
}
