// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/sip/aka"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/ua"
)

// imsRegistration is what one has cost.
type imsRegistration struct {
	who, end           string
	requests, messages int
	took, theory       time.Duration
	credentials        []string // of each REGISTER, "" for none
}

// readRegistration reads the REGISTERs of a UE and their answers, on its own link.
func (t *imsTrace) readRegistration(who string, at netip.Addr, p *cscf) (r imsRegistration, err error) {
	requests, answers := ofMethod(t.sent, "REGISTER", at), ofMethod(t.came, "REGISTER", at)
	if len(requests) > 0 { // and not those of the telephone before it
		callID := last(requests).CallID()
		other := func(m sipMessage) bool { return m.CallID() != callID }
		requests, answers = slices.DeleteFunc(requests, other), slices.DeleteFunc(answers, other)
	}
	if len(requests) == 0 || len(answers) == 0 {
		return r, fmt.Errorf("%s: there are %d REGISTERs, and %d answers", who, len(requests), len(answers))
	}
	end := last(answers)
	r = imsRegistration{who: who, messages: len(requests) + len(answers), end: fmt.Sprintf("%d %s", end.Status, end.Reason)}
	requests = slices.CompactFunc(requests, func(a, b sipMessage) bool { return a.Get("CSeq") == b.Get("CSeq") }) // sent again
	r.requests = len(requests)
	for _, one := range requests {
		r.credentials = append(r.credentials, one.Get("Authorization"))
	}
	began := requests[0].at
	r.took = end.at.Sub(began)
	r.theory = time.Duration(len(requests)) * imsTrip
	if viaOf(end.Message) == "TCP" {
		r.theory += time.Duration(connections(t.up, at, p.at, began, end.at)) * imsTrip
	}
	return r, nil
}

// String says it in a line.
func (r imsRegistration) String() string {
	return fmt.Sprintf("%s after %d REGISTERs and %.1f ms, by theory %.1f", r.end, r.requests, milliseconds(r.took), milliseconds(r.theory))
}

// register starts a UE's telephone with a card, and waits for what becomes of its registration.
func (g *imsGuide) register(ctx context.Context, u *imsUE, who string, card *ua.SIM, wanted ua.Kind) (r imsRegistration, v ua.Event, err error) {
	t, err := g.watch(func() (err error) {
		if u.phone, err = u.telephone(ctx, card); err != nil {
			return err
		}
		v, err = u.phone.awaitEvent(ctx, wanted)
		return err
	})
	if err != nil {
		return r, v, err
	}
	if r, err = t.readRegistration(who, u.address(), g.p); err == nil {
		g.registrations = append(g.registrations, r)
	}
	return r, v, err
}

// wrongKey has a card that is not the subscriber's: it finds that the challenge is not of its network, and
// proves nothing (TS 33.102 section 6.3.3, RFC 3310 section 3.2).
func (g *imsGuide) wrongKey(ctx context.Context) (string, error) {
	u := g.ue1
	r, v, err := g.register(ctx, u, "UE 1, wrong key", newCard(g.ue2.k, g.ue2.opc), ua.RegistrationFailed)
	if err != nil {
		return "", err
	}
	err = u.phone.close()
	u.phone = nil
	switch {
	case err != nil:
		return "", err
	case v.Status != 401:
		return "", fmt.Errorf("it was told %d %s", v.Status, v.Reason)
	case strings.Join(r.credentials, "") != "":
		return "", fmt.Errorf("it has answered a challenge of another network: %q", r.credentials)
	}
	return r.String() + "; no challenge was answered", g.boundAt(ctx, u, 0)
}

func (g *imsGuide) registerUE1(ctx context.Context) (string, error) {
	u := g.ue1
	r, _, err := g.register(ctx, u, "UE 1", u.card, ua.Registered)
	switch {
	case err != nil:
		return "", err
	case r.requests != 2 || !strings.Contains(r.credentials[1], aka.Algorithm):
		return "", fmt.Errorf("its REGISTERs have the credentials %q", r.credentials)
	}
	return fmt.Sprintf("%v; it is bound at %s", r, u.home.title), g.boundAt(ctx, u, 1)
}

