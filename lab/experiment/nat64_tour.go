// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/isthmus-net/isthmus/examples"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/lab/report"
)

// nat64TourName is the name of the experiment.
const nat64TourName = "nat64"

// nat64Tour is the experiment: an IPv6-only network from nothing.
var nat64Tour = lab.Experiment{
	Name:      nat64TourName,
	Summary:   "the tour: a host that has only IPv6 finds its NAT64, and reaches IPv4 by names, by addresses and by FTP",
	NeedsRoot: true,
	Needs:     []string{"apache2", "unbound", "vsftpd", "dig", "curl", "traceroute.db", "tnftp"},
	Run:       runNAT64Tour,
}

// Addresses of the tour. Those of IPv4 are out of publicNet, since the well-known
// prefix must not stand for documentation addresses (RFC 6052 section 3.1).
var (
	tourClient6  = netip.MustParseAddr("2001:db8:1::2")
	tourGateway6 = netip.MustParseAddr("2001:db8:1::1")
	tourGateway4 = netip.MustParseAddr("1.2.3.1")
	tourRouter4  = netip.MustParseAddr("1.2.3.2")
	tourSite4    = netip.MustParseAddr("1.2.3.68")
	tourPrefix   = netip.MustParsePrefix("64:ff9b::/96")
)

// tourSiteName is a name with an IPv4 address alone.
const tourSiteName = "www.example.com"

// tourChanges are what an operator fills in for this network: addresses, and FTP.
var tourChanges = [][2]string{
	{`pool4 = ["192.0.2.1 20000-60999"]`, fmt.Sprintf(`pool4 = ["%s 20000-60999"]`, tourGateway4)},
	{`upstreams = ["2001:db8::53", "192.0.2.53"]`, fmt.Sprintf(`upstreams = ["%s"]`, tourSite4)},
	{"ftp = false", "ftp = true"},
}

// nat64Guide takes the tour.
//
//	client ---- gateway ---- router ---- site
//	 2001:db8:1::/64   1.2.3.0/28   1.2.3.64/28
type nat64Guide struct {
	*walk
	client, gateway, router, site *lab.Node
}

func runNAT64Tour(ctx context.Context, e *lab.Env) (err error) {
	e.Step("NAT64: a host that has only IPv6 reaches a site that has only IPv4.")
	g, err := newNAT64Guide(ctx, e)
	if err != nil {
		return err
	}
	// Last, since with Env.Keep it waits until the person has seen enough.
	defer func() { err = errors.Join(err, g.close()) }()
	if err := g.openSite(ctx); err != nil {
		return err
	}
	g.lead(ctx)
	return finish(e, g.report())
}

// newNAT64Guide draws the topology.
func newNAT64Guide(ctx context.Context, e *lab.Env) (_ *nat64Guide, err error) {
	w, err := newWalk(ctx, e, nat64TourName)
	if err != nil {
		return nil, err
	}
	l := w.lab
	g := &nat64Guide{walk: w, client: l.Node("client"), gateway: l.Node("gateway"), router: l.Node("router"), site: l.Node("site")}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	l.Link(g.client, "eth0", g.gateway, "lan0")
	l.Link(g.gateway, "wan0", g.router, "left")
	l.Link(g.router, "right", g.site, "eth0")
	g.client.Addr("eth0", tourClient6.String()+"/64").Route("default6", tourGateway6.String())
	g.gateway.Forward(true, true).Addr("lan0", tourGateway6.String()+"/64").Addr("wan0", tourGateway4.String()+"/28").Route("default", tourRouter4.String())
	g.gateway.Sysctl("net.ipv4.ip_local_port_range", "61000 65535")
	g.router.Forward(true, false).Addr("left", tourRouter4.String()+"/28").Addr("right", "1.2.3.65/28")
	g.site.Addr("eth0", tourSite4.String()+"/28").Route("default", "1.2.3.65")
	if err := l.Err(); err != nil {
		return nil, err
	}
	if e.PcapDir != "" {
		if err := errors.Join(e.Capture(g.client, "eth0"), e.Capture(g.site, "eth0")); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// openSite starts what the site has: name server, web server and, as root, FTP server.
func (g *nat64Guide) openSite(ctx context.Context) error {
	root := filepath.Join(g.dir, "www")
	if err := writePages(root); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, ftpFile), picture(0), 0o644); err != nil {
		return err
	}
	p := peersOf(g.env)
	web, err := p.Apache(g.dir, peers.Apache{Name: "site-web", Port: webPort, Root: root})
	if err != nil {
		return err
	}
	files, err := p.Vsftpd(g.dir, peers.Vsftpd{Name: "site-ftp", Address: tourSite4, Root: root})
	if err != nil {
		return err
	}
	for name, c := range map[string]*peers.Command{"apache2": web, "vsftpd": files} {
		if err := g.start(ctx, g.site, lab.Process{Name: name, Path: c.Path, Args: c.Args, Env: c.Env}); err != nil {
			return err
		}
	}
	for _, port := range []int{webPort, ftpPort} {
		if err := listening(ctx, g.site, port, false); err != nil {
			return err
		}
	}
	return g.openNames(ctx, g.site)
}

// openNames starts the site's name server, and waits for it.
func (w *walk) openNames(ctx context.Context, site *lab.Node) error {
	names, err := peersOf(w.env).Unbound(w.dir, peers.Unbound{
		Name: "site-dns", Listen: netip.AddrPortFrom(tourSite4, 53), Allow: []netip.Prefix{netip.PrefixFrom(tourGateway4, 32)},
		Zones: []peers.UnboundZone{{Name: "example.com", Text: tourZone()}},
	})
	if err != nil {
		return err
	}
	if err := w.start(ctx, site, lab.Process{Name: "unbound", Path: names.Path, Args: names.Args, Env: names.Env}); err != nil {
		return err
	}
	return listening(ctx, site, 53, false)
}

// tourZone is the zone of the site.
func tourZone() string {
	return fmt.Sprintf("$ORIGIN example.com.\n$TTL 300\n@ SOA ns hostmaster 1 3600 600 86400 60\n@ NS ns\nns A %s\nwww A %s\n", tourSite4, tourSite4)
}

// configuration is that which isthmus init nat64 prints, with this network's
// addresses, and apart from the host's own Isthmus.
func (g *nat64Guide) configuration() (string, error) {
	text, ok := examples.Read("nat64")
	if !ok {
		return "", errors.New("this program has no configuration for a NAT64 to print")
	}
	for _, change := range tourChanges {
		if !strings.Contains(text, change[0]) {
			return "", fmt.Errorf("the configuration that isthmus init nat64 prints has no line %q", change[0])
		}
		text = strings.Replace(text, change[0], change[1], 1)
	}
	text = strings.Replace(text, "[[nat64]]\n", "[[nat64]]\nkeep_state = false\n", 1)
	return text, nil
}

// report is the table at the end.
func (g *nat64Guide) report() *report.Report {
	r := &report.Report{
		Experiment: nat64TourName, Title: "An IPv6-only network",
		Notes: []string{"One run on bare veth, starts of the programs included; napt-latency and napt-bandwidth measure."},
	}
	g.tell(r)
	return r
}
