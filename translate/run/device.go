// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/upkeep"
	"github.com/isthmus-net/isthmus/translate/keys"
)

// device is the TUN device of one translator, with the routes and neighbour proxies
// that lead packets there.
type device struct {
	log         *slog.Logger
	lastRestore time.Duration // see upkeep.Device.Last

	mu      sync.Mutex // guards what follows
	host    *port.Host // open while running
	tuns    []*port.TUN
	name    string
	route   bool // the configuration wants routes
	want    []netip.Prefix
	set     map[netip.Prefix]bool // routes that are set
	left    []netip.Prefix        // those of an earlier process, until it is known which are wanted
	proxies []proxy
	here    port.Namespace // open while running
	keeper  *upkeep.Keeper // nil before start
}

// proxy is an address that this host answers for on a link.
type proxy struct {
	link string
	addr netip.Addr
}

// open makes the device, in the network namespace of the calling thread. A persistent
// one outlives the process.
func (d *device) open(cfg *keys.Translation, persistent bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	if d.here, err = port.CurrentNamespace(); err != nil {
		return err
	}
	if d.host, err = port.OpenHost(); err != nil {
		d.here.Close()
		return err
	}
	tun := port.TUNConfig{Name: cfg.Interface, MTU: cfg.MTU, Forwarding: true, Offload: true, Persistent: persistent, Lasting: true}
	if d.tuns, err = port.OpenTUNQueues(tun, loop.Workers(cfg.Workers)); err != nil {
		return err
	}
	d.name, d.route = d.tuns[0].Name(), cfg.Route
	if d.left, err = d.host.RoutesBy(d.name); err != nil {
		return err
	}
	return d.equip(d.host)
}

// equip makes the device what it is to be.
func (d *device) equip(host *port.Host) error {
	if err := host.TranslateIPv4(d.name); err != nil {
		return err
	}
	return host.SetUp(d.name)
}

// keep keeps the device, and what leads to it, as they are to be until ctx is done; back is
// told when the device was made again.
func (d *device) keep(ctx context.Context, group *errgroup.Group, back func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	host, tuns := d.host, d.tuns
	d.keeper = upkeep.New(host, upkeep.Device{
		Name: d.name, Index: tuns[0].Index(), Without: "nothing is translated", Back: back, Last: d.lastRestore,
		Reopen: func() error {
			if err := port.ReopenTUN(tuns); err != nil {
				return err
			}
			return d.equip(host)
		},
	}, d.log)
	return d.keeper.Start(ctx, group)
}

// lead leads packets for the prefixes to the device. What is new is set first; on an
// error all is as it was. commit removes what is not wanted any more.
func (d *device) lead(prefixes []netip.Prefix) (commit func() error, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return nil, errors.New("the translator is not running, so it cannot take new settings: restart it")
	}
	var fresh []netip.Prefix
	if d.set == nil {
		d.set = make(map[netip.Prefix]bool)
	}
	for _, p := range prefixes {
		if d.set[p] {
			continue
		}
		if err := d.setRoute(p); err != nil {
			return nil, errors.Join(err, d.removeRoutes(fresh))
		}
		d.set[p] = true
		fresh = append(fresh, p)
	}
	return func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.want = slices.Clone(prefixes)
		if d.host == nil {
			return nil // closed meanwhile
		}
		old := maps.Clone(d.set)
		for _, p := range d.left {
			old[p] = true
		}
		d.left = nil
		for _, p := range prefixes {
			delete(old, p)
		}
		err := d.removeRoutes(slices.Collect(maps.Keys(old)))
		err = errors.Join(err, d.answer())
		d.sweep() // when our own are gone
		return err
	}, nil
}

// leadFree leads packets for prefixes to the device until the next commit, as far as nobody
// else has a route there, and returns the others.
func (d *device) leadFree(prefixes []netip.Prefix) (taken []netip.Prefix) {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := newPrefixes(d.left)
	for _, p := range prefixes {
		if _, there := left.set[p]; !d.route || d.set[p] || there {
			continue
		}
		if err := d.host.AddRoute(port.Route{Dst: p, Link: d.name}); err != nil {
			taken = append(taken, p)
			continue
		}
		d.set[p] = true
	}
	return taken
}

