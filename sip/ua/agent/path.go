// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
	"github.com/isthmus-net/isthmus/sip/ua"
)

// path is an address of the host with its sockets, ready whether it is in use or not.
type path struct {
	ua.Path
	link       string
	index      int // of the link
	deprecated bool
	udp        *net.UDPConn
	tcp        net.Listener
	streams    map[netip.AddrPort]*stream
}

// look asks for the host's links and addresses, beside the loop: the kernel lets such questions wait for whoever
// changes the host's configuration, and a call must not wait behind them. What is asked for meanwhile is asked
// once more behind it. After a look that has failed there is another one soon.
func (a *Agent) look() {
	if a.looking {
		a.again = true
		return
	}
	a.looking, a.again = true, false
	a.asking.Add(1)
	go func() {
		found, err := a.addresses()
		a.asking.Done()
		a.post(func() {
			a.looking = false
			if err == nil {
				err = a.compare(found, time.Now())
			}
			switch {
			case a.again:
				a.look()
			case err != nil:
				time.AfterFunc(lookAgain, func() { a.post(a.look) })
			}
		})
	}()
}

// compare compares the host's addresses with the paths: those whose address or link is gone are lost, new
// ones are opened, and calls go by the one that the routes prefer.
func (a *Agent) compare(found map[netip.Addr]address, now time.Time) error {
	for id, p := range a.paths {
		if f, ok := found[p.Local.Addr()]; ok && f.link == p.link {
			p.deprecated = f.deprecated
			delete(found, p.Local.Addr())
			continue
		}
		a.lose(id, p, now)
	}
	var failed error
	if len(found) > 0 {
		a.closeLost() // an address that comes again wants its port
	}
	for address, f := range found {
		if err := a.open(address, f); err != nil {
			failed = err
		}
	}
	a.usePreferred(now)
	return failed
}

// linkAddr is an address of a link, by its index.
type linkAddr struct {
	address netip.Addr
	link    int
}

// heed does at once what changes say by themselves: paths whose addresses are gone are lost, and calls go by
// the one that the routes prefer.
func (a *Agent) heed(first port.Change, more <-chan port.Change) {
	gone := map[linkAddr]bool{{first.Address, first.Link}: first.Gone}
	for len(more) > 0 {
		c := <-more
		gone[linkAddr{c.Address, c.Link}] = c.Gone // the last word counts
	}
	now := time.Now()
	for id, p := range a.paths {
		if gone[linkAddr{p.Local.Addr(), p.index}] {
			a.lose(id, p, now)
		}
	}
	a.usePreferred(now)
}

// usePreferred has calls go by the path that the routes prefer.
func (a *Agent) usePreferred(now time.Time) {
	if id, ok := a.choose(); ok {
		a.engine.Use(id, now, &a.out)
	}
}

// lookAgain is when the host is looked at without a change, after a look that has failed: an
// address may be gone again before its sockets were opened, or a list was interrupted.
const lookAgain = 50 * time.Millisecond

// carrierEvery is how often the link in use is looked at during a call, for the kernel may
// take a second to tell that its carrier is gone.
const carrierEvery = 20 * time.Millisecond

// checkCarrier looks at everything if the link in use has lost its carrier. It asks beside the loop, as look does.
func (a *Agent) checkCarrier(now time.Time) {
	if len(a.calls) == 0 || now.Sub(a.checked) < carrierEvery {
		return
	}
	a.checked = now
	id, ok := a.engine.Using()
	if !ok || a.checking {
		return
	}
	a.checking = true
	link := a.paths[id].link
	a.asking.Add(1)
	go func() {
		l, err := a.links.LinkNamed(link)
		a.asking.Done()
		a.post(func() {
			a.checking = false
			if err == nil && !l.Carrier {
				a.look()
			}
		})
	}()
}

// address is one of the host's, as look sees it.
type address struct {
	link       string
	deprecated bool
}

