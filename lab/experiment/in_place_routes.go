// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
)

// Choices of the hosts' routes. Each /16 of IPv4 is behind two gateways, so that to a fast
// path each host is a next hop of its own (docs/decisions/0008-next-hops.md).
const (
	placedGateways = 16
	placedHalves   = 32 // of /16s
	placedBits     = 20 // of a host's number
	churnRate      = 100
	placedPoll     = 50 * time.Millisecond
)

// spreadHost is the number of the i-th host, such that few are behind all gateways as many
// are.
func spreadHost(i int) uint32 { return uint32(i) * 0x9e3b1 & (1<<placedBits - 1) }

// placedHost4 is the i-th IPv4 host.
func placedHost4(i int) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 10<<24|spreadHost(i))))
}

// drawGateways has the router of a way reach the IPv4 hosts, and IPv6 hosts in 16 prefixes,
// by 16 gateways each. The addresses of its own are those that the topologies have.
func drawGateways(router *lab.Node, number int, hosts6 func(gateway int) netip.Prefix, left, right net.HardwareAddr) error {
	router.Addr("out4", "198.51.100.193/27").Route("10.0.0.0/8", placedGateway4(0).String())
	splitRoutes(router)
	for g := range placedGateways {
		gateway6 := netip.MustParseAddr(fmt.Sprintf("2001:db8:%d::1:%d", number, g))
		router.Route(hosts6(g).String(), gateway6.String())
		if err := errors.Join(router.Lab().Err(), router.Know("in6", gateway6, left), router.Know("out4", placedGateway4(g), right)); err != nil {
			return err
		}
	}
	return nil
}

func placedGateway4(g int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, 100, byte(194 + g)}) }

// eachHalf calls f with half a /16 and its gateway.
func eachHalf(f func(destination, gateway string)) {
	for i := range placedHalves {
		gateway := (i/2 + i%2*placedGateways/2) % placedGateways
		f(fmt.Sprintf("10.%d.%d.0/17", i/2, i%2*128), placedGateway4(gateway).String())
	}
}

// splitRoutes leads each half of a /16 to a gateway of its own.
func splitRoutes(router *lab.Node) {
	eachHalf(func(to, by string) { router.Route(to, by) })
}

func (p *place) splitRoutes() { splitRoutes(p.router) }

// joinRoutes leaves the one route that all hosts have.
func (p *place) joinRoutes() {
	eachHalf(func(to, by string) { p.router.RemoveRoute(to, by) })
}

// joined reports whether the fast path has a class of routes for all IPv4 hosts.
func (p *place) joined() (bool, error) {
	classes, err := load.Classes4(p.programs[toIPv4])
	return err == nil && !slices.Contains(classes[10<<8:10<<8+placedHalves/2], 0), err
}

// awaitJoined waits until each fast path has such a class. It finds classes in the background, and
// rests the longer, the longer it took the last time: for seconds on a machine at work.
func (w *placedWorld) awaitJoined(ctx context.Context) error {
	for _, p := range w.places {
		if !p.way.ours() {
			continue
		}
		err := poll(ctx, placedJoined, placedPoll, func(context.Context) (bool, error) { return p.joined() })
		if err != nil {
			return fmt.Errorf("%s has no class for the one route of all IPv4 hosts, for which there were %v: %w", p.way.title, placedJoined, err)
		}
	}
	return nil
}

// eachRouter changes the routes of all ways.
func (w *placedWorld) eachRouter(change func(*place)) error {
	var errs []error
	for _, p := range w.places {
		change(p)
		errs = append(errs, p.router.Lab().Err())
	}
	return errors.Join(errs...)
}

// churn changes routes on each router that no packet takes, while they are to change, until
// it is stopped.
func (w *placedWorld) churn(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var running errgroup.Group
	for _, p := range w.places {
		running.Go(func() error { return p.churn(ctx, &w.changing) })
	}
	return func() error {
		cancel()
		return running.Wait()
	}
}

// churn is that of one router, half of it in each family.
func (p *place) churn(ctx context.Context, changing *atomic.Bool) error {
	var handle *netlink.Handle
	err := p.router.Do(func() (err error) {
		handle, err = netlink.NewHandle()
		return err
	})
	if err != nil {
		return err
	}
	defer handle.Close()
	var routes []*netlink.Route
	for _, r := range []struct{ to, iface string }{{"192.0.2.200/32", "out4"}, {"2001:db8:ffff::/64", "in6"}} {
		link, err := handle.LinkByName(r.iface)
		if err != nil {
			return err
		}
		to, err := netlink.ParseIPNet(r.to)
		if err != nil {
			return err
		}
		routes = append(routes, &netlink.Route{Dst: to, LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK})
	}
	const gap = time.Second / churnRate
	every := time.NewTicker(gap)
	defer every.Stop()
	next := time.Now()
	for i := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		if !changing.Load() {
			next = time.Now()
			continue
		}
		// A busy machine has the ticker wait for longer than that: what is due is made up for.
		for ; ctx.Err() == nil && changing.Load() && time.Since(next) >= 0; next = next.Add(gap) {
			change := handle.RouteReplace
			if i/len(routes)%2 == 1 {
				change = handle.RouteDel
			}
			if err := change(routes[i%len(routes)]); err != nil {
				return fmt.Errorf("a route cannot be changed: %w", err)
			}
			i++
			p.changed.Add(1)
		}
	}
}