// sweep ends the answers for addresses that a process which was killed has left; d.mu is
// held.
func (d *device) sweep() {
	removed, err := d.host.RemoveLeftProxies()
	for _, what := range removed {
		d.log.Info("what an earlier process has left is removed", "what", what)
	}
	if err != nil {
		d.log.Warn("answers for addresses that an earlier process has left stay", "error", err)
	}
}

// setRoute sets a route, or expects it where others are to set it. A device that an earlier process has left makes room, when the
// configuration has had another name for it; d.mu is held.
func (d *device) setRoute(p netip.Prefix) error {
	route := port.Route{Dst: p, Link: d.name}
	if !d.route {
		return d.host.Expect(route)
	}
	err := d.host.AddRoute(route)
	taken := new(port.RouteTakenError)
	if !errors.As(err, &taken) {
		return err
	}
	if removed, _ := d.host.RemoveTUN(taken.Link); !removed {
		return routeTaken(err)
	}
	d.log.Info("a device that an earlier process has left is removed", "interface", taken.Link)
	return d.host.AddRoute(route)
}

// removeRoutes removes routes that are set; d.mu is held.
func (d *device) removeRoutes(list []netip.Prefix) error {
	var errs []error
	for _, p := range list {
		route := port.Route{Dst: p, Link: d.name}
		if d.route {
			errs = append(errs, d.host.RemoveRoute(route))
		} else {
			d.host.Unexpect(route)
		}
		delete(d.set, p)
	}
	return errors.Join(errs...)
}

// maxProxies bounds the addresses that are answered for one by one.
const maxProxies = 4096

// answer makes this host answer, on the links whose networks they are in, for the IPv4
// addresses that lead to the device: hosts there ask by ARP instead of a router. d.mu
// is held.
func (d *device) answer() error {
	if !d.route {
		return nil
	}
	own, err := d.host.IPv4()
	if err != nil {
		return err
	}
	var want []proxy
	for _, p := range d.want {
		for _, o := range own {
			if !p.Addr().Is4() || o.Link == d.name || o.Prefix.Bits() == 32 || !o.Prefix.Masked().Contains(p.Addr()) || p.Bits() < o.Prefix.Bits() {
				continue
			}
			if len(want)+1<<(32-p.Bits()) > maxProxies {
				d.log.Warn("too many addresses lie in a connected network to be answered for one by one: have the routers there route the prefix to this host", "prefix", p, "interface", o.Link)
				continue
			}
			for a := p.Addr(); p.Contains(a); a = a.Next() {
				want = append(want, proxy{o.Link, a})
			}
		}
	}
	return d.setProxies(want)
}

// setProxies brings the proxies to a list; d.mu is held.
func (d *device) setProxies(want []proxy) error {
	var errs []error
	for _, p := range want {
		if !slices.Contains(d.proxies, p) {
			errs = append(errs, d.host.AddProxy(p.link, p.addr))
		}
	}
	for _, p := range d.proxies {
		if !slices.Contains(want, p) {
			errs = append(errs, d.host.RemoveProxy(p.link, p.addr))
		}
	}
	d.proxies = want
	return errors.Join(errs...)
}

// addressesChanged answers for the pool where the networks are now.
func (d *device) addressesChanged() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return
	}
	if err := d.answer(); err != nil {
		d.log.Warn("the host's networks changed and the pool cannot be answered for everywhere", "error", err)
	}
}

// own4 and own6 are addresses of this host, on other links than the device, for ICMP
// errors: the lowest, so that the answer stays the same. Not valid: there is none.
func (d *device) own4() (netip.Addr, error) {
	list, err := d.addresses4()
	var best netip.Addr
	for _, a := range list {
		if usable := a.IsGlobalUnicast() || a.IsPrivate(); usable && (!best.IsValid() || a.Less(best)) {
			best = a
		}
	}
	return best, err
}

func (d *device) own6() (netip.Addr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return netip.Addr{}, nil
	}
	list, err := d.host.IPv6()
	var best netip.Addr
	for _, one := range list {
		a := one.Prefix.Addr()
		switch {
		case one.Link == d.name:
		case best.IsValid() && one.Deprecated: // these come last
		case !best.IsValid(), best.IsPrivate() && !a.IsPrivate(), best.IsPrivate() == a.IsPrivate() && a.Less(best):
			best = a
		}
	}
	return best, err
}

