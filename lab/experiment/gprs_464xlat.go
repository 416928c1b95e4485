// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// gprsXLATName is the name of the experiment.
const gprsXLATName = "gprs-464xlat"

// gprsXLAT is the experiment: a mobile network that has IPv6 alone for its UEs.
var gprsXLAT = lab.Experiment{
	Name:      gprsXLATName,
	Summary:   "the tour: a UE with an IPv6-only context reaches IPv4 by names and by addresses, through GGSN, NAT64, DNS64 and CLAT",
	NeedsRoot: true,
	Needs:     []string{"unbound", "dig", "traceroute.db"},
	Run:       runGPRSXLAT,
}

// Addresses of the core; those of IPv4 behind it are the NAT64 tour's.
var (
	xlatCore6 = netip.MustParseAddr("2001:db8:9:53::53") // of the DNS64
	xlatPool6 = netip.MustParsePrefix("2001:db8:6:2000::/52")
)

// Sizes. The link to the site is narrower than the terminal's: what is larger is told so by a
// router of IPv4, through NAT64, GTP and CLAT.
const (
	xlatMTU   = 1300
	xlatPings = 100
	xlatBytes = 32 << 20
	// In short form.
	xlatPingsShort = 20
	xlatBytesShort = 1 << 20
)

// xlatGuide takes the tour.
//
//	ue ~~~ sgsn ------ gn ------ core -- wan0 ---- router ------ site
//	       10.9.1.1    10.9.1.2  1.2.3.1 | 1.2.3.2   1.2.3.65 | 1.2.3.68
//
// The core is one Isthmus: GGSN, NAT64 and DNS64. The radio is a wire in the mind: the emulator of
// the SGSN gives the node ue its device.
type xlatGuide struct {
	*walk
	ue, sgsn, core, router, site *lab.Node
	ways                         []xlatWay
}

// xlatWay is a way from the UE to the site, and the round trips on it.
type xlatWay struct {
	title string
	pings lab.PingResult
}

func runGPRSXLAT(ctx context.Context, e *lab.Env) (err error) {
	e.Step("464XLAT: a UE with IPv6 alone reaches a site that has IPv4 alone.")
	g, err := newXLATGuide(ctx, e)
	if err != nil {
		return err
	}
	// Last, since with Env.Keep it waits until the person has seen enough.
	defer func() { err = errors.Join(err, g.close()) }()
	if err := g.openNames(ctx, g.site); err != nil {
		return err
	}
	g.lead(ctx)
	return finish(e, g.report())
}

// newXLATGuide draws the topology.
func newXLATGuide(ctx context.Context, e *lab.Env) (_ *xlatGuide, err error) {
	w, err := newWalk(ctx, e, gprsXLATName)
	if err != nil {
		return nil, err
	}
	l := w.lab
	g := &xlatGuide{walk: w, ue: l.Node("ue"), sgsn: l.Node("sgsn"), core: l.Node("core"), router: l.Node("router"), site: l.Node("site")}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	l.Link(g.sgsn, "gn", g.core, "gn")
	l.Link(g.core, "wan0", g.router, "left")
	l.Link(g.router, "right", g.site, "eth0")
	g.sgsn.Addr("gn", core4.sgsn.String()+"/24")
	g.core.Forward(true, true).Addr("gn", core4.ggsn.String()+"/24").Addr("lo", xlatCore6.String()+"/128")
	g.core.Addr("wan0", tourGateway4.String()+"/28").Route("default", tourRouter4.String()).Sysctl("net.ipv4.ip_local_port_range", "61000 65535")
	g.router.Forward(true, false).Addr("left", tourRouter4.String()+"/28").Addr("right", "1.2.3.65/28")
	g.site.Addr("eth0", tourSite4.String()+"/28").Route("default", "1.2.3.65")
	if err := l.Err(); err != nil {
		return nil, err
	}
	return g, errors.Join(narrow(g.router, "right", tourSite4, xlatMTU), e.Capture(g.core, "gn"))
}

// sections are the configuration of the core.
func (g *xlatGuide) sections() string {
	return core4.section(filepath.Join(g.dir, "ggsn.state")) + fmt.Sprintf(`[[ggsn.apn]]
name = "internet"
pool6 = [%[1]q]
dns = [%[2]q]
pref64 = [%[3]q]
[[nat64]]
clients = [%[1]q]
pool6 = [%[3]q]
pool4 = ["%[4]s 20000-60999"]
keep_state = false
[[dns64]]
listen = [%[2]q]
upstreams = [%[5]q]
clients = [%[1]q]
`, xlatPool6, xlatCore6, tourPrefix, tourGateway4, tourSite4)
}

// report is the steps, and what was measured.
func (g *xlatGuide) report() *report.Report {
	r := &report.Report{
		Experiment: gprsXLATName, Title: "464XLAT in a mobile core",
		Notes: []string{fmt.Sprintf("On bare veth, all programs on one machine. The terminal's link has %d bytes, the last link of IPv4 %d.", 1400, xlatMTU)},
	}
	g.tell(r)
	table := report.Table{Title: "from the UE to the site", Columns: []string{"way", "pings", "round trip, ms"}}
	for _, w := range g.ways {
		table.Rows = append(table.Rows, []string{
			w.title, fmt.Sprintf("%d of %d", w.pings.Received(), w.pings.Sent()), fmt.Sprintf("%.3f", milliseconds(w.pings.Median())),
		})
	}
	r.Tables = append(r.Tables, table)
	return r
}
