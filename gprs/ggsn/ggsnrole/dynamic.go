// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/radius"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/internal/role"
)

// dynamic takes the requests of RADIUS servers to end and change sessions. Its loop calls that of the
// engine with its mutex held, and never the other way round.
type dynamic struct {
	knownAPNs
	node    *GGSN
	server  *radius.Dynamic
	loop    loop.Loop[*radius.Output]
	sockets []*port.UDP
	end     context.CancelFunc // of the timer; nil: it does not run
	name    string
	at      []netip.Addr
	walks   ratelimit.Bucket
}

// openDynamic makes one for servers, with a socket at each address of the node in the network namespace of the
// calling thread.
func openDynamic(g *GGSN, cfg *Settings, clients []radius.DynamicClient) (d *dynamic, err error) {
	d = &dynamic{node: g, name: cfg.Name, at: cfg.addresses()}
	d.follow(cfg)
	if d.server, err = radius.NewDynamic(clients); err != nil {
		return nil, err
	}
	d.loop.Engine = d.server
	d.loop.NewOutput = func() *radius.Output { return new(radius.Output) }
	for n, a := range d.at {
		conn, err := port.ListenUDP(port.UDPConfig{Addr: netip.AddrPortFrom(a, cfg.DynamicPort), Small: true})
		if err != nil {
			d.close()
			return nil, err
		}
		d.sockets = append(d.sockets, conn)
		d.loop.SetSocket(n, conn)
	}
	return d, nil
}

// dynamicClients are the servers that may end and change sessions, with their secrets.
func (s *Settings) dynamicClients() (list []radius.DynamicClient, err error) {
	for _, one := range s.RADIUS {
		if !one.Dynamic {
			continue
		}
		secret, err := one.secret()
		if err != nil {
			return nil, err
		}
		list = append(list, radius.DynamicClient{Address: one.Address, Secret: secret, Undated: !one.Timestamp})
	}
	return list, nil
}

// dynamicClaims are the sockets.
func (s *Settings) dynamicClaims() (claims []config.Claim) {
	for _, one := range s.RADIUS {
		if one.Dynamic {
			for _, a := range s.addresses() {
				claims = append(claims, config.Socket{Key: "dynamic_port", Protocol: "UDP", At: netip.AddrPortFrom(a, s.DynamicPort)})
			}
			break
		}
	}
	return claims
}

// setClients has requests of other servers taken.
func (d *dynamic) setClients(clients []radius.DynamicClient) (err error) {
	d.loop.Do(func(time.Time, *radius.Output) { err = d.server.SetClients(clients) })
	return err
}

// run answers until it is closed.
func (d *dynamic) run(on *tasks, log *slog.Logger) {
	for n, conn := range d.sockets {
		on.group.Go(func() error {
			return d.loop.ReadUDP(conn, func(m *port.Message, now time.Time, out *radius.Output) {
				d.server.HandleUDP(n, m.From, m.Payload, now, out, func(code radius.Code, asked *radius.Attributes) radius.ErrorCause {
					return d.apply(code, asked, now)
				})
			})
		})
		log.Info("RADIUS servers may end and change sessions", "at", conn.LocalAddr())
	}
	ctx, end := context.WithCancel(on.ctx)
	d.end = end
	on.group.Go(func() error { d.loop.RunTimer(ctx); return nil })
}

// close closes the sockets.
func (d *dynamic) close() {
	closePorts(d.sockets)
	if d.end != nil {
		d.end()
	}
}

// maxNamed is how many contexts one request may be for: a terminal has eleven at most.
const maxNamed = 11

// walkLimit is for requests that name contexts by what there is no index for, so that all are looked at: no
// server, whatever is wrong with it, keeps the node from its packets.
var walkLimit = ratelimit.PerSecond(10, 100)

// apply does what a request says, whole or not at all (RFC 5176 section 3).
func (d *dynamic) apply(code radius.Code, asked *radius.Attributes, now time.Time) radius.ErrorCause {
	who, change, cause := d.read(code, asked)
	switch {
	case cause != 0:
		return cause
	case !who.Direct() && !d.walks.Allow(walkLimit, now):
		return radius.ResourcesUnavailable
	}
	found, networks := d.find(who)
	switch {
	case len(found) == 0:
		return radius.SessionNotFound
	case len(found) > maxNamed, networks > 1 && who.Address.IsValid(): // an address of theirs is of one terminal in each
		return radius.MultipleSessionsRefused
	}
	err := errNotRunning
	d.node.do(func(e *ggsn.Engine, now time.Time, out *ggsn.Output) {
		if code == radius.DisconnectRequest {
			err = e.Disconnect(found, change.Class, now, out)
		} else {
			err = e.Amend(found, change, now, out)
		}
	})
	return causeOfError(err)
}

// causeOfError is what a server is told of an error of the engine.
func causeOfError(err error) radius.ErrorCause {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ggsn.ErrGone):
		return radius.SessionNotFound
	case errors.Is(err, ggsn.ErrProhibited):
		return radius.Prohibited
	case errors.Is(err, ggsn.ErrValue):
		return radius.InvalidValue
	case errors.Is(err, ggsn.ErrSeveral):
		return radius.MultipleSessionsRefused
	}
	return radius.ResourcesUnavailable
}

// find returns the contexts that a request names, and one more than it may be for at most, and in how many
// networks they are.
func (d *dynamic) find(who *named) (found []ggsn.Ref, networks int) {
	return d.node.named(who.Selection, func(x *ggsn.ContextInfo) bool {
		return who.matches(x, d.at[0], d.toldOf(x.APN).user)
	}, maxNamed+1)
}

// collect reports what was asked and answered; of nil it does nothing.
func (d *dynamic) collect(emit func(role.Metric)) {
	if d == nil {
		return
	}
	d.loop.Do(func(time.Time, *radius.Output) {
		s := d.server.Stats()
		for _, cause := range radius.ErrorCauses {
			for _, of := range []struct {
				request string
				n       uint64
			}{{"disconnect", s.Disconnects[cause]}, {"change", s.Changes[cause]}} {
				emit(role.Metric{Name: "dynamic_requests_total", Kind: role.Counter, Help: "Requests of RADIUS servers to end and change sessions, by what they were answered.", Reason: cause.String(), Verdict: of.request, Value: float64(of.n)})
			}
		}
		emit(role.Count("dynamic_repeated_total", "Answers to these sent again, since the request came again.", s.Repeated))
		for r := radius.Reason(1); int(r) < radius.NumReasons; r++ {
			emit(role.Metric{Name: "dynamic_dropped_total", Kind: role.Counter, Help: "Datagrams that were no such requests, by what is wrong.", Reason: r.String(), Value: float64(s.Dropped[r])})
		}
	})
}

// secret reads that of a server.
func (r *RADIUS) secret() ([]byte, error) {
	secret, err := config.ReadPrivate(r.SecretFile, maxRADIUSSecret)
	if err != nil {
		return nil, err
	}
	if secret = bytes.TrimRight(secret, "\r\n"); len(secret) == 0 {
		return nil, fmt.Errorf("%s is empty: write the secret of the RADIUS server into it", r.SecretFile)
	}
	return secret, nil
}
