// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
	"github.com/isthmus-net/isthmus/sctp"
)

const sctpPrefixesName = "sctp-prefixes"

// sctpPrefixes is the experiment sctp-prefixes.
var sctpPrefixes = lab.Experiment{
	Name:      sctpPrefixesName,
	Summary:   "multihoming over a single access, which the study's GGSN could not do: one PDP context with two prefixes, one association over both, and one of them carried no further",
	NeedsRoot: true,
	Run:       runSCTPPrefixes,
}

// prefixesGuide takes the tour.
//
//	ue ~~~ sgsn ------ gn ------ ggsn -- gi -- core -- net -- srv
//	two /64 10.9.1.1   10.9.1.2                                2001:db8:9:2::2
type prefixesGuide struct {
	*walk
	sgsn, ggsn, core, srv *lab.Node
	ue                    *lab.Node
	cuts                  cutNet
	flow                  *cutFlow
	has                   []netip.Addr // the UE's addresses
}

// What lies between GGSN and server.
var (
	prefixesGi   = [2]netip.Addr{netip.MustParseAddr("2001:db8:9:3::1"), netip.MustParseAddr("2001:db8:9:3::2")}
	prefixesPool = netip.MustParsePrefix("2001:db8:6000::/48")
)

func runSCTPPrefixes(ctx context.Context, e *lab.Env) (err error) {
	e.Step("Two prefixes of one context: an association that needs no second radio.")
	g, err := newPrefixesGuide(ctx, e)
	if err != nil {
		return err
	}
	// Last, since with Env.Keep it waits until the person has seen enough.
	defer func() { err = errors.Join(err, g.close()) }()
	g.take(ctx, []walkStep{
		{"The GGSN starts, with two /64 for each context", g.startGGSN},
		{"The UE attaches, and has an address of each", g.attach},
		{"An association goes over both to a server with one address", g.associate},
		{"The network carries the first prefix no further, and tells nobody", g.cut},
		{"It does again, and data comes back", g.restore},
		{"Everything has arrived, in its order", g.end},
	})
	r := &report.Report{Experiment: sctpPrefixesName, Title: "Multihoming over a single access"}
	g.tell(r)
	return finish(e, r)
}

// newPrefixesGuide draws the topology.
func newPrefixesGuide(ctx context.Context, e *lab.Env) (_ *prefixesGuide, err error) {
	w, err := newWalk(ctx, e, sctpPrefixesName)
	if err != nil {
		return nil, err
	}
	l := w.lab
	g := &prefixesGuide{walk: w, ue: l.Node("ue"), sgsn: l.Node("sgsn"), ggsn: l.Node("ggsn"), core: l.Node("core"), srv: l.Node("srv")}
	l.Link(g.sgsn, "gn", g.ggsn, "gn")
	l.Link(g.ggsn, "gi", g.core, "gi")
	l.Link(g.core, "net", g.srv, "net")
	g.sgsn.Addr("gn", core4.sgsn.String()+"/24")
	g.ggsn.Forward(true, true).Addr("gn", core4.ggsn.String()+"/24").Addr("gi", prefixesGi[0].String()+"/64").Route("default6", prefixesGi[1].String())
	g.core.Forward(false, true).Addr("gi", prefixesGi[1].String()+"/64").Addr("net", coreGi6.String()+"/64").Route(prefixesPool.String(), prefixesGi[0].String())
	g.srv.Addr("net", coreSrv6.String()+"/64").Route("default6", coreGi6.String())
	if err := errors.Join(l.Err(), e.Capture(g.core, "net")); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

func (g *prefixesGuide) startGGSN(ctx context.Context) (string, error) {
	return "", g.serve(ctx, g.ggsn, core4.section(filepath.Join(g.dir, "ggsn.state"))+
		fmt.Sprintf("[[ggsn.apn]]\nname = \"internet\"\npool6 = [%q]\nlink_prefixes = 2\n", prefixesPool))
}

func (g *prefixesGuide) attach(ctx context.Context) (said string, err error) {
	i := instance{g.sgsn, g.env.Binary, g.dir, "sgsn"}
	if err := g.start(ctx, g.sgsn, i.attaching(core4, "internet", "v6", "--netns", g.ue.Namespace())); err != nil {
		return "", err
	}
	err = poll(ctx, daemonStart, 20*time.Millisecond, func(context.Context) (bool, error) {
		g.has, err = g.addresses()
		return len(g.has) == 2, err
	})
	if err != nil {
		return "", fmt.Errorf("the UE has %v: %w", g.has, err)
	}
	return fmt.Sprintf("%v and %v", g.has[0], g.has[1]), nil
}

// addresses are those of the UE, by their prefixes.
func (g *prefixesGuide) addresses() (list []netip.Addr, err error) {
	all, err := g.ue.Kernel().AddrList(nil, unix.AF_INET6)
	for _, one := range all {
		if a, ok := netip.AddrFromSlice(one.IP); ok && prefixesPool.Contains(a) {
			list = append(list, a)
		}
	}
	if len(list) == 2 && list[1].Less(list[0]) {
		list[0], list[1] = list[1], list[0]
	}
	return list, err
}

func (g *prefixesGuide) associate(ctx context.Context) (string, error) {
	g.cuts = cutNet{lab: g.lab, ue: g.ue, server: g.srv, addresses: "[" + coreSrv6.String() + "]", every: [2]time.Duration{cutEvery, cutBack}}
	for i, a := range g.has {
		g.cuts.networks[i] = netip.PrefixFrom(a, 64).Masked()
	}
	if err := g.cuts.listen(); err != nil {
		return "", err
	}
	var err error
	if g.flow, err = g.cuts.flow(ctx, sctp.Defaults()); err != nil {
		return "", err
	}
	if err := g.flow.awaitBoth(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("it goes by %v", g.flow.server.Status().Current.Remote), nil
}

// blackhole has the network lose all that is for the prefix that data goes to now.
func (g *prefixesGuide) blackhole() *netlink.Route {
	p := netip.PrefixFrom(g.flow.server.Status().Primary.Remote, 64).Masked()
	to, _ := netlink.ParseIPNet(p.String())
	return &netlink.Route{Dst: to, Type: unix.RTN_BLACKHOLE, Family: unix.AF_INET6}
}

// prefixesCut is how long the network carries nothing to one prefix.
const prefixesCut = 3 * time.Second

func (g *prefixesGuide) cut(ctx context.Context) (string, error) {
	g.flow.resetGap()
	if err := g.core.Kernel().RouteAdd(g.blackhole()); err != nil {
		return "", err
	}
	if err := pause(ctx, prefixesCut); err != nil {
		return "", err
	}
	s := g.flow.server.Status()
	if s.Current.Remote == s.Primary.Remote {
		return "", fmt.Errorf("data still goes to %v", s.Current.Remote)
	}
	return fmt.Sprintf("%.0f ms without a delivery; it goes by %v", milliseconds(g.flow.gap()), s.Current.Remote), nil
}

func (g *prefixesGuide) restore(ctx context.Context) (string, error) {
	began := time.Now()
	if err := g.core.Kernel().RouteDel(g.blackhole()); err != nil {
		return "", err
	}
	err := g.flow.awaitPrimary(ctx)
	return fmt.Sprintf("after %.1f s", time.Since(began).Seconds()), err
}

func (g *prefixesGuide) end(context.Context) (string, error) {
	wrong, err := g.flow.stop()
	if err == nil && wrong > 0 {
		err = fmt.Errorf("%d messages were lost, or not in their order", wrong)
	}
	return "", errors.Join(err, g.cuts.end())
}
