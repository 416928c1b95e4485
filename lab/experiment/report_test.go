// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// pinged makes the result of nine pings of which some were lost.
func pinged(lost ...int) lab.PingResult {
	r := lab.PingResult{RTT: slices.Repeat([]time.Duration{time.Millisecond}, 9)}
	for _, i := range lost {
		r.RTT[i] = -1
	}
	return r
}

var allLost = []int{0, 1, 2, 3, 4, 5, 6, 7, 8}

// asPromised is a matrix in which just those pairs connect that some text makes
// connect.
func asPromised() *matrix {
	m := &matrix{}
	for _, row := range promised {
		var results []lab.PingResult
		for _, text := range row {
			if text != "" {
				results = append(results, pinged())
			} else {
				results = append(results, pinged(allLost...))
			}
		}
		m.pairs = append(m.pairs, results)
		m.out, m.in = append(m.out, pinged()), append(m.in, pinged())
	}
	return m
}

func TestMatrixVerdict(t *testing.T) {
	for _, c := range []struct {
		situation string
		change    func(*matrix)
		want      error  // without strict
		text      string // in the report
	}{
		{"as the texts promise", func(*matrix) {}, nil, "27 of 36 pairs connect"},
		{"a pair of RFC 4380 fails", func(m *matrix) { m.pairs[0][2] = pinged(allLost...) }, report.ErrWrong,
			"full-cone to port-restricted does not connect (0 of 9 pings)"},
		{"a pair of symmetric NAT support fails", func(m *matrix) { m.pairs[3][1] = pinged(allLost...) }, report.ErrWrong,
			"symmetric-random to address-restricted does not connect"},
		{"a pair of sequential NAT support fails", func(m *matrix) { m.pairs[4][2] = pinged(allLost...) }, report.ErrWrong,
			"symmetric-sequential to port-restricted does not connect"},
		{"a pair of port-preserving NAT support fails", func(m *matrix) { m.pairs[5][5] = pinged(allLost...) }, report.ErrWrong,
			"symmetric-preserving to symmetric-preserving does not connect"},
		{"a pair breaks off", func(m *matrix) { m.pairs[1][1] = pinged(8) }, report.ErrWrong, "(8 of 9 pings)"},
		{"the first ping of a pair is lost", func(m *matrix) { m.pairs[1][1] = pinged(0) }, nil, firstLostMark + "8/9"},
		{"a pair that nothing promises connects", func(m *matrix) { m.pairs[3][3] = pinged() }, nil, "28 of 36 pairs connect"},
		{"a ping to the host is lost", func(m *matrix) { m.out[4] = pinged(3) }, report.ErrWrong,
			"1 of 9 pings from a client (symmetric-sequential NAT) to the IPv6 host were lost"},
		{"the first ping from the host is lost", func(m *matrix) { m.in[0] = pinged(0) }, report.ErrWrong,
			"lost first pings from the IPv6 host is 1, must be <= 0"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			m := asPromised()
			c.change(m)
			r := matrixReport(m, nil, "needs root")
			if err := r.Verdict(false); !errors.Is(err, c.want) {
				t.Errorf("verdict is %v, want %v", err, c.want)
			}
			var b strings.Builder
			if err := r.WriteText(&b); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(b.String(), c.text) || !strings.Contains(b.String(), "needs root") {
				t.Errorf("the report lacks %q or why Miredo is not there:\n%s", c.text, b.String())
			}
		})
	}
}

func TestPromisedMatrixIsThatOfTheRFC(t *testing.T) {
	if got := promisedPairs(fiveKinds); got != 19 {
		t.Errorf("%d pairs of five kinds are promised, want 19", got)
	}
	if got := promisedPairs(len(matrixKinds)); got != 27 {
		t.Errorf("%d pairs of six kinds are promised, want 27", got)
	}
	for i, row := range promised {
		for j, text := range row {
			// The one pair of figure 1 that depends on who begins.
			if matrixKinds[i] == lab.SymmetricPreserving && matrixKinds[j] == lab.SymmetricSequential ||
				matrixKinds[j] == lab.SymmetricPreserving && matrixKinds[i] == lab.SymmetricSequential {
				continue
			}
			if (text == "") != (promised[j][i] == "") {
				t.Errorf("%s to %s is promised one way only", matrixKinds[i], matrixKinds[j])
			}
		}
	}
}

// twice is a list of two rounds.
func twice[T any](v T) []T { return []T{v, v} }

func TestTourVerdict(t *testing.T) {
	good := func() *tour {
		return &tour{
			start: []time.Duration{8 * time.Millisecond}, nat: natReport{Kind: "endpoint-independent mapping"},
			firstOut: twice(pinged()), firstIn: twice(pinged()), steady: twice(pinged()),
			transfer: lab.TransferResult{Bytes: 1e6, Duration: time.Second, Intact: true},
		}
	}
	for _, c := range []struct {
		situation string
		change    func(*tour)
		fault     string
	}{
		{"all is well", func(*tour) {}, ""},
		{"first packet out lost", func(x *tour) { x.firstOut[1] = pinged(0) }, "1 of 18 first packets to the IPv6 host were lost"},
		{"first packet in lost", func(x *tour) { x.firstIn[0] = pinged(0) }, "first packets from the IPv6 host were lost"},
		{"loss on a known way", func(x *tour) { x.steady[1] = pinged(4) }, "1 of 18 pings on a known way were lost"},
		{"data changed", func(x *tour) { x.transfer.Intact = false }, "did not arrive as it was sent"},
		{"wrong kind of NAT", func(x *tour) { x.nat.Symmetric = true }, "takes its port-restricted NAT"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			ours := good()
			c.change(ours)
			faults := strings.Join(tourReport(ours, good(), "").Faults, "\n")
			if c.fault == "" && faults != "" || !strings.Contains(faults, c.fault) {
				t.Errorf("faults are %q, want %q", faults, c.fault)
			}
		})
	}
}

func TestStartReportMarksMisses(t *testing.T) {
	ms := time.Millisecond
	ours := &starts{dual: []time.Duration{8 * ms, 21 * ms, 22 * ms}, single: []time.Duration{20 * ms}, out: []float64{2}, back: []float64{3.004}, in: []float64{2}}
	missed := startReport(ours, nil, "needs root").Missed()
	if len(missed) != 1 || !strings.Contains(missed[0], figureStartDual) {
		t.Errorf("missed are %q, want the start with two addresses alone", missed)
	}
}

// The page of the lab has all experiments.
func TestPageNamesExperiments(t *testing.T) {
	page, err := os.ReadFile("../../docs/lab.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range All {
		if !strings.Contains(string(page), "`"+x.Name+"`") {
			t.Errorf("docs/lab.md says nothing of %s", x.Name)
		}
	}
}

// Every bound belongs to an experiment that there is.
func TestMustsNameExperiments(t *testing.T) {
	for _, b := range Musts {
		if _, err := lab.Find(All, b.Experiment); err != nil {
			t.Errorf("%s: %v", b.Figure, err)
		}
		if must(b.Experiment, b.Figure) == nil {
			t.Errorf("%s is not found", b.Figure)
		}
	}
}
