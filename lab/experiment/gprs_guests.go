// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/sgsn"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/lab/load"
)

// guests are terminals of an SGSN of the lab, of one context each, with a server that they send to and hear of. Each
// sends and gets octets of its own number, which are counted packet by packet, as they are on the wire.
type guests struct {
	labSGSN
	peer    netip.Addr // the GGSN
	kinds   []guestKind
	list    []guest        // by their links
	servers [2]*port.UDP   // of IPv4 and IPv6
	served  errgroup.Group // what listens at them

	outcomes []sgsn.Event // of orders; with the loop's mutex
	news     chan struct{}
	done     atomic.Int64 // of what goes on: see during
	arrived  struct{ up, down atomic.Uint64 }
	sent     struct{ up, down uint64 } // packets
	linked   uint64                    // prefixes of the links of guests that have come in
}

// guestKind is what guests ask for. Guests of several kinds take turns.
type guestKind struct {
	name, apn string
	is        gtp.PDPType
	prefixes  int  // of its link: of IPv6 at least one
	delegate  bool // a prefix for a network behind, too
}

// guest is one terminal.
type guest struct {
	key gtp.TID
	// from is where it sends from: an address of each family, and one of the network behind it.
	from            []netip.Addr
	has             string  // its addresses and prefixes, as accounts are to tell them
	asked, entering bool    // an order is under way, which is to come in
	sent            counted // by it, and to it
	carried         counted // by its contexts, with what the link itself needs, when they have ended
	told            counted // of these, what update has told
}

// Choices of guests.
const (
	guestWindow   = 500 // orders under way
	guestBatch    = 24  // terminals that send and get at a time
	guestTries    = 5   // to come in
	guestPatience = 5 * time.Minute
	guestT3       = time.Second
	guestPort     = 9000
)

