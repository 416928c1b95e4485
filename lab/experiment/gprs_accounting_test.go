// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"strconv"
	"testing"

	"github.com/isthmus-net/isthmus/lab/peers"
)

// TestBooks takes records that are told again for one, and finds what is missing, twice, altered or too much.
func TestBooks(t *testing.T) {
	record := func(link int, status string, octets int) peers.Accounting {
		return peers.Accounting{
			"Acct-Session-Id": "session" + strconv.Itoa(link), "3GPP-IMSI": guestIMSI(link), "Acct-Status-Type": status,
			"Acct-Input-Octets": strconv.Itoa(octets), "Acct-Output-Octets": strconv.Itoa(2 * octets),
		}
	}
	stopped := []peers.Accounting{record(0, "Start", 0), record(0, "Interim-Update", 3), record(0, "Stop", 10)}
	open := []peers.Accounting{record(1, "Start", 0), record(1, "Interim-Update", 5)}
	for _, row := range []struct {
		name    string
		more    []peers.Accounting // beside stopped and open
		less    int                // of the first of stopped and open
		sent    uint64             // of the first terminal
		charged uint64

		repeated, changed, starts, stops, ends int
		radius, charges, interims              uint64
	}{
		{name: "all is well", sent: 10, charged: 10},
		{name: "the Stop is told again", more: []peers.Accounting{record(0, "Stop", 10)}, sent: 10, charged: 10, repeated: 1},
		{name: "the Stop is told again, otherwise", more: []peers.Accounting{record(0, "Stop", 11)}, sent: 11, charged: 11, repeated: 1, changed: 1},
		{name: "an Interim-Update comes late", more: []peers.Accounting{record(0, "Interim-Update", 3)}, sent: 10, charged: 10},
		{name: "a Start is lost", less: 1, sent: 10, charged: 10, starts: 1},
		{name: "a Stop is lost", less: 3, more: stopped[:2], sent: 10, stops: 1, radius: 30},
		{name: "a session ends that should not", more: []peers.Accounting{record(1, "Stop", 5)}, sent: 10, charged: 10, ends: 1, radius: 15, charges: 15},
		{name: "the generator has sent more", sent: 12, charged: 10, radius: 6},
		{name: "too little is charged", sent: 10, charged: 9, charges: 3},
		{name: "an Interim-Update tells too much", more: []peers.Accounting{record(1, "Interim-Update", 9)}, sent: 10, charged: 10, interims: 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := &books{sessions: map[string]*booked{}, charges: accounts{}}
			for _, r := range append(append(stopped[:3:3], open...)[row.less:], row.more...) {
				b.enter(r)
			}
			if row.charged > 0 {
				b.charges["session0"] = counted{row.charged, 2 * row.charged}
			}
			n := &accountingNet{guests: &guests{list: []guest{
				{sent: counted{row.sent, 2 * row.sent}}, {sent: counted{8, 16}, told: counted{5, 10}},
			}}, steady: []int{0}, open: []int{1}}
			k := b.compare(n)
			for _, x := range []struct {
				what      string
				got, want any
			}{
				{"repeated", b.repeated, row.repeated}, {"altered", b.changed, row.changed}, {"Starts", k.starts, row.starts}, {"Stops", k.stops, row.stops},
				{"ends", k.ends, row.ends}, {"by RADIUS", k.radius, row.radius}, {"by charges", k.charges, row.charges}, {"by Interim-Updates", k.interims, row.interims},
			} {
				if x.got != x.want {
					t.Errorf("%s: %v, want %v", x.what, x.got, x.want)
				}
			}
		})
	}
}