// registerUE2 has a card that was in use elsewhere: it asks for a higher number by AUTS, and gets it.
func (g *imsGuide) registerUE2(ctx context.Context) (string, error) {
	u := g.ue2
	for place := range aka.SQN(32) { // each has a number of its own (TS 33.102 annex C.2.2)
		u.card.Seen.Accept(1000<<5 | place)
	}
	r, _, err := g.register(ctx, u, "UE 2, sequence number out of range", u.card, ua.Registered)
	switch {
	case err != nil:
		return "", err
	case r.requests != 3 || !strings.Contains(r.credentials[1], "auts=") || strings.Contains(r.credentials[2], "auts="):
		return "", fmt.Errorf("its REGISTERs have the credentials %q", r.credentials)
	}
	return fmt.Sprintf("%v; the second one had AUTS; it is bound at %s", r, u.home.title), g.boundAt(ctx, u, 1)
}

// imsCall is a call with a move in the middle of it.
type imsCall struct {
	hops             []imsHop
	opened, back     time.Duration // since its PDP context was ended: the new one is open; it sends from its new address
	reinvited, moved time.Duration // since then: UE 2 has the re-INVITE, UE 1 the 200
	opens            int           // connections of TCP over the wire that the re-INVITE waits for
	renewed          imsRegistration
	down, up         sipGap
	bindings         int
}

// imsHop is a message of a call's begin at one place.
type imsHop struct {
	what, where, transport string
	at, theory             time.Duration // since the first INVITE
}

func (c *imsCall) last() imsHop { return last(c.hops) }

// reinviteTheory is how long a re-INVITE takes to UE 2: to the IMS and back, with the connections that are opened.
func (c *imsCall) reinviteTheory() time.Duration { return time.Duration(1+c.opens) * imsTrip }

// call makes a call.
func (g *imsGuide) call(ctx context.Context) (string, error) {
	t, err := g.watch(func() error {
		g.ue1.phone.forget()
		g.ue2.phone.forget()
		if _, err := g.ue1.phone.Call(ctx, g.ue2.aor()); err != nil {
			return err
		}
		return established(ctx, warmPackets(g.env), g.ue1.phone, g.ue2.phone)
	})
	if err != nil {
		return "", err
	}
	c := &imsCall{}
	g.calls = append(g.calls, c)
	if c.hops, err = g.readHops(&t); err != nil {
		return "", err
	}
	places := make([]string, 0, len(c.hops))
	for _, h := range c.hops {
		places = append(places, fmt.Sprintf("%s, %s by %s: %.1f ms, by theory %.1f", h.where, h.what, h.transport, milliseconds(h.at), milliseconds(h.theory)))
	}
	return strings.Join(places, "\n"), nil
}

