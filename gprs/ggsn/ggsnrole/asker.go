// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"context"
	"crypto/rand"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/radius"
	"github.com/isthmus-net/isthmus/internal/role"
)

// asker speaks to RADIUS servers for the node. What its loop and that of the engine tell each other
// lies in a mailbox between them, so that neither waits for the other with its mutex held.
type asker struct {
	log     *slog.Logger
	client  *radius.Client // with the loop
	loop    loop.Loop[*radius.Output]
	sockets [2][]*port.UDP // of IPv4 and IPv6; none: no server has needed them
	on      *tasks         // nil: it does not run yet
	name    string         // of the node
	at      []netip.Addr
	mnc     int    // digits of its mobile network code in IMSIs
	network string // the code of its own network; empty: it has told none
	knownAPNs
	answered mailbox[radius.Answer]
}

// knownAPNs are the access points of a configuration, which may change.
type knownAPNs struct {
	apns atomic.Pointer[map[string]toldOf]
}

// toldOf is how servers are told of terminals at an access point.
type toldOf struct {
	user    UserName
	granted bool // by a server
	marked  bool // packets to the network have the code points of their contexts
}

// mailbox is what waits to be taken, all at once.
type mailbox[T any] struct {
	mu   sync.Mutex
	list []T
	wake chan struct{}
}

func (h *mailbox[T]) add(more []T) {
	if len(more) == 0 {
		return
	}
	h.mu.Lock()
	h.list = append(h.list, more...)
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// each calls f with what has come, until ctx is done.
func (h *mailbox[T]) each(ctx context.Context, f func([]T)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.wake:
		}
		h.mu.Lock()
		list := h.list
		h.list = nil
		h.mu.Unlock()
		f(list)
	}
}

// open makes the client, with its sockets in the network namespace of the calling thread.
func (a *asker) open(cfg *Settings, settings radius.Settings, log *slog.Logger) (err error) {
	a.log, a.name, a.at, a.mnc = log, cfg.Name, cfg.addresses(), cfg.MNCDigits
	a.network = cfg.PLMN
	a.answered.wake = make(chan struct{}, 1)
	a.follow(cfg)
	if a.client, err = radius.NewClient(settings, rand.Reader); err != nil {
		return err
	}
	a.loop.Engine = a.client
	a.loop.NewOutput = func() *radius.Output { return new(radius.Output) }
	a.loop.Settled = a.settled
	if err = a.listen(&settings); err != nil {
		a.close()
	}
	return err
}

// listen opens the sockets that servers need and that there are not, in the network namespace of the calling
// thread. They stay: answers may come by them.
func (a *asker) listen(to *radius.Settings) error {
	for family, any := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		wanted := slices.ContainsFunc(to.Servers, func(s radius.Server) bool { return s.Address.Addr().Is6() == any.Is6() })
		if !wanted || a.sockets[family] != nil {
			continue
		}
		list, err := openPorts(any, to.Sockets)
		if err != nil {
			return err
		}
		a.sockets[family] = list
		for n, conn := range list {
			a.loop.SetSocket(family*to.Sockets+n, conn)
		}
		if a.on != nil {
			a.read(family)
		}
	}
	return nil
}

// openPorts opens sockets of a family.
func openPorts(any netip.Addr, n int) (list []*port.UDP, err error) {
	for range n {
		conn, err := port.ListenUDP(port.UDPConfig{Addr: netip.AddrPortFrom(any, 0), Small: true, Buffer: controlBuffer})
		if err != nil {
			closePorts(list)
			return nil, err
		}
		list = append(list, conn)
	}
	return list, nil
}

func closePorts(list []*port.UDP) {
	for _, conn := range list {
		_ = conn.Close()
	}
}

// reconfigure has other servers asked. What is on its way goes on; see [radius.Client.Reconfigure].
func (a *asker) reconfigure(to radius.Settings) error {
	if err := a.listen(&to); err != nil {
		return err
	}
	var err error
	a.loop.Do(func(now time.Time, out *radius.Output) { err = a.client.Reconfigure(to, now, out) })
	return err
}

// follow takes what may change of a configuration. What is left of sessions of an access point that has gone
// is told as it was.
func (a *knownAPNs) follow(cfg *Settings) {
	apns := map[string]toldOf{}
	if before := a.apns.Load(); before != nil {
		maps.Copy(apns, *before)
	}
	for i := range cfg.APNs {
		p := &cfg.APNs[i]
		apns[p.Name] = toldOf{p.RADIUSUser, p.Authenticate == ByRADIUS, p.MarkInner}
	}
	a.apns.Store(&apns)
}

// toldOf is how servers are told of terminals at an access point.
func (a *knownAPNs) toldOf(apn string) toldOf { return (*a.apns.Load())[apn] }

// run asks and hears until the sockets are closed. heard is given the answers.
func (a *asker) run(on *tasks, heard func([]radius.Answer)) {
	a.on = on
	for family := range a.sockets {
		a.read(family)
	}
	on.group.Go(func() error { a.loop.RunTimer(on.ctx); return nil })
	on.group.Go(func() error { return a.answered.each(on.ctx, heard) })
}

// read hears by the sockets of a family.
func (a *asker) read(family int) {
	for n, conn := range a.sockets[family] {
		a.on.group.Go(func() error {
			return a.loop.ReadUDP(conn, func(m *port.Message, now time.Time, out *radius.Output) {
				a.client.HandleUDP(n, m.From, m.Payload, now, out)
			})
		})
	}
}

// close closes the sockets.
func (a *asker) close() {
	for _, list := range a.sockets {
		closePorts(list)
	}
}

// settled hands over what the client has.
func (a *asker) settled(out *radius.Output) {
	a.answered.add(out.Answers)
	for _, e := range out.Events {
		if e.Dead {
			a.log.Warn("a RADIUS server does not answer", "server", e.Server)
		} else {
			a.log.Info("a RADIUS server answers again", "server", e.Server)
		}
	}
}

// collect reports what was asked and answered, in metrics of the kind that are named.
func (a *asker) collect(emit func(role.Metric), kind string) {
	var s radius.Stats
	var servers []radius.ServerInfo
	a.loop.Do(func(time.Time, *radius.Output) { s, servers = a.client.Stats(), a.client.Servers() })
	emit(role.Count(kind+"_requests_total", "Requests for RADIUS servers.", s.Requests))
	emit(role.Count(kind+"_requests_refused_total", "Of these, those not sent, since too many waited.", s.Refused))
	emit(role.Count(kind+"_requests_unanswered_total", "Of these, those that no server answered.", s.Unanswered))
	for r := radius.Reason(1); int(r) < radius.NumReasons; r++ {
		emit(role.Metric{Name: kind + "_answers_dropped_total", Kind: role.Counter, Help: "Datagrams that were no answers of RADIUS servers, by what is wrong.", Reason: r.String(), Value: float64(s.Dropped[r])})
	}
	for _, one := range servers {
		for _, of := range []struct {
			what string
			n    uint64
		}{{"sent", one.Stats.Sent}, {"repeated", one.Stats.Repeated}, {"answered", one.Stats.Answered}, {"given_up", one.Stats.GivenUp}} {
			emit(role.Metric{Name: kind + "_server_requests_total", Kind: role.Counter, Help: "Requests for each RADIUS server, and what became of them.", Reason: one.Address.String(), Verdict: of.what, Value: float64(of.n)})
		}
	}
}
