// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"context"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/retry"
	"github.com/isthmus-net/isthmus/teredo/client"
)

const (
	firstLookup = time.Second // wait after a failed look-up of a name; doubles
	lastLookup  = time.Minute
	// relookup is how often names are looked up again while all is well.
	relookup = time.Hour

	firstLook = 100 * time.Millisecond // wait after a failed look at the network; doubles
	lastLook  = time.Minute
)

// networkState is what of the host's network the engine was told last.
type networkState struct {
	egress     port.Egress  // towards the server
	subnet     netip.Prefix // of its source
	link       port.LinkState
	broadcasts []netip.Addr
	native     bool
}

// watchNetwork tells the engine at once when the way to the server or native
// IPv6 changes, until the watch ends.
func (c *Client) watchNetwork(ctx context.Context, changes <-chan port.Change) error {
	moved := false
	changed := func(change port.Change) {
		if !moved && movesPackets(change) {
			moved = true
			c.fast.hold()
		}
	}
	return host.Bursts(ctx, changes, changed, func() {
		c.lookAround()
		if moved {
			c.fast.release()
		}
		moved = false
	})
}

// movesPackets reports whether a change may give IPv4 packets another way or source.
func movesPackets(c port.Change) bool { return c.Family != 6 }

// lookAround tells the engine what has changed in the host's network.
func (c *Client) lookAround() {
	c.looking.Lock()
	defer c.looking.Unlock()
	now, err := c.examine()
	if err != nil {
		if c.unseen.Failed(err.Error(), time.Now()) {
			c.log.Warn("cannot examine the network; it is tried again", "error", err)
		}
		select {
		case c.blind <- struct{}{}:
		default:
		}
		return
	}
	c.unseen.Works(time.Now())
	before := c.network
	c.network = now
	c.loop.Do(func(t time.Time, out *client.Out) {
		c.engine.NativeChanged(now.native, t, out)
		returned := now.link.Up && !before.link.Up
		if now.egress != before.egress || returned || !slices.Equal(now.broadcasts, before.broadcasts) {
			var local netip.AddrPort
			if now.egress.Source.IsValid() {
				local = netip.AddrPortFrom(now.egress.Source, c.conn.LocalAddr().Port())
			}
			c.engine.LocalChanged(local, now.broadcasts, t, out)
		}
	})
	c.ports.follow(now.egress, c.conn.LocalAddr().Port())
	if now.egress != before.egress || now.subnet != before.subnet {
		c.discoverOn(now.egress.Link, now.subnet)
	}
	if now.native && !before.native && c.cfg.Native == NativeAside {
		c.log.Info(`this host has native IPv6, so the Teredo client steps aside; write native = "standby" to keep the address for programs that bind to it`)
	}
}

// lookAgain looks at the network again when that has failed, until ctx is done.
func (c *Client) lookAgain(ctx context.Context) {
	for {
		select {
		case <-c.blind:
		case <-ctx.Done():
			return
		}
		c.looking.Lock()
		wait := c.unseen.Wait(time.Now())
		c.looking.Unlock()
		select {
		case <-time.After(wait):
			c.lookAround()
		case <-ctx.Done():
			return
		}
	}
}

// examineNetwork looks at the host's network as it is.
func (c *Client) examineNetwork() (networkState, error) {
	var s networkState
	own, err := c.host.IPv4()
	if err != nil {
		return s, err
	}
	for _, a := range own {
		if a.Broadcast.IsValid() {
			s.broadcasts = append(s.broadcasts, a.Broadcast)
		}
	}
	s.egress = c.egress(own)
	s.subnet = subnetOf(own, s.egress.Source)
	if s.egress.Source.IsValid() {
		if s.link, err = c.host.LinkAt(s.egress.Link); err != nil {
			return s, err
		}
	}
	if c.cfg.Native != NativeIgnore {
		if s.native, err = c.host.NativeIPv6([]string{c.cfg.Interface}, c.cfg.Prefixes...); err != nil {
			return s, err
		}
	}
	return s, nil
}

// anyServer stands for a server whose name is not resolved yet: any address that
// is reached by the default route will do.
var anyServer = netip.MustParseAddr("192.88.99.1")