// readHops follows a call from its first INVITE to the 200.
func (g *imsGuide) readHops(t *imsTrace) (hops []imsHop, err error) {
	one, two, p := g.ue1.address(), g.ue2.address(), g.p.at
	begin := time.Time{}
	if asked := ofMethod(t.sent, "INVITE", one); len(asked) > 0 {
		begin = asked[0].at
	}
	at, theory := begin, time.Duration(0)
	for _, h := range []struct {
		begins, where string
		all           []seen
		from, to      netip.Addr
		trips         time.Duration // halves of the wire's, since the one before
		over          []frameSeen   // where a connection was opened
	}{
		{"INVITE", "UE 1 sends", t.sent, one, p, 0, nil},
		{"SIP/2.0 407", "UE 1", t.came, p, one, 2, nil},
		{"INVITE", "UE 1 sends, with credentials", t.sent, one, p, 0, t.up},
		{"INVITE", g.p.title, t.served, one, p, 1, nil},
		{"INVITE", g.s1.title, t.served, p, g.s1.at, 0, nil},
		{"INVITE", g.i.title, t.served, g.s1.at, g.i.at, 0, nil},
		{"INVITE", g.s2.title, t.served, g.i.at, g.s2.at, 0, nil},
		{"INVITE", g.p.title, t.served, g.s2.at, p, 0, nil},
		{"INVITE", "UE 2", t.came, p, two, 1, t.down},
		{sipOK, g.p.title, t.served, two, p, 1, nil},
		{sipOK, g.s2.title, t.served, p, g.s2.at, 0, nil},
		{sipOK, g.i.title, t.served, g.s2.at, g.i.at, 0, nil},
		{sipOK, g.s1.title, t.served, g.i.at, g.s1.at, 0, nil},
		{sipOK, g.p.title, t.served, g.s1.at, p, 0, nil},
		{sipOK, "UE 1", t.came, p, one, 1, nil},
	} {
		d, ok := firstSeen(h.all, at, sipSeen{from: h.from, to: h.to, begins: h.begins, method: "INVITE"})
		if !ok {
			return hops, fmt.Errorf("no %s has come from %v to %v behind the first %d messages of the call", h.begins, h.from, h.to, len(hops))
		}
		theory += h.trips * imsTrip / 2
		theory += time.Duration(connections(h.over, h.from, h.to, at, d.at)) * imsTrip
		at = d.at
		hops = append(hops, imsHop{strings.TrimPrefix(h.begins, "SIP/2.0 "), h.where, sipTransport(d), at.Sub(begin), theory})
	}
	return hops, nil
}

// sipTransport is what a message has come by.
func sipTransport(d seen) string {
	m, fault := message.Parse(d.payload)
	if fault != nil {
		return ""
	}
	return viaOf(m)
}

// viaOf is what a request has come by, or what a response goes back by: its topmost Via says so.
func viaOf(m *message.Message) string {
	v, err := message.ParseVia(m.Get("Via"))
	if err != nil {
		return ""
	}
	return v.Transport
}

// media has both hear each other, by tunnels of GTP.
func (g *imsGuide) media(ctx context.Context) (string, error) {
	began := time.Now()
	t, err := g.watch(func() error { return awaitMedia(ctx, warmPackets(g.env), g.ue1.phone, g.ue2.phone) })
	if err != nil {
		return "", err
	}
	down, up := mediaTo(t.came, g.ue1.address()), mediaTo(t.came, g.ue2.address())
	if least := int(warmPackets(g.env)); down < least || up < least {
		return "", fmt.Errorf("the tunnels of GTP carried %d packets to UE 1 and %d to UE 2", down, up)
	}
	return fmt.Sprintf("G-PDUs carried %d packets to UE 1 and %d to UE 2 in %.1f s, from %v to %v and back", down, up, time.Since(began).Seconds(), g.ue1.address(), g.ue2.address()), nil
}

// handoff ends UE 1's context and opens another. It is over when media go as before, and one binding is left.
func (g *imsGuide) handoff(ctx context.Context) (string, error) {
	c, u, from := last(g.calls), g.ue1, g.ue1.address()
	var settled time.Time
	t, err := g.watch(func() error {
		if err := awaitMedia(ctx, warmPackets(g.env), u.phone, g.ue2.phone); err != nil {
			return err
		}
		if err := g.order(ctx, u, "move", u.imsi, "--ggsn", core6.ggsn.String()); err != nil {
			return err
		}
		if err := u.phone.awaitAll(ctx, ua.Moved, ua.Registered); err != nil {
			return err
		}
		err := awaitMedia(ctx, warmPackets(g.env), u.phone, g.ue2.phone)
		settled = time.Now()
		return err
	})
	if err != nil {
		return "", err
	}
	if err := c.readMove(&t, g, from, settled); err != nil {
		return "", err
	}
	list, err := g.bindings(ctx, u, u.home)
	c.bindings = len(list)
	return fmt.Sprintf("from %v to %v: packets again after %.1f ms, re-INVITE at UE 2 %.1f ms later; gap down %.1f ms, up %.1f; lost %d down, %d up; REGISTER: %v; bindings: %s",
		from, u.address(), milliseconds(c.back), milliseconds(c.reinvited), milliseconds(c.down.longest), milliseconds(c.up.longest), c.down.lost, c.up.lost, c.renewed, strings.Join(list, ", ")), err
}

