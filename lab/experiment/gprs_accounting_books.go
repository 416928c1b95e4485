// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-net/isthmus/gprs/ggsn/ggsnrole"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/lab/report"
)

// books are what servers were told, and what the GGSN has written.
type books struct {
	sessions map[string]*booked // by Acct-Session-Id
	charges  accounts           // likewise, of all records of a session
	charged  map[string]string  // likewise: the addresses and prefixes that its last record has
	begins   int                // records of Accounting-On; those of one second have one name
	repeated int                // records that were told again
	changed  int                // of these, those that tell something else
}

// booked is a session by what servers were told.
type booked struct {
	imsi             string
	started, stopped bool
	octets           counted // by its Stop, or its last Interim-Update
	has              string  // its addresses and prefixes, by the same
}

// readBooks reads the files of both servers, and the charging records.
func (n *accountingNet) readBooks() (b *books, err error) {
	b = newBooks()
	for i := range n.servers {
		if err := peers.EachDetail(n.servers[i].detail, b.enter); err != nil {
			return nil, err
		}
	}
	return b, eachCharge(n.charging(), b.charge)
}

func newBooks() *books {
	return &books{sessions: map[string]*booked{}, charges: accounts{}, charged: map[string]string{}}
}

// charge takes a charging record.
func (b *books) charge(one *ggsnrole.Charge) {
	b.charges[one.Session] = b.charges[one.Session].plus(counted{one.UpOctets, one.DownOctets})
	var has []string
	if one.Address4.IsValid() {
		has = append(has, one.Address4.String())
	}
	for _, p := range slices.Concat([]netip.Prefix{one.Prefix6}, one.Further6, one.Delegated6) {
		if p.IsValid() {
			has = append(has, p.String())
		}
	}
	b.charged[one.Session] = strings.Join(has, " ")
}

// enter takes a record. Records of a session and status that are told again, because no answer to the first one came, are
// one (RFC 2866 section 2); of Interim-Updates, whose counts only grow, the last one counts.
func (b *books) enter(r peers.Accounting) {
	id, octets, has := r["Acct-Session-Id"], counted{r.Octets("Input"), r.Octets("Output")}, addressesOf(r)
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
		one.stopped, one.octets, one.has = true, octets, has
	default:
		if !one.stopped && octets.up >= one.octets.up {
			one.octets, one.has = octets, has
		}
	}
}

// addressesOf are the addresses and prefixes of a session by a record.
func addressesOf(r peers.Accounting) string {
	var has []string
	for _, name := range []string{"Framed-IP-Address", "Framed-IPv6-Prefix", "Delegated-IPv6-Prefix"} {
		if r[name] != "" {
			has = append(has, strings.ReplaceAll(r[name], ", ", " "))
		}
	}
	return strings.Join(has, " ")
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
	kinds                   []kindBooks // of sessions with a Stop
	radius, charges, status uint64      // octets by which they are off
	uncarried               uint64      // octets of the generator that are not in what the SGSN has carried
	addresses               int         // sessions whose last record has others than the terminal
	stops, starts, ends     int         // records that are missing, and sessions that should not have ended
	closed                  int         // sessions that Accounting-On closes
	sent, kept              counted     // of these: by the SGSN, and by their last record
	interims                uint64      // octets of these that the last record should have and has not, or has and were not sent
}

// kindBooks are the books of the sessions of one kind: by the generator, by the SGSN, which has what the links need, too,
// by RADIUS and by charging records.
type kindBooks struct {
	sessions int
	by       [4]counted
}

// terminals are the names of the sessions of each, in the order in which they began, which the ends of names tell. One
// whose Create Request was granted too late, when it had asked again, has several.
func (b *books) terminals() map[string][]string {
	of := map[string][]string{}
	for id, one := range b.sessions {
		of[one.imsi] = append(of[one.imsi], id)
	}
	began := func(id string) string { return id[strings.LastIndexByte(id, '-')+1:] }
	for _, list := range of {
		slices.SortFunc(list, func(a, b string) int { return cmp.Or(cmp.Compare(began(a), began(b)), cmp.Compare(a, b)) })
	}
	return of
}

