// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"

	"github.com/isthmus-net/isthmus/lab/report"
)

// transportsReport shows figures 8 to 11 of the study.
func transportsReport(f *transportsFound) *report.Report {
	r := &report.Report{
		Experiment: sctpTransportsName, Title: "UDP, TCP, SCTP and MPTCP over WLAN and UMTS", Peer: "d-itg, of SCTP usrsctp",
		Notes: []string{
			fmt.Sprintf("Messages of %d octets at constant times, from the terminal to the server. TCP and MPTCP control congestion by %s and keep Nagle's algorithm, as D-ITG has it; SCTP is one stream of one association in IP, with a send buffer of %d KiB. The kernel fits TCP's buffers to the line.", transportSize, tcpControl, sctpBuffer/4>>10),
			"Ours and usrsctp have the same buffers, and packets of 1500 octets at most. Messages of usrsctp go from our generator to its process, and from that to us, by sockets of the host that hold some four of them, which takes some tenths of a millisecond.",
			"Delay is from the generator's write to the whole message at the receiver; jitter the mean difference of the delays of two messages that follow each other. The first part of each flow is left out, while windows grow.",
			"CPU is what both ends need for each message on all CPUs, our generator, receiving in the kernel and acknowledgements included, on WLAN, where one flow goes on at a time; D-ITG's programs are not counted. Threads of the wire are not, either, but what the host's programs and its kernel do for them is.",
			"The study's curves are pictures: of its text are the knees, 1500 kB/s of SCTP and 2500 kB/s of TCP on WLAN, and the loss of UDP at 70 kB/s on UMTS; that TCP has 20 to 30 % more than SCTP beyond 1500 kB/s, and that delay and jitter of UDP are the lowest, those of SCTP between, and TCP's the highest. A knee here is the highest rate of those offered of which 98 % came through, below the first of which they did not; D-ITG has none, since its generator sends up to a fifth less than it is asked to.",
			"The wires lose nothing but what does not fit their queues. Spurious are chunks of DATA that the receiver had already, of all that were sent, at all rates on UMTS together.",
			fmt.Sprintf("Our senders of datagrams were %.3f ms behind their schedule at most, in the mean of a flow.", inMilliseconds(f.late)),
		},
	}
	if f.umts.carried[0][carriedMPTCP] == nil {
		r.Notes = append(r.Notes, "This kernel has no MPTCP: its columns are empty.")
	}
	addTransportFigures(r, "WLAN", "8", "10", &f.wlan)
	addTransportFigures(r, "UMTS", "9", "11", &f.umts)
	r.Figures = transportFigures(f)
	return r
}

// addTransportFigures adds the tables and the pictures of one line.
func addTransportFigures(r *report.Report, line, delay, throughput string, c *transportCells) {
	for _, k := range []struct {
		name, title, y string
		decimals       int
		of             func(*carried) float64
	}{
		{"delay", "Figure " + delay + ": mean delay, " + line, "delay, ms", 2, func(c *carried) float64 { return inMilliseconds(c.Mean()) }},
		{"jitter", "Jitter, " + line, "jitter, ms", 3, func(c *carried) float64 { return inMilliseconds(c.Jitter()) }},
		{"throughput", "Figure " + throughput + ": throughput, " + line, "throughput, kB/s", 1, func(c *carried) float64 { return kilobytesOf(c) }},
		{"loss", "Loss, " + line, "loss, %", 2, func(c *carried) float64 { return 100 * c.Loss() }},
		{"cpu", "CPU a message, " + line, "CPU, microseconds", 1, func(c *carried) float64 { return c.cpu }},
	} {
		if k.name == "cpu" && c.carried[0][carriedUDP].cpu <= 0 { // no one counts
			continue
		}
		table := report.Table{Title: k.title + ": " + k.y, Columns: []string{"offered, kB/s"}}
		plot := &report.Plot{X: "offered, kB/s", Y: k.y}
		for _, t := range transports {
			table.Columns = append(table.Columns, t.title)
			plot.Curves = append(plot.Curves, report.Curve{Name: t.title, Role: t.role, Dots: t.dots})
		}
		for i, offered := range c.offered {
			row := []string{fmt.Sprint(offered)}
			for j, measured := range c.carried[i] {
				if measured == nil || k.name == "cpu" && measured.cpu <= 0 {
					row = append(row, "-")
					continue
				}
				row = append(row, fmt.Sprintf("%.*f", k.decimals, k.of(measured)))
				plot.Curves[j].Add(float64(offered), report.Measured(k.of(measured)))
			}
			table.Rows = append(table.Rows, row)
		}
		r.Tables = append(r.Tables, table)
		r.AddChart(report.Chart{Name: k.name + "-" + map[string]string{"WLAN": "wlan", "UMTS": "umts"}[line], Title: k.title, Plot: plot})
	}
}

// kilobytesOf is the throughput of messages, in kB/s.
func kilobytesOf(c *carried) float64 { return c.Rate() / 8e3 }

