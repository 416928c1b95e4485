// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/radius"
	"github.com/isthmus-net/isthmus/internal/role"
)

// authorizer asks RADIUS servers for the engine. What its loop and that of the engine tell each other
// lies in a heap between them, so that neither waits for the other with its mutex held.
type authorizer struct {
	log      *slog.Logger
	client   *radius.Client // with the loop
	loop     loop.Loop[*radius.Output]
	sockets  []*port.UDP
	name     string // of the node
	at       []netip.Addr
	users    atomic.Pointer[map[string]UserName] // by access point
	asks     heapOf[ggsn.Ask]
	answered heapOf[radius.Answer]
}

// heapOf is what waits to be taken, all at once.
type heapOf[T any] struct {
	mu   sync.Mutex
	list []T
	wake chan struct{}
}

func (h *heapOf[T]) add(more []T) {
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
func (h *heapOf[T]) each(ctx context.Context, f func([]T)) error {
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

// openAuthorizer makes one, with its sockets in the network namespace of the calling thread; nil: there
// are no servers.
func openAuthorizer(cfg *Settings, log *slog.Logger) (*authorizer, error) {
	settings, ok, err := cfg.radiusSettings()
	if err != nil || !ok {
		return nil, err
	}
	a := &authorizer{log: log, name: cfg.Name, at: cfg.addresses()}
	a.asks.wake, a.answered.wake = make(chan struct{}, 1), make(chan struct{}, 1)
	a.follow(cfg)
	if a.client, err = radius.NewClient(settings, rand.Reader); err != nil {
		return nil, err
	}
	a.loop.Engine = a.client
	a.loop.NewOutput = func() *radius.Output { return new(radius.Output) }
	a.loop.Settled = a.settled
	for family, any := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		wanted := false
		for _, s := range settings.Servers {
			wanted = wanted || s.Address.Addr().Is6() == any.Is6()
		}
		for n := 0; wanted && n < settings.Sockets; n++ {
			conn, err := port.ListenUDP(port.UDPConfig{Addr: netip.AddrPortFrom(any, 0), Small: true, Buffer: controlBuffer})
			if err != nil {
				a.close()
				return nil, err
			}
			a.sockets = append(a.sockets, conn)
			a.loop.SetSocket(family*settings.Sockets+n, conn)
		}
	}
	return a, nil
}

// follow takes what may change of a configuration.
func (a *authorizer) follow(cfg *Settings) {
	users := map[string]UserName{}
	for i := range cfg.APNs {
		users[cfg.APNs[i].Name] = cfg.APNs[i].RADIUSUser
	}
	a.users.Store(&users)
}

// run asks and answers until the sockets are closed. grant is given what has been decided.
func (a *authorizer) run(ctx context.Context, group *errgroup.Group, grant func([]radius.Answer)) {
	for n, conn := range a.sockets {
		group.Go(func() error {
			return a.loop.ReadUDP(conn, func(m *port.Message, now time.Time, out *radius.Output) {
				a.client.HandleUDP(n, m.From, m.Payload, now, out)
			})
		})
	}
	group.Go(func() error { a.loop.RunTimer(ctx); return nil })
	group.Go(func() error { return a.asks.each(ctx, a.send) })
	group.Go(func() error { return a.answered.each(ctx, grant) })
}

// close closes the sockets; of nil it does nothing.
func (a *authorizer) close() {
	if a == nil {
		return
	}
	for _, conn := range a.sockets {
		_ = conn.Close()
	}
}

// settled hands over what the client has.
func (a *authorizer) settled(out *radius.Output) {
	a.answered.add(out.Answers)
	for _, e := range out.Events {
		if e.Dead {
			a.log.Warn("a RADIUS server does not answer", "server", e.Server)
		} else {
			a.log.Info("a RADIUS server answers again", "server", e.Server)
		}
	}
}

// send asks servers. What cannot be asked is answered at once: there is no answer.
func (a *authorizer) send(asks []ggsn.Ask) {
	users := *a.users.Load()
	a.loop.Do(func(now time.Time, out *radius.Output) {
		for i := range asks {
			if a.client.Send(asks[i].Ticket, a.request(&asks[i], users[asks[i].APN]), now, out) != nil {
				out.Answers = append(out.Answers, radius.Answer{Ticket: asks[i].Ticket})
			}
		}
	})
}

// Attributes of 3GPP (TS 29.061 section 16.4.7.2).
const (
	gppIMSI, gppPDPType, gppQoS, gppSGSN4, gppGGSN4 = 1, 3, 5, 6, 7
	gppIMSIOperator, gppNSAPI, gppSelection         = 8, 10, 12
	gppCharging, gppSGSN6, gppGGSN6, gppIMEISV      = 13, 15, 16, 20
	gppRAT                                          = 21
)

// request is an Access-Request for a terminal (TS 29.061 section 16.4.1).
func (a *authorizer) request(ask *ggsn.Ask, by UserName) *radius.Request {
	r := &radius.Request{Code: radius.AccessRequest}
	to := &r.Attributes
	identify(r, ask, by)
	to.Text(radius.NASIdentifier, a.name)
	for _, own := range a.at {
		to.Address(radius.NASIPAddress, radius.NASIPv6Address, own)
	}
	to.Integer(radius.NASPortType, radius.PortWirelessOther)
	to.Integer(radius.ServiceType, radius.ServiceFramed)
	to.Integer(radius.FramedProtocol, radius.FramedGPRS)
	to.Text(radius.CalledStationID, ask.APN)
	to.Text(radius.CallingStationID, ask.MSISDN.String())
	if imsi := imsiDigits(ask.IMSI); imsi != "" {
		to.GPPText(gppIMSI, imsi)
		to.GPPText(gppIMSIOperator, imsi[:min(len(imsi), 5)])
	}
	to.GPPInteger(gppPDPType, map[gtp.PDPType]uint32{gtp.PDPTypeIPv4: 0, gtp.PDPTypeIPv6: 2, gtp.PDPTypeIPv4v6: 3}[ask.Type])
	to.GPPText(gppQoS, qosText(ask.QoS))
	station(to, gppSGSN4, gppSGSN6, ask.PeerControl)
	for _, own := range a.at {
		station(to, gppGGSN4, gppGGSN6, own)
	}
	to.GPPText(gppNSAPI, strings.ToUpper(hex.EncodeToString([]byte{ask.NSAPI})[1:]))
	if ask.Account.Selection.Present {
		to.GPPText(gppSelection, string('0'+rune(ask.Account.Selection.Value)))
	}
	if ask.Account.Charging.Present {
		to.GPPText(gppCharging, hex.EncodeToString(binary.BigEndian.AppendUint16(nil, ask.Account.Charging.Value)))
	}
	if ask.Account.IMEI.Present {
		to.GPPText(gppIMEISV, ask.Account.IMEI.Value.String())
	}
	if ask.Account.RAT.Present {
		to.GPP(gppRAT, []byte{byte(ask.Account.RAT.Value)})
	}
	return r
}

// identify says who a terminal is, and what proof it has: its own, or else its number, which its
// SGSN stands for, and which is the password, too.
func identify(r *radius.Request, ask *ggsn.Ask, by UserName) {
	user := string(ask.Account.User)
	if by == UserOfMSISDN || user == "" && ask.MSISDN.String() != "" {
		user = ask.MSISDN.String()
	}
	if by == UserOfIMSI || user == "" {
		user = imsiDigits(ask.IMSI)
	}
	r.Attributes.Text(radius.UserName, user)
	switch proof := by == UserOfTerminal; {
	case proof && ask.Response != nil && ask.Challenge != nil:
		r.Attributes.Octets(radius.CHAPPassword, append([]byte{ask.Identifier}, ask.Response...))
		r.Attributes.Octets(radius.CHAPChallenge, ask.Challenge)
	case proof && ask.Password != nil:
		r.Password = ask.Password[:min(len(ask.Password), radius.MaxPassword)]
	default:
		r.Password = []byte(user)
	}
}

// imsiDigits are those of an IMSI; empty: there is none.
func imsiDigits(m gtp.IMSI) string {
	if m[0] == 0xff {
		return ""
	}
	return m.String()
}

// station adds the address of a node by the type for its family.
func station(to *radius.Attributes, four, six byte, a netip.Addr) {
	switch {
	case a.Is4():
		to.GPP(four, a.AsSlice())
	case a.Is6():
		to.GPP(six, a.AsSlice())
	}
}

// qosText is a profile as 3GPP-GPRS-Negotiated-QoS-profile has it: the release that its length is of,
// and the octets in hexadecimal digits.
func qosText(q gtp.QoS) string {
	release := "98-"
	switch n := q.Len(); {
	case n > 13:
		release = "05-"
	case n > 4:
		release = "99-"
	}
	return release + strings.ToUpper(hex.EncodeToString(q.Octets()))
}

// grantOf is what an answer grants.
func grantOf(a *radius.Answer) (g ggsn.Grant) {
	switch a.Code {
	case radius.AccessAccept:
	case radius.AccessReject, radius.AccessChallenge: // a challenge has no way to the terminal (RFC 2865 section 4.4)
		return ggsn.Grant{Verdict: ggsn.Refused}
	default:
		return ggsn.Grant{Verdict: ggsn.Unknown}
	}
	// 255.255.255.254 leaves the choice to this node, 255.255.255.255 to the terminal (RFC 2865 section 5.8).
	if v4, ok := a.Attributes.FindAddress(radius.FramedIPAddress); ok && v4.Is4() && v4.As4()[0] != 255 {
		g.Address4 = v4
	}
	if p, ok := a.Attributes.FindPrefix(radius.FramedIPv6Prefix); ok {
		g.Prefix6 = p
	}
	if id, _ := a.Attributes.Find(radius.FramedInterfaceID); len(id) == 8 {
		g.InterfaceID = binary.BigEndian.Uint64(id)
	}
	g.SessionLimit, _ = a.Attributes.FindSeconds(radius.SessionTimeout)
	g.IdleLimit, _ = a.Attributes.FindSeconds(radius.IdleTimeout)
	return g
}

// grant tells the engine what servers have said.
func (g *GGSN) grant(answers []radius.Answer) {
	g.do(func(e *ggsn.Engine, now time.Time, out *ggsn.Output) {
		for i := range answers {
			e.Authorize(answers[i].Ticket, grantOf(&answers[i]), now, out)
		}
	})
}

// collect reports what was asked and answered; of nil it does nothing.
func (a *authorizer) collect(emit func(role.Metric), of *ggsn.Stats, waiting int) {
	if a == nil {
		return
	}
	var s radius.Stats
	var servers []radius.ServerInfo
	a.loop.Do(func(time.Time, *radius.Output) { s, servers = a.client.Stats(), a.client.Servers() })
	emit(role.Level("authorizing", "Create Requests that wait for RADIUS servers.", float64(waiting)))
	emit(role.Count("authorized_late_total", "Answers of RADIUS servers, or their silence, that came when the SGSN waited no more.", of.GrantsLate))
	emit(role.Count("radius_requests_total", "Requests for RADIUS servers.", s.Requests))
	emit(role.Count("radius_requests_refused_total", "Of these, those not sent, since too many waited.", s.Refused))
	emit(role.Count("radius_requests_unanswered_total", "Of these, those that no server answered.", s.Unanswered))
	for r := radius.Reason(1); int(r) < radius.NumReasons; r++ {
		emit(role.Metric{Name: "radius_answers_dropped_total", Kind: role.Counter, Help: "Datagrams that were no answers of RADIUS servers, by what is wrong.", Reason: r.String(), Value: float64(s.Dropped[r])})
	}
	for _, one := range servers {
		for _, of := range []struct {
			what string
			n    uint64
		}{{"sent", one.Stats.Sent}, {"repeated", one.Stats.Repeated}, {"answered", one.Stats.Answered}, {"given_up", one.Stats.GivenUp}} {
			emit(role.Metric{Name: "radius_server_requests_total", Kind: role.Counter, Help: "Requests for each RADIUS server, and what became of them.", Reason: one.Address.String(), Verdict: of.what, Value: float64(of.n)})
		}
	}
}