// compare compares the books with what the generator has sent and the SGSN has carried.
func (b *books) compare(n *accountingNet) (k bookkeeping) {
	k.kinds = make([]kindBooks, len(n.kinds))
	told, byTerminal, carried := accounts{}, accounts{}, accounts{}
	for id, one := range b.sessions {
		if one.stopped {
			told[id] = one.octets
		}
	}
	charges, names := maps.Clone(b.charges), b.terminals()
	for _, of := range []struct {
		links []int
		ends  bool
	}{{n.steady, true}, {n.open, false}, {n.late, true}} {
		for _, link := range of.links {
			imsi, guest := guestIMSI(link), &n.list[link]
			all := names[imsi]
			id := ""
			if len(all) > 0 {
				id = all[len(all)-1]
			}
			one := b.sessions[id]
			k.account(one, guest, of.ends)
			k.generated(guest, n.kinds[link%len(n.kinds)].is)
			for _, before := range all[:max(0, len(all)-1)] {
				k.account(b.sessions[before], guest, true)
			}
			if of.ends {
				carried[imsi], byTerminal[imsi] = guest.carried, told.sum(all)
				k.kinds[link%len(n.kinds)].add(guest, byTerminal[imsi], charges.sum(all))
				k.compareAddresses(guest, one, b.charged[id])
			} else { // records of before the end are of what was carried
				byTerminal[imsi] = told[id]
				k.charges += charges[id].beyond(guest.carried)
				delete(charges, id)
			}
		}
	}
	k.radius, k.charges, k.status = carried.off(byTerminal), k.charges+told.off(charges), n.carried.off(n.status)
	return k
}

func (k *kindBooks) add(of *guest, radius, charge counted) {
	k.sessions++
	for i, c := range []counted{of.sent, of.carried, radius, charge} {
		k.by[i] = k.by[i].plus(c)
	}
}

// generated compares what the generator has sent with what the SGSN has carried: of IPv4 that is the same, of IPv6 there
// is what the link needs beside.
func (k *bookkeeping) generated(of *guest, is gtp.PDPType) {
	if is == gtp.PDPTypeIPv4 {
		k.uncarried += of.sent.off(of.carried)
	} else {
		k.uncarried += of.sent.beyond(of.carried)
	}
}

func (k *bookkeeping) compareAddresses(of *guest, one *booked, charged string) {
	if one == nil || one.has != of.has || charged != of.has {
		k.addresses++
	}
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
		k.sent, k.kept = k.sent.plus(of.carried), k.kept.plus(one.octets)
		k.interims += one.octets.beyond(of.carried) + of.told.beyond(one.octets)
	}
}

// report is the experiment's.
func (b *books) report(n *accountingNet) *report.Report {
	k := b.compare(n)
	rep := &report.Report{
		Experiment: accountingName, Title: "Accounts of a GGSN's sessions",
		Notes: []string{
			"Octets are those of inner packets as they are on the wire; of a train that the kernel carries as one, of each packet. Those of the SGSN are what its end of the tunnels has carried: of IPv6 the generator's and, of each link, router solicitations, advertisements and DHCPv6. Those of RADIUS are of Stops in the files of two FreeRADIUS, records told twice counted once; those of status are of each process before its end.",
			"A kill -9 ends open contexts. Servers close their sessions by the Accounting-On of the next process; of what these have carried they know what the last Interim-Update tells, and the last charging record is missing.",
		},
	}
	both := func(c counted) string { return fmt.Sprintf("%d, %d", c.up, c.down) }
	ended := report.Table{
		Title:   fmt.Sprintf("%d sessions that have ended: octets from terminals, to them", len(n.steady)+len(n.late)),
		Columns: []string{"of", "sessions", "by the generator", "SGSN", "RADIUS", "charging records"},
	}
	for i, kind := range k.kinds {
		row := []string{n.kinds[i].name, fmt.Sprint(kind.sessions)}
		for _, c := range kind.by {
			row = append(row, both(c))
		}
		ended.Rows = append(ended.Rows, row)
	}
	rep.Tables = append(rep.Tables, ended, report.Table{
		Title: fmt.Sprintf("%d sessions that were open at the kill -9: octets from terminals, to them", k.closed), Columns: []string{"by the SGSN", "RADIUS"},
		Rows: [][]string{{both(k.sent), both(k.kept)}},
	})
	begins := max(0, n.found.starts-b.begins)
	rep.Notes = append(rep.Notes, fmt.Sprintf("Of records lost, altered or not due the GGSN has given up %.0f; %d Starts and %d Accounting-Ons are missing, %d Stops are not due, and %d told something else when they were told again.",
		n.found.lost, k.starts, begins, k.ends, b.changed))
	for _, f := range []struct {
		name string
		seen uint64
	}{
		{figureBooksCarried, k.uncarried}, {figureBooksRADIUS, k.radius}, {figureBillCharge, k.charges}, {figureBooksStatus, k.status},
		{figureBooksAddresses, uint64(k.addresses)}, {figureBooksStops, uint64(k.stops)},
		{figureBooksLost, uint64(n.found.lost) + uint64(k.starts+k.ends+b.changed+begins)},
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