// knee is the highest rate that a transport carries, before the first that it does not.
func (c *transportCells) knee(transport int) report.Value {
	knee := 0
	for i, offered := range c.offered {
		measured := c.carried[i][transport]
		if measured == nil {
			return report.Value{}
		}
		if kilobytesOf(measured) < 0.98*float64(offered) {
			break
		}
		knee = offered
	}
	return report.Measured(float64(knee))
}

// last is what was carried at the highest rate.
func (c *transportCells) last() []*carried { return c.carried[len(c.carried)-1] }

// lost is the loss of a transport at the highest rate, in percent.
func (c *transportCells) lost(transport int) (v report.Value) {
	if measured := c.last()[transport]; measured != nil {
		v = report.Measured(100 * measured.Loss())
	}
	return v
}

// firstLoss is the lowest rate at which a transport loses anything; unknown if it loses nothing.
func (c *transportCells) firstLoss(transport int) (v report.Value) {
	for i, offered := range c.offered {
		if measured := c.carried[i][transport]; measured != nil && measured.Lost > 0 {
			return report.Measured(float64(offered))
		}
	}
	return v
}

// beside is the throughput of one transport over that of another, at each rate that the line does not carry.
func (c *transportCells) beside(one, other int, line float64) (ratios []float64) {
	for i, offered := range c.offered {
		if float64(offered) > line {
			ratios = append(ratios, c.carried[i][one].Rate()/c.carried[i][other].Rate())
		}
	}
	return ratios
}

// spurious is what came twice by a transport of SCTP, in percent of what was sent: at all rates together, and at the worst.
func (c *transportCells) spurious(transport int) (all, worst float64) {
	var sent, twice uint64
	for _, row := range c.carried {
		s := row[transport]
		sent, twice = sent+s.sent, twice+s.twice
		worst = max(worst, 100*float64(s.twice)/float64(max(s.sent, 1)))
	}
	return 100 * float64(twice) / float64(max(sent, 1)), worst
}

func transportFigures(f *transportsFound) []report.Figure {
	published := func(x float64) report.Value { return report.Measured(x) }
	spurious, worst := f.umts.spurious(carriedSCTP)
	theirs, theirWorst := f.umts.spurious(carriedUsrsctp)
	return []report.Figure{
		{Name: "knee on WLAN, SCTP", Unit: "kB/s", Published: published(1500), Peer: f.wlan.knee(carriedUsrsctp), Isthmus: f.wlan.knee(carriedSCTP)},
		{Name: "knee on WLAN, TCP Reno", Unit: "kB/s", Published: published(2500), Isthmus: f.wlan.knee(carriedTCP)},
		{Name: "lowest rate on UMTS at which UDP loses", Unit: "kB/s", Published: published(50), Peer: f.umts.firstLoss(carriedDITGUDP), Isthmus: f.umts.firstLoss(carriedUDP)},
		{Name: fmt.Sprintf("UDP, %d kB/s on UMTS: loss", f.umts.offered[len(f.umts.offered)-1]), Unit: "%", Decimals: 2, Published: published(33.82), Peer: f.umts.lost(carriedDITGUDP), Isthmus: f.umts.lost(carriedUDP)},
		{Name: figureTransportWLAN, Decimals: 3, Peer: report.Measured(pairs(f.full[0], f.full[2])...), Isthmus: report.Measured(pairs(f.full[0], f.full[1])...), Must: must(sctpTransportsName, figureTransportWLAN)},
		{Name: "SCTP / TCP Reno, CPU a message on the full WLAN", Decimals: 2, Peer: report.Measured(timePairs(f.fullCPU[0], f.fullCPU[2])...), Isthmus: report.Measured(timePairs(f.fullCPU[0], f.fullCPU[1])...)},
		{Name: figureTransportUMTS, Decimals: 3, Peer: report.Measured(f.umts.beside(carriedUsrsctp, carriedTCP, umtsCarries)...), Isthmus: report.Measured(f.umts.beside(carriedSCTP, carriedTCP, umtsCarries)...), Must: must(sctpTransportsName, figureTransportUMTS)},
		{Name: figureSpurious, Unit: "%", Decimals: 2, Peer: report.Measured(theirs), Isthmus: report.Measured(spurious), Must: must(sctpTransportsName, figureSpurious)},
		{Name: "SCTP on UMTS: spurious retransmissions at the worst rate", Unit: "%", Decimals: 2, Peer: report.Measured(theirWorst), Isthmus: report.Measured(worst)},
		{Name: figureLikeDelay, Unit: "%", Decimals: 2, Isthmus: report.Measured(f.delays...), Must: must(sctpTransportsName, figureLikeDelay)},
		{Name: figureLikeJitter, Unit: "ms", Decimals: 3, Isthmus: report.Measured(f.jitters...), Must: must(sctpTransportsName, figureLikeJitter)},
	}
}