// readMove reads what a move of UE 1 from an address has cost.
func (c *imsCall) readMove(t *imsTrace, g *imsGuide, from netip.Addr, settled time.Time) (err error) {
	to, peer, p := g.ue1.address(), g.ue2.address(), g.p.at
	if from.As16() == to.As16() || [8]byte(from.AsSlice()) == [8]byte(to.AsSlice()) {
		return fmt.Errorf("the new context has the old /64: %v", to)
	}
	change, ended := firstGTP(t.control, time.Time{}, gtp.TypeDeleteRequest)
	opened, open := firstGTP(t.control, change, gtp.TypeCreateResponse)
	back := time.Time{}
	for _, d := range t.sent {
		if d.from.Addr() == to && back.IsZero() {
			back = d.at
		}
	}
	invite, invited := first(t.came, change, sipSeen{from: p, to: peer, begins: "INVITE "})
	answer, answered := first(t.came, invite, sipSeen{from: p, to: to, begins: sipOK, method: "INVITE"})
	if !ended || !open || back.IsZero() || !invited || !answered {
		return fmt.Errorf("not all is in the captures: context ended %v, opened %v, packets from %v %v, re-INVITE %v, 200 %v", ended, open, to, !back.IsZero(), invited, answered)
	}
	c.opened, c.back, c.reinvited, c.moved = opened.Sub(change), back.Sub(change), invite.Sub(back), answer.Sub(back)
	c.opens = connections(t.up, to, p, change, invite) + connections(t.down, p, peer, change, invite)
	if c.renewed, err = t.readRegistration("UE 1, moved", to, g.p); err != nil {
		return err
	}
	for _, one := range c.renewed.credentials {
		if !strings.Contains(one, aka.Algorithm) {
			return errors.New("it has registered from its new address without AKA")
		}
	}
	if c.down, err = gapOf(t.came, change, settled, func(d seen) bool {
		return d.to.Addr() == to || d.to.Addr() == from && d.at.Before(change)
	}); err != nil {
		return fmt.Errorf("to UE 1: %w", err)
	}
	if c.up, err = gapOf(t.came, change, settled, func(d seen) bool { return d.to.Addr() == peer }); err != nil {
		return fmt.Errorf("from UE 1: %w", err)
	}
	if len(g.calls) == 1 {
		g.registrations = append(g.registrations, c.renewed)
	}
	return nil
}

// hangUp has UE 2 end the call.
func (g *imsGuide) hangUp(ctx context.Context) (string, error) {
	t, err := g.watch(func() error { return g.ue2.phone.endCall(ctx, g.ue1.phone) })
	if err != nil {
		return "", err
	}
	sent := ofMethod(t.sent, "BYE", g.ue2.address())
	at, ok := first(t.came, time.Time{}, sipSeen{from: g.p.at, to: g.ue1.address(), begins: "BYE "})
	if !ok || len(sent) == 0 {
		return "", fmt.Errorf("no BYE of UE 2's has come to %v", g.ue1.address())
	}
	theory := time.Duration(1+connections(t.down, g.p.at, g.ue1.address(), sent[0].at, at)) * imsTrip
	return fmt.Sprintf("it came after %.1f ms, by theory %.1f", milliseconds(at.Sub(sent[0].at)), milliseconds(theory)), nil
}