// addresses are those that are ready for use, on links that are up. Tentative ones, those of
// links alone and the loopback's are not among them.
func (a *Agent) addresses() (map[netip.Addr]address, error) {
	list, err := a.links.Addresses()
	if err != nil {
		return nil, err
	}
	found := map[netip.Addr]address{}
	for _, one := range list {
		at, link := one.Prefix.Addr(), one.Link
		if (at.Is4() || at.IsGlobalUnicast()) && link.Up && link.Carrier && a.wanted(at, link.Name) {
			found[at] = address{link.Name, at.Is6() && one.Deprecated}
		}
	}
	return found, nil
}

func (a *Agent) wanted(at netip.Addr, link string) bool {
	if len(a.set.Interfaces) == 0 {
		return !at.IsLoopback() && !at.IsLinkLocalUnicast()
	}
	return slices.Contains(a.set.Interfaces, link) && !at.IsLinkLocalUnicast()
}

// choose returns the path by which calls should go: the one whose address the kernel would
// take for the peer, else any that has a route there. While there is no peer, any will do.
func (a *Agent) choose() (int, bool) {
	target, ok := a.target()
	ids := a.preferred()
	targets := anywhere[:]
	if ok {
		targets = []netip.Addr{target}
	}
	for _, to := range targets {
		if id, found := a.toward(to, ids); found {
			return id, true
		}
	}
	if ok || len(ids) == 0 {
		return 0, false
	}
	return ids[0], true
}

// preferred are the numbers of all paths, the oldest first, those of deprecated addresses behind the others.
func (a *Agent) preferred() []int {
	return slices.SortedFunc(maps.Keys(a.paths), func(x, y int) int {
		p, q := a.paths[x], a.paths[y]
		if p.deprecated != q.deprecated {
			if p.deprecated {
				return 1
			}
			return -1
		}
		return x - y
	})
}

// onLink returns the path of a link that calls and registration can go by: that in use, or one of the same
// family. Only while there is no one to be reached may it be of the other.
func (a *Agent) onLink(link string) (int, error) {
	using, inUse := a.engine.Using()
	other, found := 0, false
	for _, id := range a.preferred() {
		switch p := a.paths[id]; {
		case p.link != link:
		case id == using, !inUse, p.Local.Addr().Is4() == a.paths[using].Local.Addr().Is4():
			return id, nil
		case !found:
			other, found = id, true
		}
	}
	if !found {
		return 0, fmt.Errorf("interface %s has no address that is ready: status shows those in use", link)
	}
	if _, wanted := a.target(); wanted {
		return 0, fmt.Errorf("interface %s has no %s address, by which the other end is reached: give it one, or choose another", link, familyOf(a.paths[using].Local.Addr()))
	}
	return other, nil
}

