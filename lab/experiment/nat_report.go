// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Names of the NAT matrix.
const (
	matrixName    = "nat-matrix"
	firstLostMark = "*"
)

// Sources of a promise that a pair connects.
const (
	byRFC4380 = "RFC 4380"
	bySNS     = "RFC 6081 section 3.1" // symmetric NAT support
	bySS      = "RFC 6081 section 3.4" // sequential port symmetric NAT support
	byPP      = "RFC 6081 section 3.3" // port-preserving symmetric NAT support
)

// promised is the matrix of RFC 6081, figure 1, without UPnP: which text makes the
// pair connect, "" if none does.
var promised = [][]string{
	{byRFC4380, byRFC4380, byRFC4380, bySNS, bySNS, bySNS},
	{byRFC4380, byRFC4380, byRFC4380, bySNS, bySNS, bySNS},
	{byRFC4380, byRFC4380, byRFC4380, "", bySS, byPP},
	{bySNS, bySNS, "", "", "", ""},
	{bySNS, bySNS, bySS, "", "", ""},
	{bySNS, bySNS, byPP, "", bySS, byPP},
}

// expected reports whether a client of one kind is known to connect to another of its
// maker's: with Isthmus what is promised, and all with the fall-back. Miredo has none
// of RFC 6081, and calls from behind the first three kinds alone.
func (c *teredoClient) expected(row, column int) bool {
	if c.who == miredo {
		return row < 2 || row == 2 && column < 3
	}
	return c.net.fallback || promised[row][column] != ""
}

// promisedPairs is the number of pairs of the first kinds that some text makes
// connect.
func promisedPairs(kinds int) int {
	n := 0
	for _, row := range promised[:kinds] {
		for _, text := range row[:kinds] {
			if text != "" {
				n++
			}
		}
	}
	return n
}

// matrixReport compares the matrices. The peer's is nil if it was not
// measured, for the reason given.
func matrixReport(ours, peer *matrix, why string) *report.Report {
	r := &report.Report{
		Experiment: matrixName, Title: "NAT matrix, result", Peer: miredo.title(),
		Tables: []report.Table{ours.pairTable(isthmus)},
		Notes: []string{
			"Published is what RFC 6081 promises when all of it is implemented.",
			"A pair connects if its last ping was answered.",
		},
	}
	if peer != nil {
		r.Tables = append(r.Tables, peer.pairTable(miredo))
	}
	r.Tables = append(r.Tables, hostTable(ours, peer, why))
	value := func(f func(*matrix) float64) (p, i report.Value) {
		p = report.None(why)
		if peer != nil {
			p = report.Measured(f(peer))
		}
		return p, report.Measured(f(ours))
	}
	for _, f := range []struct {
		name      string
		published report.Value
		count     func(*matrix) float64
	}{
		{figurePairs, report.Measured(float64(promisedPairs(fiveKinds))), func(m *matrix) float64 { return float64(m.score(fiveKinds)) }},
		{figureSixPairs, report.Measured(float64(promisedPairs(len(matrixKinds)))), func(m *matrix) float64 { return float64(m.score(len(matrixKinds))) }},
		{figureHostsOutLost, report.Value{}, func(m *matrix) float64 { return lost(m.out) }},
		{figureHostsInLost, report.Value{}, func(m *matrix) float64 { return lost(m.in) }},
		{figureHostsFirstOut, report.Value{}, func(m *matrix) float64 { return firstLost(m.out) }},
		{figureHostsFirstIn, report.Value{}, func(m *matrix) float64 { return firstLost(m.in) }},
	} {
		p, i := value(f.count)
		r.Figures = append(r.Figures, report.Figure{Name: f.name, Published: f.published, Peer: p, Isthmus: i, Must: must(matrixName, f.name)})
	}
	ours.judge(r)
	return r
}

// judge finds wrong behaviour: a pair that a text makes connect and that does not,
// and loss to or from the IPv6 host.
func (m *matrix) judge(r *report.Report) {
	for i, row := range m.pairs {
		for j, pings := range row {
			if text := promised[i][j]; text != "" && !connected(pings) {
				r.Fault("%s to %s does not connect (%d of %d pings), as %s has it", matrixKinds[i], matrixKinds[j], pings.Received(), pings.Sent(), text)
			}
		}
	}
	for i, kind := range matrixKinds {
		if m.out[i].Lost() > 0 {
			r.Fault("%d of %d pings from a client (%s NAT) to the IPv6 host were lost", m.out[i].Lost(), m.out[i].Sent(), kind)
		}
		if m.in[i].Lost() > 0 {
			r.Fault("%d of %d pings from the IPv6 host to a client (%s NAT) were lost", m.in[i].Lost(), m.in[i].Sent(), kind)
		}
	}
}

// pairTable shows the answered pings of every pair.
func (m *matrix) pairTable(who maker) report.Table {
	t := report.Table{
		Title:   fmt.Sprintf("%s at both ends, cold: answered pings from row to column, and time of the first in ms", who.title()),
		Columns: []string{"from \\ to"},
		Notes: []string{
			fmt.Sprintf("%d of %d pairs connect. %s marks a pair whose first ping was lost.", m.score(len(m.pairs)), len(m.pairs)*len(m.pairs), firstLostMark),
		},
	}
	for i, kind := range matrixKinds {
		t.Columns = append(t.Columns, string(kind))
		row := []string{string(kind)}
		for _, pings := range m.pairs[i] {
			row = append(row, withFirst(pings))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// hostTable shows the pings to and from the IPv6 host.
func hostTable(ours, peer *matrix, why string) report.Table {
	t := report.Table{
		Title:   "Client and IPv6 host through a relay, cold: answered pings, and time of the first in ms",
		Columns: []string{"NAT of the client", "Miredo out", "Isthmus out", "Miredo in", "Isthmus in"},
	}
	theirs := func(pick func(*matrix) []lab.PingResult, i int) string {
		if peer == nil {
			return why
		}
		return withFirst(pick(peer)[i])
	}
	out := func(m *matrix) []lab.PingResult { return m.out }
	in := func(m *matrix) []lab.PingResult { return m.in }
	for i, kind := range matrixKinds {
		t.Rows = append(t.Rows, []string{string(kind), theirs(out, i), withFirst(ours.out[i]), theirs(in, i), withFirst(ours.in[i])})
	}
	return t
}

func answered(r lab.PingResult) string {
	text := fmt.Sprintf("%d/%d", r.Received(), r.Sent())
	if r.Received() > 0 && r.First() < 0 {
		text = firstLostMark + text
	}
	return text
}

func withFirst(r lab.PingResult) string {
	if r.First() < 0 {
		return answered(r)
	}
	return fmt.Sprintf("%s %7.2f", answered(r), float64(r.First())/float64(time.Millisecond))
}

func lost(all []lab.PingResult) (n float64) {
	for _, r := range all {
		n += float64(r.Lost())
	}
	return n
}

func firstLost(all []lab.PingResult) (n float64) {
	for _, r := range all {
		if r.First() < 0 {
			n++
		}
	}
	return n
}