// startGuests begins, with room for so many, of some kinds.
func (n *coreNet) startGuests(room int, kinds ...guestKind) (g *guests, err error) {
	g = &guests{news: make(chan struct{}, 1), list: make([]guest, room), peer: n.at.ggsn, kinds: kinds}
	err = n.srv.Do(func() (err error) {
		for i, at := range []netip.Addr{coreSrv4, coreSrv6} {
			u, failed := port.ListenUDP(port.UDPConfig{Addr: netip.AddrPortFrom(at, guestPort)})
			if g.servers[i] = u; failed != nil {
				return failed
			}
			g.served.Go(func() error { return g.serve(u) })
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, g.closeServers())
	}
	settings := sgsn.Settings{Addresses: []netip.Addr{n.at.sgsn}, T3Response: guestT3, N3Requests: int(daemonStart / guestT3), MaxContexts: room}
	if err := g.start(n.sgsn, settings, g.settled); err != nil {
		return nil, errors.Join(err, g.closeServers())
	}
	return g, nil
}

// close forgets them.
func (g *guests) close() error { return errors.Join(g.Close(), g.closeServers()) }

func (g *guests) closeServers() error {
	var errs []error
	for _, u := range g.servers {
		if u != nil {
			errs = append(errs, u.Close())
		}
	}
	return errors.Join(append(errs, g.served.Wait())...)
}

// serve counts what comes to a server.
func (g *guests) serve(u *port.UDP) error {
	for msgs := make([]port.Message, port.MaxBatch); ; {
		k, err := u.ReadBatch(msgs)
		if errors.Is(err, port.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		g.arrived.up.Add(uint64(k))
		g.tell()
	}
}

// settled takes what becomes of orders, and counts what comes to the terminals.
func (g *guests) settled(out *sgsn.Output) {
	for _, e := range out.Events {
		if e.Kind > sgsn.Ended {
			continue // of a path
		}
		one := &g.list[e.Link]
		if e.Kind == sgsn.Ended {
			one.carried = one.carried.plus(carriedBy(e.Traffic)) // it may have come in twice
		}
		if !one.asked || !g.entered(one, &e) {
			continue // an advertisement that has come again, or the GGSN has ended it
		}
		one.asked, one.entering = false, false
		g.outcomes = append(g.outcomes, e)
	}
	for _, ip := range out.IP {
		if ip[0]>>4 == 4 || packet.IPv6(ip).NextHeader() == packet.ProtoUDP { // others are of the link
			g.arrived.down.Add(1)
		}
	}
	if len(out.Events)+len(out.IP) > 0 {
		g.tell()
	}
}

func carriedBy(t sgsn.Traffic) counted { return counted{t.UpOctets, t.DownOctets} }

// entered reports whether an event ends what a guest has been told to do. Who comes in has all that its kind has then.
func (g *guests) entered(one *guest, e *sgsn.Event) bool {
	switch {
	case !one.entering:
		return e.Kind != sgsn.Configured
	case e.Kind == sgsn.Refused, e.Kind == sgsn.Ended:
		return true
	}
	x, there := g.engine.Context(e.Key)
	kind := g.kinds[e.Link%len(g.kinds)]
	if !there || len(x.IPv6) < kind.prefixes || kind.delegate && len(x.Delegated) == 0 {
		return false
	}
	e.Cause = gtp.CauseAccepted // an advertisement has none
	one.settle(&x, e.Link)
	g.linked += uint64(kind.prefixes)
	return true
}

// settle notes what a guest has.
func (one *guest) settle(x *sgsn.Info, link int) {
	one.key, one.from = x.Key, nil
	var has []string
	add := func(a netip.Addr, told any) {
		one.from, has = append(one.from, a), append(has, fmt.Sprint(told))
	}
	if x.IPv4.IsValid() {
		add(x.IPv4, x.IPv4)
	}
	for _, a := range x.IPv6 {
		add(a.Address, netip.PrefixFrom(a.Address, 64).Masked())
	}
	for _, d := range x.Delegated {
		raw := d.Prefix.Addr().As16()
		raw[7], raw[15] = byte(1+link%255), 7 // not in the /64 of the link
		add(netip.AddrFrom16(raw), d.Prefix)
	}
	one.has = strings.Join(has, " ")
}

// quiet waits until the third advertisement of each prefix has come, beside the one that its guest has asked for: then
// the next is far away (RFC 4861 section 6.2.4), and nothing is on its way when a context ends.
func (g *guests) quiet(ctx context.Context) error {
	return poll(ctx, guestPatience, accountingLook, func(context.Context) (bool, error) {
		var missing bool
		g.loop.Do(func(time.Time, *sgsn.Output) { missing = g.engine.Stats().Advertisements < 4*g.linked })
		return !missing, nil
	})
}

// total is what all guests have carried, those that are gone included.
func (g *guests) total() (all counted) {
	g.loop.Do(func(time.Time, *sgsn.Output) { all = carriedBy(g.engine.Stats().Traffic) })
	return all
}

// finish takes what those have carried whose contexts are open still.
func (g *guests) finish() {
	g.loop.Do(func(time.Time, *sgsn.Output) {
		for i := range g.list {
			if x, there := g.engine.Context(g.list[i].key); there {
				g.list[i].carried = carriedBy(x.Traffic)
			}
		}
	})
}

func (g *guests) tell() {
	select {
	case g.news <- struct{}{}:
	default:
	}
}

// await waits for news.
func (g *guests) await(ctx context.Context, of string) error {
	patience := time.NewTimer(guestPatience)
	defer patience.Stop()
	select {
	case <-g.news:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-patience.C:
		return fmt.Errorf("nothing is heard of %s for %v", of, guestPatience)
	}
}

// order gives an order for each of some guests, and returns those for whom it has failed.
func (g *guests) order(ctx context.Context, links []int, do func(link int, now time.Time, out *sgsn.Output) error) (failed []int, err error) {
	for next, waiting := 0, 0; ; {
		g.loop.Do(func(now time.Time, out *sgsn.Output) {
			for _, e := range g.outcomes {
				waiting--
				g.done.Add(1)
				if !e.Cause.Accepted() {
					failed = append(failed, e.Link)
				}
			}
			g.outcomes = g.outcomes[:0]
			for ; waiting < guestWindow && next < len(links) && err == nil; next++ {
				g.list[links[next]].asked = true
				waiting++
				err = do(links[next], now, out)
			}
		})
		if err != nil || waiting == 0 {
			return failed, err
		}
		if err := g.await(ctx, "orders"); err != nil {
			return failed, fmt.Errorf("%w; %d of %d are under way, and %d wait", err, waiting, len(links), len(links)-next)
		}
	}
}

// enter has guests come in. Who is refused tries again, some times; again is how often that happened.
func (g *guests) enter(ctx context.Context, links []int) (again int, err error) {
	for range guestTries {
		if links, err = g.order(ctx, links, g.attach); err != nil || len(links) == 0 {
			return again, err
		}
		again += len(links)
	}
	return again, fmt.Errorf("%d terminals were refused %d times", len(links), guestTries)
}

// attach asks for a context for a terminal.
func (g *guests) attach(link int, now time.Time, out *sgsn.Output) error {
	kind := g.kinds[link%len(g.kinds)]
	a := sgsn.Attachment{Link: link, GGSN: g.peer, Version: gtp.V1, Type: kind.is, Delegate: kind.delegate}
	var errs [3]error
	a.APN, errs[0] = gtp.ParseAPN(kind.apn)
	a.IMSI, errs[1] = gtp.ParseIMSI(guestIMSI(link))
	a.MSISDN, errs[2] = gtp.ParseMSISDN(guestIMSI(link))
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	g.list[link].entering = true
	_, err := g.engine.Attach(&a, now, out)
	return err
}

// guestIMSI is that of a terminal, whose telephone has the same number.
func guestIMSI(link int) string { return fmt.Sprintf("24001%010d", link) }

// update has the GGSN tell of guests what they have had.
func (g *guests) update(ctx context.Context, links []int) error {
	return g.all(ctx, "updated", links, func(link int, now time.Time, out *sgsn.Output) error {
		x, _ := g.engine.Context(g.list[link].key)
		g.list[link].told = carriedBy(x.Traffic)
		return g.engine.Update(g.list[link].key, gtp.QoS{}, now, out)
	})
}

// leave ends the contexts of guests.
func (g *guests) leave(ctx context.Context, links []int) error {
	return g.all(ctx, "ended", links, func(link int, now time.Time, out *sgsn.Output) error {
		return g.engine.Detach(g.list[link].key, true, now, out)
	})
}

// all gives an order that must not fail.
func (g *guests) all(ctx context.Context, what string, links []int, do func(int, time.Time, *sgsn.Output) error) error {
	failed, err := g.order(ctx, links, do)
	if err == nil && len(failed) > 0 {
		err = fmt.Errorf("%d contexts of %d could not be %s", len(failed), len(links), what)
	}
	return err
}

// talk has each guest send two packets from each of its addresses, and get a train of three there that the kernel may
// carry as one, and a shorter one. None may be lost, so that a batch waits for the one before.
func (g *guests) talk(ctx context.Context, links []int) error {
	for len(links) > 0 {
		batch := links[:min(guestBatch, len(links))]
		links = links[len(batch):]
		g.loop.Do(func(now time.Time, out *sgsn.Output) {
			for _, link := range batch {
				g.send(link, now, out)
			}
		})
		var down [2][]packet.Datagram
		for _, link := range batch {
			g.toGuest(link, &down)
		}
		for i, u := range g.servers {
			if err := u.WriteBatch(down[i]); err != nil {
				return err
			}
		}
		for g.arrived.up.Load() < g.sent.up || g.arrived.down.Load() < g.sent.down {
			if err := g.await(ctx, "packets"); err != nil {
				return fmt.Errorf("%w; %d of %d have come from terminals, and %d of %d to them", err, g.arrived.up.Load(), g.sent.up, g.arrived.down.Load(), g.sent.down)
			}
		}
		g.done.Add(int64(len(batch)))
	}
	return nil
}

// send has a guest send its packets.
func (g *guests) send(link int, now time.Time, out *sgsn.Output) {
	one := &g.list[link]
	for _, a := range one.from {
		for i := range 2 {
			ip := datagramFrom(a, make([]byte, 20+(link*37+i*211)%1000))
			g.engine.HandleUE(link, ip, now, out)
			one.sent.up += uint64(len(ip))
			g.sent.up++
		}
	}
}

// datagramFrom is a packet of UDP from an address of a guest to the server of its family.
func datagramFrom(a netip.Addr, payload []byte) []byte {
	nobody := make(net.HardwareAddr, 6)
	if a.Is4() {
		return load.Frame4(nobody, nobody, netip.AddrPortFrom(a, guestPort), netip.AddrPortFrom(coreSrv4, guestPort), payload)[14:]
	}
	b := packet.AppendIPv6Header(nil, packet.ProtoUDP, 64, 0, a, coreSrv6)
	b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, guestPort), guestPort)
	b = append(append(b, 0, 0, 0, 0), payload...)
	packet.FillUDP(b)
	return b
}

