// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/sgsn"
	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/lab"
)

// labSGSN opens PDP contexts from an address of a node, and answers GGSNs as long as it is
// open. The user plane is somebody else's: a generator's.
type labSGSN struct {
	engine *sgsn.Engine
	loop   loop.Loop[*sgsn.Output]
	ports  []*port.UDP
	group  errgroup.Group
	stop   context.CancelFunc
	became chan became
}

// became is what became of a context at a time: it has an address, or an event says why not.
type became struct {
	context sgsn.Info
	event   sgsn.Event
	at      time.Time
}

// attached is a context that is open, and how long a terminal has waited for its address.
type attached struct {
	sgsn.Info
	took time.Duration
}

// A request that comes before the GGSN serves is sent again soon, and often.
const (
	labT3 = 200 * time.Millisecond
	labN3 = int(daemonStart / labT3)
	// labBuffer is what the kernel keeps of answers and packets for an SGSN of the lab: those to some hundred at once.
	labBuffer = 4 << 20
)

// startSGSN begins, with one context at a time.
func startSGSN(node *lab.Node, at netip.Addr) (*labSGSN, error) {
	s := &labSGSN{became: make(chan became, 1)}
	return s, s.start(node, sgsn.Settings{Addresses: []netip.Addr{at}, T3Response: labT3, N3Requests: labN3}, s.settled)
}

// start begins. settled is given what comes out of the engine, which it must not call from outside.
func (s *labSGSN) start(node *lab.Node, settings sgsn.Settings, settled func(*sgsn.Output)) (err error) {
	if s.engine, err = sgsn.New(settings, rand.Reader); err != nil {
		return err
	}
	s.loop.Engine, s.loop.Settled = s.engine, settled
	s.loop.NewOutput = func() *sgsn.Output { return new(sgsn.Output) }
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.group.Go(func() error { s.loop.RunTimer(ctx); return nil })
	for plane := range sgsn.NumPlanes {
		if err := node.Do(func() error { return s.listen(settings.Addresses[0], plane) }); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	return nil
}

// listen opens the socket of a plane.
func (s *labSGSN) listen(at netip.Addr, plane sgsn.Plane) error {
	u, err := port.ListenUDP(port.UDPConfig{Addr: netip.AddrPortFrom(at, plane.Port()), Small: true, Buffer: labBuffer})
	if err != nil {
		return err
	}
	s.ports = append(s.ports, u)
	number := sgsn.Socket(0, plane)
	s.loop.SetSocket(number, u)
	s.group.Go(func() error {
		return s.loop.ReadUDP(u, func(m *port.Message, now time.Time, out *sgsn.Output) {
			s.engine.Handle(number, m.From, m.Class, m.Payload, now, out)
		})
	})
	return nil
}

// Close forgets the contexts.
func (s *labSGSN) Close() error {
	s.stop()
	var errs []error
	for _, u := range s.ports {
		errs = append(errs, u.Close())
	}
	return errors.Join(append(errs, s.group.Wait())...)
}

// settled looks for what is awaited: an address, or the end.
func (s *labSGSN) settled(out *sgsn.Output) {
	for _, e := range out.Events {
		b := became{event: e, at: time.Now()}
		switch e.Kind {
		case sgsn.Attached, sgsn.Configured:
			b.context, _ = s.engine.Context(e.Key)
			if b.context.Type == gtp.PDPTypeIPv6 && len(b.context.IPv6) == 0 {
				continue // the router has not said which
			}
		case sgsn.NoRouter, sgsn.Refused, sgsn.Ended:
		default:
			continue
		}
		select {
		case s.became <- b:
		default: // nobody waits any more
		}
	}
}

// await gives an order and waits for what becomes of the context: its end, or, if it is to live, any
// news. A router may advertise once more before a context has ended.
func (s *labSGSN) await(ctx context.Context, lives bool, order func(now time.Time, out *sgsn.Output) error) (b became, began time.Time, err error) {
	s.loop.Do(func(now time.Time, out *sgsn.Output) {
		select {
		case <-s.became: // what came late of an earlier order
		default:
		}
		began, err = now, order(now, out)
	})
	if err != nil {
		return b, began, err
	}
	patience := time.After(daemonStart)
	for {
		select {
		case b = <-s.became:
			if lives || b.event.Kind == sgsn.Ended {
				return b, began, nil
			}
		case <-ctx.Done():
			return b, began, ctx.Err()
		case <-patience:
			return b, began, fmt.Errorf("nothing became of the PDP context within %v", daemonStart)
		}
	}
}

// attach opens a context for the one terminal, and waits until it has an address.
func (s *labSGSN) attach(ctx context.Context, ggsn netip.Addr, how attachment) (c attached, err error) {
	a := sgsn.Attachment{GGSN: ggsn, Version: gtp.Version(how.version), Type: gtp.PDPTypeIPv4}
	if how.v6 {
		a.Type = gtp.PDPTypeIPv6
	}
	var errs [3]error
	a.IMSI, errs[0] = gtp.ParseIMSI("001010000000001")
	a.MSISDN, errs[1] = gtp.ParseMSISDN("46702123456")
	a.APN, errs[2] = gtp.ParseAPN(coreAPN(how.v6))
	if err := errors.Join(errs[:]...); err != nil {
		return c, err
	}
	b, began, err := s.await(ctx, true, func(now time.Time, out *sgsn.Output) error {
		_, err := s.engine.Attach(&a, now, out)
		return err
	})
	if err == nil && b.event.Kind != sgsn.Attached && b.event.Kind != sgsn.Configured {
		err = fmt.Errorf("the PDP context was not opened: %s, %s, cause %s", b.event.Kind, b.event.Reason, b.event.Cause)
	}
	return attached{b.context, b.at.Sub(began)}, err
}

// detach closes a context.
func (s *labSGSN) detach(ctx context.Context, key gtp.TID) error {
	b, _, err := s.await(ctx, false, func(now time.Time, out *sgsn.Output) error { return s.engine.Detach(key, true, now, out) })
	if err == nil && b.event.Cause != gtp.CauseAccepted {
		err = fmt.Errorf("the PDP context was not closed: %s, cause %s", b.event.Reason, b.event.Cause)
	}
	return err
}
