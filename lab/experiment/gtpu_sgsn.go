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

// became is what became of a context: it has an address, or an event says what it lacks.
type became struct {
	context sgsn.Info
	event   sgsn.Event
}

// A request that comes before the GGSN serves is sent again soon, and often.
const (
	labT3 = 200 * time.Millisecond
	labN3 = int(daemonStart / labT3)
)

// startSGSN begins.
func startSGSN(node *lab.Node, at netip.Addr) (*labSGSN, error) {
	engine, err := sgsn.New(sgsn.Settings{Addresses: []netip.Addr{at}, T3Response: labT3, N3Requests: labN3}, rand.Reader)
	if err != nil {
		return nil, err
	}
	s := &labSGSN{engine: engine, became: make(chan became, 1)}
	s.loop.Engine, s.loop.Settled = engine, s.settled
	s.loop.NewOutput = func() *sgsn.Output { return new(sgsn.Output) }
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.group.Go(func() error { s.loop.RunTimer(ctx); return nil })
	for _, plane := range []sgsn.Plane{sgsn.PlaneControl, sgsn.PlaneUser} {
		if err := node.Do(func() error { return s.listen(at, plane) }); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// listen opens the socket of a plane.
func (s *labSGSN) listen(at netip.Addr, plane sgsn.Plane) error {
	u, err := port.ListenUDP(port.UDPConfig{Addr: netip.AddrPortFrom(at, plane.Port()), Small: true})
	if err != nil {
		return err
	}
	s.ports = append(s.ports, u)
	number := sgsn.Socket(0, plane)
	s.loop.SetSocket(number, u)
	s.group.Go(func() error {
		return s.loop.ReadUDP(u, func(m *port.Message, now time.Time, out *sgsn.Output) {
			s.engine.Handle(number, m.From, m.Payload, now, out)
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

// settled looks for what is awaited: an advertised address, or the end.
func (s *labSGSN) settled(out *sgsn.Output) {
	for _, e := range out.Events {
		b := became{event: e}
		switch e.Kind {
		case sgsn.Configured:
			b.context, _ = s.engine.Context(e.Key)
			if len(b.context.IPv6) == 0 {
				continue
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

// attach opens a context of IPv6 for the one terminal, and waits until its address has been
// advertised.
func (s *labSGSN) attach(ctx context.Context, ggsn netip.Addr, apn string) (c sgsn.Info, err error) {
	a := sgsn.Attachment{GGSN: ggsn, Version: gtp.V1, Type: gtp.PDPTypeIPv6}
	var errs [4]error
	a.IMSI, errs[0] = gtp.ParseIMSI("001010000000001")
	a.MSISDN, errs[1] = gtp.ParseMSISDN("46702123456")
	a.APN, errs[2] = gtp.ParseAPN(apn)
	s.loop.Do(func(now time.Time, out *sgsn.Output) { _, errs[3] = s.engine.Attach(&a, now, out) })
	if err := errors.Join(errs[:]...); err != nil {
		return c, err
	}
	select {
	case b := <-s.became:
		if b.event.Kind != sgsn.Configured {
			return c, fmt.Errorf("the PDP context was not opened: %s, %s, cause %s", b.event.Kind, b.event.Reason, b.event.Cause)
		}
		return b.context, nil
	case <-ctx.Done():
		return c, ctx.Err()
	case <-time.After(daemonStart):
		return c, fmt.Errorf("the PDP context has no address within %v", daemonStart)
	}
}
