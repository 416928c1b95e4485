// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/ggsn/ggsnrole"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// TestBooks takes records that are told again for one, and finds what is missing, twice, altered or too much.
func TestBooks(t *testing.T) {
	const has = "2001:db8:6000:100::/64 2001:db8:6000:101::/64 2001:db8:8000:100::/56"
	record := func(link int, status string, octets int) peers.Accounting {
		return peers.Accounting{
			"Acct-Session-Id": "session" + strconv.Itoa(link), "3GPP-IMSI": guestIMSI(link), "Acct-Status-Type": status,
			"Acct-Input-Octets": strconv.Itoa(octets), "Acct-Output-Octets": strconv.Itoa(2 * octets),
			"Framed-IPv6-Prefix": "2001:db8:6000:100::/64, 2001:db8:6000:101::/64", "Delegated-IPv6-Prefix": "2001:db8:8000:100::/56",
		}
	}
	charge := func(link int, octets uint64) *ggsnrole.Charge {
		c := &ggsnrole.Charge{Session: "session" + strconv.Itoa(link)}
		c.UpOctets, c.DownOctets = octets, 2*octets
		c.Prefix6, c.Further6 = netip.MustParsePrefix("2001:db8:6000:100::/64"), []netip.Prefix{netip.MustParsePrefix("2001:db8:6000:101::/64")}
		c.Delegated6 = []netip.Prefix{netip.MustParsePrefix("2001:db8:8000:100::/56")}
		return c
	}
	earlier := func(r peers.Accounting) peers.Accounting { // of a session before, of the same terminal
		r["Acct-Session-Id"] = strings.Replace(r["Acct-Session-Id"], "session", "earlier", 1)
		return r
	}
	two := charge(0, 2)
	two.Session = "earlier0"
	other := charge(0, 0)
	other.Delegated6 = nil
	onlyFirst, asOne := record(0, "Stop", 10), record(0, "Stop", 10)
	onlyFirst["Framed-IPv6-Prefix"], asOne["Framed-IPv6-Prefix"] = "2001:db8:6000:100::/64", "2001:db8:6000:100::/63"
	stopped := []peers.Accounting{record(0, "Start", 0), record(0, "Interim-Update", 3), record(0, "Stop", 10)}
	open := []peers.Accounting{record(1, "Start", 0), record(1, "Interim-Update", 5)}
	ten := []*ggsnrole.Charge{charge(0, 10)}
	for _, row := range []struct {
		name    string
		more    []peers.Accounting // beside stopped and open
		less    int                // of the first of stopped and open
		carried uint64             // of the first terminal
		sent    uint64             // likewise
		charged []*ggsnrole.Charge

		repeated, changed, starts, stops, ends, addresses int
		radius, charges, interims, uncarried              uint64
	}{
		{name: "all is well", carried: 10, sent: 8, charged: ten},
		{name: "in several charging records", carried: 10, sent: 10, charged: []*ggsnrole.Charge{charge(0, 7), charge(0, 3)}},
		{name: "of an open session, too", carried: 10, charged: []*ggsnrole.Charge{charge(1, 4), charge(0, 10), charge(1, 4)}},
		{name: "of an open session too much", carried: 10, charged: []*ggsnrole.Charge{charge(1, 4), charge(0, 10), charge(1, 5)}, charges: 3},
		{name: "one charged twice", carried: 10, charged: []*ggsnrole.Charge{charge(0, 10), charge(0, 10)}, charges: 30},
		{name: "the last charging record without a prefix", carried: 10, charged: []*ggsnrole.Charge{charge(0, 10), other}, addresses: 1},
		{name: "the Stop without a prefix of the link", less: 3, more: []peers.Accounting{stopped[0], onlyFirst}, carried: 10, charged: ten, addresses: 1},
		{name: "the Stop with both prefixes as one", less: 3, more: []peers.Accounting{stopped[0], asOne}, carried: 10, charged: ten, addresses: 1},
		{name: "the Stop is told again", more: []peers.Accounting{record(0, "Stop", 10)}, carried: 10, charged: ten, repeated: 1},
		{name: "the Stop is told again, otherwise", more: []peers.Accounting{record(0, "Stop", 11)}, carried: 11, charged: []*ggsnrole.Charge{charge(0, 11)}, repeated: 1, changed: 1},
		{name: "an Interim-Update comes late", more: []peers.Accounting{record(0, "Interim-Update", 3)}, carried: 10, charged: ten},
		{name: "a Start is lost", less: 1, carried: 10, charged: ten, starts: 1},
		{name: "a Stop is lost", less: 3, more: stopped[:2], carried: 10, stops: 1, radius: 30, addresses: 1},
		{name: "a session ends that should not", more: []peers.Accounting{record(1, "Stop", 5)}, carried: 10, charged: ten, ends: 1, radius: 15, charges: 15},
		{name: "terminals come in twice", more: []peers.Accounting{
			earlier(record(0, "Start", 0)), earlier(record(0, "Stop", 2)), earlier(record(1, "Start", 0)), earlier(record(1, "Stop", 0)),
		}, carried: 12, charged: []*ggsnrole.Charge{two, ten[0]}},
		{name: "the first Stop is lost of two", more: []peers.Accounting{earlier(record(0, "Start", 0)), earlier(record(1, "Start", 0))}, carried: 10, charged: ten, stops: 2},
		{name: "the SGSN has carried more", carried: 12, charged: ten, radius: 6},
		{name: "the generator has sent more", carried: 10, sent: 12, charged: ten, uncarried: 6},
		{name: "too little is charged", carried: 10, charged: []*ggsnrole.Charge{charge(0, 9)}, charges: 3},
		{name: "an Interim-Update tells too much", more: []peers.Accounting{record(1, "Interim-Update", 9)}, carried: 10, charged: ten, interims: 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBooks()
			for _, r := range append(append(stopped[:3:3], open...)[row.less:], row.more...) {
				b.enter(r)
			}
			for _, c := range row.charged {
				b.charge(c)
			}
			n := &accountingNet{guests: &guests{kinds: []guestKind{{is: gtp.PDPTypeIPv6}}, list: []guest{
				{has: has, sent: counted{row.sent, 2 * row.sent}, carried: counted{row.carried, 2 * row.carried}},
				{has: has, carried: counted{8, 16}, told: counted{5, 10}},
			}}, steady: []int{0}, open: []int{1}}
			k := b.compare(n)
			for _, x := range []struct {
				what      string
				got, want any
			}{
				{"repeated", b.repeated, row.repeated}, {"altered", b.changed, row.changed}, {"Starts", k.starts, row.starts}, {"Stops", k.stops, row.stops},
				{"ends", k.ends, row.ends}, {"by RADIUS", k.radius, row.radius}, {"by charges", k.charges, row.charges}, {"by Interim-Updates", k.interims, row.interims},
				{"addresses", k.addresses, row.addresses}, {"not carried", k.uncarried, row.uncarried},
			} {
				if x.got != x.want {
					t.Errorf("%s: %v, want %v", x.what, x.got, x.want)
				}
			}
		})
	}
}