// linkMTUs are the greatest MTUs of the links with IPv4 and with IPv6 addresses: by which of
// several a packet leaves, the routes say alone. IPv6 may have less of a link than the device
// takes.
func (d *device) linkMTUs() (four, six int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return 0, 0, nil
	}
	list4, err := d.host.IPv4()
	list6, err6 := d.host.IPv6()
	for _, a := range list4 {
		if !a.Prefix.Addr().IsLoopback() {
			mtu, _ := d.mtuOf(a.Link)
			four = max(four, mtu)
		}
	}
	for _, a := range list6 {
		_, mtu := d.mtuOf(a.Link)
		six = max(six, mtu)
	}
	return four, six, errors.Join(err, err6)
}

// mtuOf returns what another link than the device takes, and how much of that IPv6 may have; 0
// if it is down; d.mu is held.
func (d *device) mtuOf(link string) (mtu, mtu6 int) {
	index, up, err := d.host.Link(link)
	if err != nil || !up || link == d.name {
		return 0, 0
	}
	wire, _ := d.host.WireAt(index)
	if mtu6, err = d.host.MTU6(index); err != nil {
		mtu6 = wire.MTU
	}
	return wire.MTU, mtu6
}

// apart refuses prefixes in which this host has an address of its own: the network there
// would be taken for IPv4.
func (d *device) apart(prefixes []netip.Prefix) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return nil
	}
	return apart(d.host, d.name, prefixes)
}

func apart(host *port.Host, but string, prefixes []netip.Prefix) error {
	list, err := host.IPv6()
	for _, p := range prefixes {
		for _, a := range list {
			if a.Link != but && p.Contains(a.Prefix.Addr()) {
				return fmt.Errorf("pool6 %s holds %s, an address of this host: choose a prefix that no network uses", p, a.Prefix.Addr())
			}
		}
	}
	return err
}

// addresses4 lists this host's IPv4 addresses, but for the device's and loopback.
func (d *device) addresses4() ([]netip.Addr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return nil, nil
	}
	return hostAddresses(d.host, d.name)
}

// hostAddresses lists a host's IPv4 addresses, but for those of a link and loopback.
func hostAddresses(host *port.Host, but string) (addrs []netip.Addr, err error) {
	list, err := host.IPv4()
	for _, a := range list {
		if a.Link != but && !a.Prefix.Addr().IsLoopback() {
			addrs = append(addrs, a.Prefix.Addr())
		}
	}
	return addrs, err
}

// local4 is [port.Host.Local4].
func (d *device) local4() (list []netip.Prefix, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return nil, nil
	}
	return d.host.Local4()
}

// inNamespace has f look at this host, in the device's network namespace.
func (d *device) inNamespace(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return
	}
	if err := d.here.Do(func() error { f(); return nil }); err != nil {
		d.log.Warn("it cannot be told whether packets pass through this host", "error", err)
	}
}

// advise warns of what keeps packets from passing.
func (p *Passage) advise(log *slog.Logger) {
	for _, sentence := range p.Closed {
		log.Warn("nothing is translated: " + sentence)
	}
}

// state is the word for a status, on a host of which is known what passes, with what is
// missing.
func (d *device) state(p *Passage) (word string, missing []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return "starting", nil
	}
	kept := d.keeper.State()
	word = kept.Word()
	switch {
	case word != "":
	case len(p.Closed) > 0:
		word = "blocked"
	default:
		word = "serving"
	}
	return word, kept.All()
}

// stats are the counters of all queues.
func (d *device) stats() (sum port.Stats, queues int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, tun := range d.tuns {
		sum = sum.Plus(tun.Stats())
	}
	return sum, len(d.tuns)
}

// closePorts makes the loops end. The device goes, unless it is left to a successor.
func (d *device) closePorts(leave bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !leave && len(d.tuns) > 0 {
		if err := d.tuns[0].Discard(); err != nil && !errors.Is(err, port.ErrClosed) {
			d.log.Warn("the device stays behind", "error", err)
		}
	}
	for _, tun := range d.tuns {
		_ = tun.Close()
	}
}

// close undoes what leads to the device, and closes it; or leaves all to a successor.
func (d *device) close(leave bool) error {
	d.mu.Lock()
	host := d.host
	d.host = nil
	if host != nil {
		d.here.Close()
	}
	d.mu.Unlock()
	var err error
	if host != nil {
		if leave {
			host.Abandon()
		} else {
			err = host.Close()
		}
	}
	d.closePorts(leave)
	return err
}
