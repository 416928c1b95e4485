// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
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
	wanted sgsn.Attachment // but for the IMSI
	list   []guest         // by their links
	server *port.UDP
	served errgroup.Group // what listens at the server

	outcomes []sgsn.Event // of orders; with the loop's mutex
	news     chan struct{}
	done     atomic.Int64 // of what goes on: see during
	arrived  struct{ up, down atomic.Uint64 }
	sent     struct{ up, down uint64 } // packets
}

// guest is one terminal.
type guest struct {
	key     gtp.TID
	address netip.Addr
	asked   bool    // an order is under way
	sent    counted // by it, and to it
	told    counted // of these, what update has told
}

// Choices of guests.
const (
	guestWindow   = 500 // orders under way
	guestBatch    = 48  // terminals that send and get at a time
	guestTries    = 5   // to come in
	guestPatience = 5 * time.Minute
	guestT3       = time.Second
	guestPort     = 9000
)

// startGuests begins, with room for so many.
func (n *coreNet) startGuests(room int) (g *guests, err error) {
	g = &guests{news: make(chan struct{}, 1), list: make([]guest, room)}
	g.wanted = sgsn.Attachment{GGSN: n.at.ggsn, Version: gtp.V1, Type: gtp.PDPTypeIPv4}
	if g.wanted.APN, err = gtp.ParseAPN(coreAPN(false)); err != nil {
		return nil, err
	}
	err = n.srv.Do(func() (err error) {
		g.server, err = port.ListenUDP(port.UDPConfig{Addr: netip.AddrPortFrom(coreSrv4, guestPort)})
		return err
	})
	if err != nil {
		return nil, err
	}
	g.served.Go(g.serve)
	settings := sgsn.Settings{Addresses: []netip.Addr{n.at.sgsn}, T3Response: guestT3, N3Requests: int(daemonStart / guestT3), MaxContexts: room}
	if err := g.start(n.sgsn, settings, g.settled); err != nil {
		return nil, errors.Join(err, g.server.Close())
	}
	return g, nil
}

// close forgets them.
func (g *guests) close() error { return errors.Join(g.Close(), g.server.Close(), g.served.Wait()) }

// serve counts what comes to the server.
func (g *guests) serve() error {
	for msgs := make([]port.Message, port.MaxBatch); ; {
		k, err := g.server.ReadBatch(msgs)
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
		if e.Kind > sgsn.Ended || !g.list[e.Link].asked {
			continue // of a path, or the GGSN has ended it
		}
		one := &g.list[e.Link]
		one.asked = false
		if x, there := g.engine.Context(e.Key); there {
			one.key, one.address = e.Key, x.IPv4
		}
		g.outcomes = append(g.outcomes, e)
	}
	g.arrived.down.Add(uint64(len(out.IP)))
	if len(out.Events)+len(out.IP) > 0 {
		g.tell()
	}
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
	a := g.wanted
	a.Link = link
	var errs [2]error
	a.IMSI, errs[0] = gtp.ParseIMSI(guestIMSI(link))
	a.MSISDN, errs[1] = gtp.ParseMSISDN(guestIMSI(link))
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	_, err := g.engine.Attach(&a, now, out)
	return err
}

// guestIMSI is that of a terminal, whose telephone has the same number.
func guestIMSI(link int) string { return fmt.Sprintf("24001%010d", link) }

// update has the GGSN tell of guests what they have had.
func (g *guests) update(ctx context.Context, links []int) error {
	return g.all(ctx, "updated", links, func(link int, now time.Time, out *sgsn.Output) error {
		g.list[link].told = g.list[link].sent
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

// talk has each guest send two packets, and get a train of three that the kernel may carry as one, and a shorter one.
// None may be lost, so that a batch waits for the one before.
func (g *guests) talk(ctx context.Context, links []int) error {
	for len(links) > 0 {
		batch := links[:min(guestBatch, len(links))]
		links = links[len(batch):]
		g.loop.Do(func(now time.Time, out *sgsn.Output) {
			for _, link := range batch {
				g.send(link, now, out)
			}
		})
		var down []packet.Datagram
		for _, link := range batch {
			down = append(down, g.toGuest(link)...)
		}
		if err := g.server.WriteBatch(down); err != nil {
			return err
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
	one, nobody := &g.list[link], make(net.HardwareAddr, 6)
	from, to := netip.AddrPortFrom(one.address, guestPort), netip.AddrPortFrom(coreSrv4, guestPort)
	for i := range 2 {
		ip := load.Frame4(nobody, nobody, from, to, make([]byte, 20+(link*37+i*211)%1000))[14:]
		g.engine.HandleUE(link, ip, now, out)
		one.sent.up += uint64(len(ip))
		g.sent.up++
	}
}

// toGuest are the packets to one.
func (g *guests) toGuest(link int) (list []packet.Datagram) {
	one := &g.list[link]
	long, short := 200+(link*53)%1100, 1+link%150
	for _, size := range []int{long, long, long, short} {
		list = append(list, packet.Datagram{To: netip.AddrPortFrom(one.address, guestPort), Payload: make([]byte, size)})
		one.sent.down += uint64(udpHeaders + size)
		g.sent.down++
	}
	return list
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
