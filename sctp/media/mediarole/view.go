// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/sctp"
	"github.com/isthmus-net/isthmus/sctp/media/fetch"
	"github.com/isthmus-net/isthmus/sctp/media/measure"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// view shows a transfer: on a terminal in place, else line by line. Where standard output has the media or JSON, it is
// standard error that has the rest.
type view struct {
	to    role.Screen
	start time.Time
	w     io.Writer
	lines int // that stand on the terminal
}

// liveEvery is how often a terminal is written to.
const liveEvery = 200 * time.Millisecond

// choose decides how progress is shown.
func (v *view) choose(g *Get, o *fetch.Options) {
	v.w = v.to.Err
	switch {
	case v.to.Live && !g.JSON && g.Output != "-":
		v.w = v.to.Out
		o.Progress, o.Every = v.live, liveEvery
	case g.Every > 0:
		o.Progress, o.Every = v.line, g.Every
	}
}

// live shows the paths of the sender, in place of what was shown before.
func (v *view) live(p fetch.Progress) {
	v.erase()
	fmt.Fprintf(v.w, "%s\n", v.sentence(p))
	v.lines = 1
	if p.Sender == nil {
		return
	}
	t := tabwriter.NewWriter(v.w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  \tPATH OF THE SERVER\tSTATE\tRTO\tSRTT\tCWND\tIN FLIGHT")
	for i := range p.Sender.Paths {
		one := &p.Sender.Paths[i]
		sign := "  "
		if one.Current {
			sign = "->"
		}
		fmt.Fprintf(t, "%s\t%s>%s\t%s\t%v\t%v\t%d\t%d\n", sign, one.Local, one.Remote, state(one), one.RTO, one.SRTT, one.CWND, one.Flight)
	}
	_ = t.Flush()
	v.lines += 1 + len(p.Sender.Paths)
}

// state is that of a path in words.
func state(p *transfer.PathReport) string {
	switch {
	case !p.Confirmed:
		return "unconfirmed"
	case p.InDoubt:
		return "in doubt"
	}
	return sctp.PathState(p.State).String()
}

// line tells how far the transfer is in one line.
func (v *view) line(p fetch.Progress) { fmt.Fprintln(v.w, v.sentence(p)) }

func (v *view) sentence(p fetch.Progress) string {
	text := fmt.Sprintf("%6.1fs  %d of %d octets", time.Since(v.start).Seconds(), p.Octets, p.Total)
	if p.Total > 0 {
		text += fmt.Sprintf(" (%.0f%%)", float64(p.Octets)*100/float64(p.Total))
	}
	text += fmt.Sprintf("  %.2f Mbit/s  TSN %d", p.Rate, p.TSN)
	if p.From.Remote.IsValid() {
		text += fmt.Sprintf("  from %s to %s", p.From.Remote, p.From.Local)
	}
	if p.Sender != nil {
		for i := range p.Sender.Paths {
			if one := &p.Sender.Paths[i]; one.Current {
				text += fmt.Sprintf("  RTO %v  cwnd %d", one.RTO, one.CWND)
			}
		}
	}
	return text
}

// erase takes back what stands on the terminal.
func (v *view) erase() {
	if v.lines > 0 {
		fmt.Fprintf(v.w, "\x1b[%dA\x1b[J", v.lines)
	}
	v.lines = 0
}

// end leaves what stands there.
func (v *view) end() { v.lines = 0 }

// result shows what a transfer came to.
func (v *view) result(r *fetch.Result, g *Get) {
	if g.JSON {
		w := v.to.Out
		if g.Output == "-" {
			w = v.to.Err
		}
		_ = json.NewEncoder(w).Encode(r) // as all output
		return
	}
	w := v.to.Out
	if g.Output == "-" {
		w = v.to.Err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	row := func(what, text string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", what, fmt.Sprintf(text, args...)) }
	row("received", "%d octets in %d messages by %d streams, %v", r.Octets, r.Messages, r.Streams, r.Duration.Round(time.Millisecond))
	if r.ServerSHA256 != "" { // the end has come
		row("SHA-256", "%s", r.SHA256)
		row("of the server", "%s", r.ServerSHA256)
	}
	row("throughput", "%.3f Mbit/s", r.Throughput)
	row("one-way delay", "min %v, mean %v, max %v, deviation %v (true if both clocks are equal)", micro(r.DelayMin), micro(r.DelayMean), micro(r.DelayMax), micro(r.DelayDev))
	row("jitter", "%v (RFC 3550)", micro(r.Jitter))
	row("longest gap", "%v", micro(r.Gap))
	if s := &r.Sender; s.Sent > 0 {
		row("retransmitted", "%.2f%% of %d chunks sent: %d after timeouts, %d fast, %d moved; and %d copies of the early probe",
			100*r.Retransmitted, s.Sent+s.Late+s.Fast+s.Moved, s.Late, s.Fast, s.Moved, s.Copies)
	}
	row("path changes", "%d", len(r.Failovers)+r.ChangesLost)
	for i := range r.Failovers {
		f := &r.Failovers[i]
		row("", "at %.3fs to %s: gap %v, first data %s, new data %s, path down %s, RTO %v", f.LastOld.Sub(v.start).Seconds(), f.To, micro(f.Gap), clock(f.First), clock(f.New), clock(f.Down), f.RTO)
	}
}

func micro(d time.Duration) time.Duration { return d.Round(time.Microsecond) }

func clock(d time.Duration) string {
	if d == measure.Never {
		return "-"
	}
	return micro(d).String()
}
