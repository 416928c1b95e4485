// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/radius"
	"github.com/isthmus-net/isthmus/internal/role"
)

// authorizer asks RADIUS servers for the engine.
type authorizer struct {
	asker
	asks mailbox[ggsn.Ask]
}

// openAuthorizer makes one for servers, with its sockets in the network namespace of the calling thread.
func openAuthorizer(cfg *Settings, to radius.Settings, log *slog.Logger) (*authorizer, error) {
	a := new(authorizer)
	a.asks.wake = make(chan struct{}, 1)
	if err := a.open(cfg, to, log); err != nil {
		return nil, err
	}
	return a, nil
}

// run asks and answers until the sockets are closed. grant is given what has been decided.
func (a *authorizer) run(on *tasks, grant func([]radius.Answer)) {
	a.asker.run(on, grant)
	on.group.Go(func() error { return a.asks.each(on.ctx, a.send) })
}

// send asks servers. What cannot be asked is answered at once: there is no answer.
func (a *authorizer) send(asks []ggsn.Ask) {
	a.loop.Do(func(now time.Time, out *radius.Output) {
		for i := range asks {
			if a.client.Send(asks[i].Ticket, a.request(&asks[i], a.toldOf(asks[i].APN).user), now, out) != nil {
				out.Answers = append(out.Answers, radius.Answer{Ticket: asks[i].Ticket})
			}
		}
	})
}

// request is an Access-Request for a terminal (TS 29.061 section 16.4.1).
func (a *authorizer) request(ask *ggsn.Ask, by UserName) *radius.Request {
	r := &radius.Request{Code: radius.AccessRequest}
	identify(r, ask, by)
	a.terminal(&r.Attributes, &ask.ContextInfo)
	r.Attributes.GPP(gppAllocate, []byte{allocates(ask.Type)})
	return r
}

// identify says who a terminal is, and what proof it has: its own, or else its number, which its
// SGSN stands for, and which is the password, too.
func identify(r *radius.Request, ask *ggsn.Ask, by UserName) {
	user := userName(&ask.ContextInfo, by)
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

// grantOf is what an answer grants.
func grantOf(a *radius.Answer) (g ggsn.Grant) {
	switch a.Code {
	case radius.AccessAccept:
	case radius.AccessReject:
		return ggsn.Grant{Verdict: ggsn.Refused}
	case radius.AccessChallenge:
		return ggsn.Grant{Verdict: ggsn.Challenged}
	default:
		return ggsn.Grant{Verdict: ggsn.Unknown}
	}
	// 255.255.255.254 leaves the choice to this node, 255.255.255.255 to the terminal (RFC 2865 section 5.8).
	if v4, ok := a.Attributes.FindAddress(radius.FramedIPAddress); ok && v4.Is4() && v4.As4()[0] != 255 {
		g.Address4 = v4
	}
	grantPrefixes(&g, &a.Attributes)
	if id, _ := a.Attributes.Find(radius.FramedInterfaceID); len(id) == 8 {
		g.InterfaceID = binary.BigEndian.Uint64(id)
	}
	g.DNS6 = nameServers(&a.Attributes)
	if mtu, ok := a.Attributes.FindInteger(radius.FramedMTU); ok {
		g.MTU = int(min(mtu, 65535)) // RFC 2865 section 5.12
	}
	g.Pool4, g.Pool6 = a.Attributes.FindText(radius.FramedPool), a.Attributes.FindText(radius.FramedIPv6Pool)
	g.PoolDelegated = a.Attributes.FindText(radius.DelegatedIPv6Pool)
	grantRoutes(&g, &a.Attributes)
	g.SessionLimit, _ = a.Attributes.FindSeconds(radius.SessionTimeout)
	g.IdleLimit, _ = a.Attributes.FindSeconds(radius.IdleTimeout)
	if often, ok := a.Attributes.FindSeconds(radius.AcctInterimInterval); ok && often > 0 {
		g.Interim = max(often, minInterim)
	}
	g.Class = classesOf(&a.Attributes)
	return g
}

// nameServers are those that a server names for the terminal: each by an attribute (RFC 6911 section 3.2), or else
// all in the one of 3GPP's (TS 29.061 section 16.4.7).
func nameServers(of *radius.Attributes) (list []netip.Addr) {
	values := of.All(radius.DNSServerIPv6Address)
	if all, _ := of.Find3GPP(gppDNS6); len(values) == 0 && len(all)%16 == 0 {
		values = slices.Collect(slices.Chunk(all, 16))
	}
	for _, v := range values {
		if a, ok := netip.AddrFromSlice(v); ok && a.Is6() {
			list = append(list, a)
		}
	}
	return list
}

// classesOf are the classes that are told again. One without an octet is none (RFC 2865 section 5).
func classesOf(a *radius.Attributes) (list [][]byte) {
	left := maxClass
	for _, class := range a.All(radius.Class) {
		if left -= 2 + len(class); left >= 0 && len(class) > 0 {
			list = append(list, bytes.Clone(class))
		}
	}
	return list
}

// minInterim is the shortest interval that a server may say (RFC 2869 section 5.16), and maxClass how
// many octets of its classes, with their headers, are told again: a packet has room for that besides the rest.
const (
	minInterim = time.Minute
	maxClass   = 1024
)

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
	emit(role.Level("authorizing", "Create Requests that wait for RADIUS servers.", float64(waiting)))
	for v := range ggsn.Verdict(ggsn.NumVerdicts) {
		emit(role.Metric{Name: "authorizations_total", Kind: role.Counter, Help: "Create Requests that waited for RADIUS servers, by what became of them.", Reason: v.String(), Value: float64(of.Verdicts[v])})
	}
	emit(role.Count("authorized_late_total", "Answers of RADIUS servers, or their silence, that came when the SGSN waited no more.", of.GrantsLate))
	a.asker.collect(emit, "radius")
}
