// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"

	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/lab/report"
)

// books are what servers were told, and what the GGSN has written.
type books struct {
	sessions map[string]*booked // by Acct-Session-Id
	charges  accounts           // likewise
	begins   int                // records of Accounting-On; those of one second have one name
	repeated int                // records that were told again
	changed  int                // of these, those that tell something else
}

// booked is a session by what servers were told.
type booked struct {
	imsi             string
	started, stopped bool
	octets           counted // by its Stop, or its last Interim-Update
}

// readBooks reads the files of both servers, and the charging records.
func (n *accountingNet) readBooks() (b *books, err error) {
	b = &books{sessions: map[string]*booked{}}
	for i := range n.servers {
		if err := peers.EachDetail(n.servers[i].detail, b.enter); err != nil {
			return nil, err
		}
	}
	b.charges, err = charged(n.charging())
	return b, err
}

// enter takes a record. Records of a session and status that are told again, because no answer to the first one came, are
// one (RFC 2866 section 2); of Interim-Updates, whose counts only grow, the last one counts.
func (b *books) enter(r peers.Accounting) {
	id, octets := r["Acct-Session-Id"], counted{r.Octets("Input"), r.Octets("Output")}
	if r["Acct-Status-Type"] == "Accounting-On" {
		b.begins++
		return
	}
	one := b.sessions[id]
	if one == nil {
		one = &booked{imsi: r["3GPP-IMSI"]}
		b.sessions[id] = one
	}
	switch r["Acct-Status-Type"] {
	case "Start":
		b.again(one.started, false)
		one.started = true
	case "Stop":
		b.again(one.stopped, one.octets != octets)
		one.stopped, one.octets = true, octets
	default:
		if !one.stopped && octets.up >= one.octets.up {
			one.octets = octets
		}
	}
}

// again counts a record that may have been told before.
func (b *books) again(before, differs bool) {
	if before {
		b.repeated++
		if differs {
			b.changed++
		}
	}
}

// bookkeeping is what the comparison of the books comes to.
type bookkeeping struct {
	ended                   [3]counted // of sessions with a Stop: by the generator, RADIUS and charging records
	radius, charges, status uint64     // octets by which they are off
	stops, starts, ends     int        // records that are missing, and sessions that should not have ended
	closed                  int        // sessions that Accounting-On closes
	sent, kept              counted    // of these: by the generator, and by their last record
	interims                uint64     // octets of these that the last record should have and has not, or has and were not sent
}

// compare compares the books with what the generator has sent.
func (b *books) compare(n *accountingNet) (k bookkeeping) {
	told, byTerminal, sent := accounts{}, accounts{}, accounts{}
	ofTerminal := map[string]*booked{}
	for id, one := range b.sessions {
		ofTerminal[one.imsi] = one
		if one.stopped {
			told[id] = one.octets
			byTerminal[one.imsi] = byTerminal[one.imsi].plus(one.octets)
		}
	}
	var all counted
	for _, of := range []struct {
		links []int
		ends  bool
	}{{n.steady, true}, {n.open, false}, {n.late, true}} {
		for _, link := range of.links {
			imsi, guest := guestIMSI(link), &n.list[link]
			all = all.plus(guest.sent)
			k.account(ofTerminal[imsi], guest, of.ends)
			if of.ends {
				sent[imsi] = guest.sent
			}
		}
	}
	k.ended = [3]counted{sent.sum(), told.sum(), b.charges.sum()}
	k.radius, k.charges, k.status = sent.off(byTerminal), told.off(b.charges), all.off(n.status)
	return k
}

// account compares the account of one terminal with what it has had.
func (k *bookkeeping) account(one *booked, of *guest, ends bool) {
	switch {
	case one == nil || !one.started:
		k.starts++
	case ends && !one.stopped:
		k.stops++
	case !ends && one.stopped:
		k.ends++
	case !ends:
		k.closed++
		k.sent, k.kept = k.sent.plus(of.sent), k.kept.plus(one.octets)
		k.interims += excess(one.octets.up, of.sent.up) + excess(one.octets.down, of.sent.down)
		k.interims += excess(of.told.up, one.octets.up) + excess(of.told.down, one.octets.down)
	}
}

// report is the experiment's.
func (b *books) report(n *accountingNet) *report.Report {
	k := b.compare(n)
	rep := &report.Report{
		Experiment: accountingName, Title: "Accounts of a GGSN's sessions",
		Notes: []string{
			"Octets are those of inner packets as they are on the wire; of a train that the kernel carries as one, of each packet. Those of RADIUS are of Stops in the files of two FreeRADIUS, records told twice counted once; those of status are of each process before its end.",
			"A kill -9 ends open contexts. Servers close their sessions by the Accounting-On of the next process; of what these have carried they know what the last Interim-Update tells, and the last charging record is missing.",
		},
	}
	row := func(who string, c counted) []string { return []string{who, fmt.Sprint(c.up), fmt.Sprint(c.down)} }
	rep.Tables = append(rep.Tables,
		report.Table{
			Title: fmt.Sprintf("%d sessions that have ended", len(n.steady)+len(n.late)), Columns: []string{"by", "octets from terminals", "to them"},
			Rows: [][]string{row("generator", k.ended[0]), row("RADIUS", k.ended[1]), row("charging records", k.ended[2])},
		},
		report.Table{
			Title: fmt.Sprintf("%d sessions that were open at the kill -9", k.closed), Columns: []string{"by", "octets from terminals", "to them"},
			Rows: [][]string{row("generator", k.sent), row("RADIUS", k.kept)},
		})
	for _, f := range []struct {
		name string
		seen uint64
	}{
		{figureBooksRADIUS, k.radius}, {figureBillCharge, k.charges}, {figureBooksStatus, k.status},
		{figureBooksStops, uint64(k.stops)},
		{figureBooksLost, uint64(n.found.lost) + uint64(k.starts+k.ends+b.changed) + uint64(max(0, n.found.starts-b.begins))},
		{figureBooksInterim, k.interims},
	} {
		rep.Figures = append(rep.Figures, report.Figure{Name: f.name, Isthmus: report.Measured(float64(f.seen)), Must: must(accountingName, f.name)})
		if f.seen > 0 {
			rep.Fault("%s: %d", f.name, f.seen)
		}
	}
	killed := k.sent.off(k.kept)
	rep.Figures = append(rep.Figures,
		report.Figure{Name: "octets that the kill -9 took: carried since the last Interim-Update of sessions that were open", Isthmus: report.Measured(float64(killed))},
		report.Figure{Name: "charging records that the kill -9 took, of sessions that were open", Isthmus: report.Measured(float64(k.closed))},
		report.Figure{Name: "records on disk at the kill -9", Isthmus: report.Measured(n.found.spooled)},
		report.Figure{Name: "records told again, by a server's or the GGSN's end between record and answer", Isthmus: report.Measured(float64(b.repeated))},
		report.Figure{Name: "terminals refused while a server was away, which came in then", Isthmus: report.Measured(float64(n.found.again))},
		report.Figure{Name: "sessions begun in a second, with authentication and accounting by FreeRADIUS", Unit: "/s", Isthmus: report.Measured(float64(len(n.steady)+len(n.open)) / n.found.entering.Seconds())},
		report.Figure{Name: "records of the spool told in a second, kills between them", Unit: "/s", Isthmus: report.Measured(n.found.spooled / n.found.draining.Seconds())})
	return rep
}