func familyOf(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// toward returns the first of these paths whose address the kernel would take for a host, else the
// first that has a route there.
func (a *Agent) toward(to netip.Addr, ids []int) (int, bool) {
	if e, err := a.host.Egress(to); err == nil {
		for _, id := range ids {
			if a.paths[id].Local.Addr() == e.Source {
				return id, true
			}
		}
	}
	for _, id := range ids {
		if p := a.paths[id]; p.Local.Addr().Is4() == to.Is4() {
			_, err := a.host.EgressBy(to, p.link)
			if err != nil {
				// There may be a route for packets from there alone: a Teredo client that
				// stands by has no other.
				_, err = a.host.EgressFrom(to, p.link, p.Local.Addr())
			}
			if err == nil {
				return id, true
			}
		}
	}
	return 0, false
}

// anywhere stands for a peer while there is none: its routes are the default ones, of IPv6 before IPv4.
var anywhere = [...]netip.Addr{netip.MustParseAddr("2000::1"), netip.MustParseAddr("1.0.0.1")}

// target is whom the routes are asked for: the peer of a call, else the proxy or registrar.
func (a *Agent) target() (netip.Addr, bool) {
	hosts := make([]message.URI, 0, 3)
	for _, id := range a.engine.Calls() {
		if info, ok := a.engine.Call(id); ok && info.Target.Host != "" {
			hosts = append(hosts, info.Target)
			break
		}
	}
	hosts = append(hosts, a.set.UA.Proxy)
	if a.set.UA.Register > 0 {
		hosts = append(hosts, a.registrar())
	}
	for _, u := range hosts {
		if at, err := netip.ParseAddr(u.Host); err == nil {
			return at.Unmap(), true
		}
		if list := a.targets(placeOf(&u)); len(list) > 0 {
			return list[0].Remote.Addr(), true
		}
	}
	return netip.Addr{}, false
}

// open makes the path of an address.
func (a *Agent) open(at netip.Addr, f address) error {
	local := netip.AddrPortFrom(at, a.set.Port)
	p := &path{link: f.link, deprecated: f.deprecated, streams: map[netip.AddrPort]*stream{}}
	err := a.ns.Do(func() error {
		if link, err := net.InterfaceByName(f.link); err == nil {
			p.MTU, p.index = link.MTU, link.Index
		}
		control := bind(boundTo(f.link, at))
		packets, err := (&net.ListenConfig{Control: control}).ListenPacket(context.Background(), "udp", local.String())
		if err != nil {
			return err
		}
		p.udp = packets.(*net.UDPConn)
		widen(p.udp)
		p.tcp, err = (&net.ListenConfig{Control: control}).Listen(context.Background(), "tcp", local.String())
		if err != nil {
			return errors.Join(err, p.udp.Close())
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot open SIP's port on %s: %w", local, err)
	}
	a.last++
	p.ID, p.Name, p.Local = a.last, f.link, local
	a.paths[p.ID] = p
	a.engine.AddPath(p.Path)
	for _, c := range a.calls {
		_ = c.open(p) // a call that has none there says so when it is asked for them
	}
	go a.receive(p)
	go a.accept(p)
	return nil
}

// queued is how much a socket of SIP holds until it is read, in octets: when a thousand calls move
// at once, as many requests come at once, and what is lost is repeated after half a second.
const queued = 4 << 20

// widen has a socket hold that much, or as much as the host allows an ordinary user.
func widen(conn *net.UDPConn) {
	if c, err := conn.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) {
			if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, queued) != nil {
				_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, queued)
			}
		})
	}
}

// boundTo is the link that sockets of a path are bound to, so that what leaves by a path leaves by its link,
// whichever the routes prefer; "": none.
func boundTo(link string, at netip.Addr) string {
	if at.IsLoopback() {
		return ""
	}
	return link
}

// bind has sockets bound to a link.
func bind(link string) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		if link == "" {
			return nil
		}
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.BindToDevice(int(fd), link) })
		return errors.Join(err, failed)
	}
}

// lose gives up a path whose address is gone. Its sockets are closed when what tells the peers of it has
// been sent.
func (a *Agent) lose(id int, p *path, now time.Time) {
	delete(a.paths, id)
	a.lost = append(a.lost, func() {
		a.closePath(p)
		for _, c := range a.calls {
			c.ClosePath(id)
		}
	})
	a.engine.LosePath(id, now, &a.out)
}

// closeLost closes the sockets of paths that were lost.
func (a *Agent) closeLost() {
	for _, end := range a.lost {
		end()
	}
	a.lost = nil
}

func (a *Agent) closePath(p *path) {
	_ = p.udp.Close()
	_ = p.tcp.Close()
	for _, s := range p.streams {
		s.close()
	}
}

func (a *Agent) closePaths() {
	a.closeLost()
	for _, c := range a.calls {
		c.Close()
	}
	for _, p := range a.paths {
		a.closePath(p)
	}
}

// receive reads datagrams until the path is closed.
func (a *Agent) receive(p *path) {
	b := make([]byte, 1<<16)
	for {
		n, from, err := p.udp.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error of an earlier packet
		}
		data := slices.Clone(b[:n])
		a.post(func() {
			a.engine.Handle(data, transaction.Target{Transport: "UDP", Local: p.Local, Remote: from}, time.Now(), &a.out)
		})
	}
}

// send sends a packet of the engine's. An error of UDP that says that the address or the route
// is gone comes as a change as well, and sooner.
func (a *Agent) send(packet ua.Packet) {
	for _, p := range a.paths {
		switch {
		case p.Local != packet.To.Local:
		case packet.To.Reliable():
			a.sendStream(p, packet)
		default:
			_, _ = p.udp.WriteToUDPAddrPort(packet.Data, packet.To.Remote)
		}
	}
}