// egress reports how packets to the server leave the host; the zero Egress when
// they cannot.
func (c *Client) egress(own []port.IPv4) port.Egress {
	dst := anyServer
	if servers := c.servers(); len(servers) > 0 {
		dst = servers[0].Primary
	}
	e, err := c.host.EgressBy(dst, c.via)
	if err != nil {
		return port.Egress{}
	}
	if bind := c.cfg.Bind; bind.IsValid() && !bind.IsUnspecified() {
		e.Source = netip.Addr{}
		if slices.ContainsFunc(own, func(a port.IPv4) bool { return a.Prefix.Addr() == bind }) {
			e.Source = bind
		}
	}
	return e
}

// servers lists the servers whose addresses are known, in the configured order.
func (c *Client) servers() (list []client.Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.cfg.Servers {
		addrs := c.resolved[h.Name]
		if h.Addr.IsValid() {
			addrs = []netip.Addr{h.Addr}
		}
		for _, a := range addrs {
			list = append(list, client.Server{Primary: a, Secondary: secondaryOf(a, c.cfg.Secondary)})
		}
	}
	return list
}

// secondaryOf returns the secondary address of a server.
func secondaryOf(primary netip.Addr, s Secondary) netip.Addr {
	switch s.Mode {
	case SecondaryAddress:
		return s.Addr
	case SecondaryAuto:
		return primary.Next()
	}
	return netip.Addr{}
}

// resolveServers looks up the servers that are given by name, and again while
// the look-up fails, until ctx is done.
func (c *Client) resolveServers(ctx context.Context) {
	trouble := retry.Trouble{First: firstLookup, Last: lastLookup}
	for known := c.servers(); ; known = nil {
		c.resolveOnce(ctx, &trouble)
		wait := trouble.Wait(time.Now())
		if wait == 0 {
			wait = relookup
		}
		servers := c.servers()
		if !slices.Equal(servers, known) { // else the start has looked for the way to these
			c.lookAround()
		}
		c.loop.Do(func(now time.Time, out *client.Out) { c.engine.SetServers(servers, now, out) })
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-c.changed:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// resolveOnce looks up all names, and notes whether each has an address now. A
// name whose look-up fails keeps the addresses that it had.
func (c *Client) resolveOnce(ctx context.Context, trouble *retry.Trouble) {
	c.mu.Lock()
	servers := slices.Clone(c.cfg.Servers)
	c.mu.Unlock()
	var failed []string // names, each with why
	for _, h := range servers {
		if h.Name == "" {
			continue
		}
		addrs, err := c.lookup(ctx, h.Name)
		if err != nil {
			failed = append(failed, h.Name+": "+err.Error())
			continue
		}
		c.mu.Lock()
		if !reflect.DeepEqual(c.resolved[h.Name], addrs) {
			c.log.Info("server found", "server", h.Name, "addresses", addrs)
			c.resolved[h.Name] = addrs
		}
		c.mu.Unlock()
	}
	now := time.Now()
	if len(failed) == 0 {
		trouble.Works(now)
		return
	}
	if text := strings.Join(failed, "; "); trouble.Failed(text, now) && ctx.Err() == nil {
		c.log.Warn("cannot look up servers: check their names and the name service", "error", text)
	}
}

// lookupIPv4 returns the IPv4 addresses of a name, sorted so that their order,
// which name servers rotate, does not make the client change its server.
func lookupIPv4(ctx context.Context, name string) ([]netip.Addr, error) {
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", name)
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return addrs, err
}

// viaNow is the interface by which packets to the server leave the host.
func (c *Client) viaNow() string {
	c.looking.Lock()
	defer c.looking.Unlock()
	return c.network.link.Name
}

// watchSleep tells the engine when the host wakes, until ctx is done.
func (c *Client) watchSleep(ctx context.Context) {
	sleeps, err := port.WatchSleep(ctx)
	if err != nil {
		c.log.Warn("a sleep of this host will be noticed by the refresh only", "error", err)
		return
	}
	for s := range sleeps {
		c.log.Info("awake again", "slept", s.Slept)
		c.lookAround()
		c.loop.Do(func(now time.Time, out *client.Out) { c.engine.Resumed(s.Slept, now, out) })
	}
}
