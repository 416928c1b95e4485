// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/bypass"
)

// Redirected packets never confirm a neighbour, and the kernel asks again only
// when it sends itself. So it is told to probe, which notices a neighbour that
// moved to another MAC without a word: after at most probeEvery and the kernel's
// three questions, one a second.
const (
	probeEvery = 5 * time.Second
	// maxProbes bounds the questions of one round. Where more next hops are in use, each has its
	// turn later.
	maxProbes = 256
	// refreshEvery is how often all answers are made void, so that programs ask again for the next
	// hops that packets still go to, and no others stay in use.
	refreshEvery = fastpath.InUse / 2
)

// prober asks the kernel about routes, rules and neighbours, by sockets of the
// namespace that it was made in.
type prober struct {
	table   Table
	every   time.Duration
	refresh time.Duration
	routing map[int]*nl.SocketHandle // for the classes
	asking  map[int]*nl.SocketHandle // for the neighbours
	handle  *netlink.Handle          // for rules and addresses; it serializes requests
	offset  int
}

// newProber opens the sockets.
func newProber(table Table) (*prober, error) {
	p := &prober{table: table, every: probeEvery, refresh: refreshEvery}
	var err error
	if p.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, err
	}
	if p.routing, err = routeSocket(); err != nil {
		p.close()
		return nil, err
	}
	if p.asking, err = routeSocket(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// routeSocket opens a socket for requests.
func routeSocket() (map[int]*nl.SocketHandle, error) {
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: s}}, nil
}

func (p *prober) close() {
	p.handle.Close()
	for _, sockets := range []map[int]*nl.SocketHandle{p.routing, p.asking} {
		for _, s := range sockets {
			s.Close()
		}
	}
}

// run probes until ctx ends.
func (p *prober) run(ctx context.Context, count *atomic.Uint64) {
	ticker := time.NewTicker(p.every)
	defer ticker.Stop()
	refresh := time.NewTicker(p.refresh)
	defer refresh.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-refresh.C:
			p.table.Bump()
		case <-ticker.C:
			count.Add(uint64(p.round()))
		}
	}
}

// round probes the next hops in use and returns how many. An error needs no
// report: the next round asks again, and without probes the kernel's own timers
// still hold.
func (p *prober) round() int {
	hops, err := p.table.Neighbours()
	if err != nil || len(hops) == 0 {
		return 0
	}
	used := make(map[neighbourKey]bool, len(hops))
	for _, h := range hops {
		used[neighbourKey{family: uint8(h.Family), link: int32(h.Ifindex), addr: h.Addr.Unmap()}] = true
	}
	wanted := p.wanted(used)
	if len(wanted) == 0 {
		return 0
	}
	probed := 0
	for i := range min(len(wanted), maxProbes) {
		if p.probe(wanted[(p.offset+i)%len(wanted)]) == nil {
			probed++
		}
	}
	p.offset = (p.offset + maxProbes) % len(wanted)
	return probed
}

// askable is a neighbour of the kernel that can be probed.
type askable struct {
	key   neighbourKey
	flags uint8
}

// wanted lists the next hops in use that the kernel knows but has not asked for
// lately. Those without an address need no help: their packets are left to the
// kernel, which asks.
func (p *prober) wanted(used map[neighbourKey]bool) []askable {
	var wanted []askable
	speaking := p.speaking6()
	req := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
	req.Sockets = p.asking
	req.AddRawData(make([]byte, unix.SizeofNdMsg))
	// Also a dump that ended in an error or was interrupted has told something.
	_ = req.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH, func(data []byte) bool {
		e := neighbourEvent(data, false)
		if e.kind != neighbourChanged || !used[e.neighbour] || e.neighbour.family == 6 && !speaking[int(e.neighbour.link)] {
			return true
		}
		state, flags := binary.NativeEndian.Uint16(data[8:10]), data[10]
		if state&(unix.NUD_STALE|unix.NUD_REACHABLE) != 0 && flags&unix.NTF_EXT_LEARNED == 0 {
			wanted = append(wanted, askable{e.neighbour, flags})
		}
		return true
	})
	return wanted
}

// speaking6 returns the links on which the kernel can ask an IPv6 neighbour. It
// asks with a link-local address; where there is none yet, a probe would fail by
// itself and take a good neighbour away.
func (p *prober) speaking6() map[int]bool {
	speaking := make(map[int]bool)
	addrs, _ := p.handle.AddrList(nil, netlink.FAMILY_V6) // what came before an error is right
	for _, a := range addrs {
		if a.IP.IsLinkLocalUnicast() && a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0 {
			speaking[a.LinkIndex] = true
		}
	}
	return speaking
}

// probe makes the kernel ask a neighbour for its address. Meanwhile the old one
// stays in use; it becomes invalid if no answer comes.
func (p *prober) probe(k askable) error {
	family := uint8(unix.AF_INET)
	if k.key.family == 6 {
		family = unix.AF_INET6
	}
	req := nl.NewNetlinkRequest(unix.RTM_NEWNEIGH, unix.NLM_F_ACK)
	req.Sockets = p.asking
	req.AddData(&netlink.Ndmsg{Family: family, Index: uint32(k.key.link), State: unix.NUD_PROBE, Flags: k.flags})
	req.AddData(nl.NewRtAttr(unix.NDA_DST, k.key.addr.AsSlice()))
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// routes reads the IPv4 routes and finds the hop of each /16.
func (p *prober) routes(ctx context.Context) snapshot4 {
	plain, err := p.plainRules()
	if err != nil {
		return snapshot4{err: err}
	}
	gathered := new(routes4)
	if !plain {
		return gathered.finish()
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	req.Sockets = p.routing
	msg := make([]byte, unix.SizeofRtMsg)
	msg[0] = unix.AF_INET
	req.AddRawData(msg)
	unreadable := false
	err = req.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE, func(data []byte) bool {
		r, ok := parseRoute4(data)
		if !ok {
			unreadable = true
			return false
		}
		gathered.add(&r)
		return ctx.Err() == nil
	})
	// A dump is interrupted by changes, and each of these takes the class from
	// what it concerns.
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return snapshot4{err: err}
	}
	if unreadable || ctx.Err() != nil {
		return snapshot4{err: fmt.Errorf("cannot read the kernel's IPv4 routes")}
	}
	return gathered.finish()
}

// plainRules reports whether the IPv4 policy rules are the three that every host
// starts with; with others the answer depends on more than the destination.
func (p *prober) plainRules() (bool, error) {
	rules, err := p.handle.RuleList(netlink.FAMILY_V4)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return true, nil // a kernel without policy routing
	}
	if err != nil {
		return false, err
	}
	return bypass.DefaultRules(rules), nil
}