// toGuest adds the packets to one, those of each family for its server.
func (g *guests) toGuest(link int, down *[2][]packet.Datagram) {
	one := &g.list[link]
	long, short := 200+(link*53)%1100, 1+link%150
	for _, a := range one.from {
		family, headers := 0, packet.IPv4HeaderLen+packet.UDPHeaderLen
		if a.Is6() {
			family, headers = 1, packet.IPv6HeaderLen+packet.UDPHeaderLen
		}
		for _, size := range []int{long, long, long, short} {
			down[family] = append(down[family], packet.Datagram{To: netip.AddrPortFrom(a, guestPort), Payload: make([]byte, size)})
			one.sent.down += uint64(headers + size)
			g.sent.down++
		}
	}
}

// during does something and, meanwhile, one thing after the other, evenly over so many steps of it.
func (g *guests) during(ctx context.Context, steps int, work func(context.Context) error, meanwhile ...func() error) error {
	g.done.Store(0)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return work(ctx) })
	group.Go(func() error {
		for i, do := range meanwhile {
			at := int64(steps * (i + 1) / (len(meanwhile) + 1))
			if err := poll(ctx, time.Hour, time.Millisecond, func(context.Context) (bool, error) { return g.done.Load() >= at, nil }); err != nil {
				return err
			}
			if err := do(); err != nil {
				return err
			}
		}
		return nil
	})
	return group.Wait()
}
