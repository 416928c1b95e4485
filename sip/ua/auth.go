// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/sip/aka"
	"github.com/isthmus-net/isthmus/sip/digest"
	"github.com/isthmus-net/isthmus/sip/message"
)

// maxChallenges is how often one request is sent again for a challenge: once for it, once
// for a nonce that went stale.
const maxChallenges = 2

// credentials are the challenges that a call or a registration has met. They are answered
// again in later requests, with the next nonce count, so that no request of a move costs a
// second round trip.
type credentials struct {
	known []*challenge
	homes []netip.Addr // of our own servers when the call began
}

type challenge struct {
	digest.Challenge
	proxy bool
	count uint32
	aka   *akaAnswer // once it is computed: each sequence number is taken once
}

type akaAnswer struct{ password, auts string }

// SIM answers challenges of AKA (RFC 3310), as a subscriber's card does.
type SIM struct {
	Milenage *aka.Milenage
	Seen     aka.Window
}

// challenged takes the challenges of a 401 or 407 to a request, and reports whether that shall be
// sent again: not if what we know was refused, or if who asks is not of our own domain.
func (c *credentials) challenged(e *Engine, req request, res *message.Message) bool {
	if !c.mayChallenge(e, req, res.Status) {
		return false
	}
	name := "WWW-Authenticate"
	if res.Status == 407 {
		name = "Proxy-Authenticate"
	}
	fresh := false
	seen := map[string]bool{}
	for _, ch := range e.challenges(res.All(name)) {
		if seen[ch.Realm] || !e.inRealm(ch.Realm, req.Method) {
			continue
		}
		seen[ch.Realm] = true
		fresh = c.learn(&challenge{Challenge: ch, proxy: res.Status == 407}) || fresh
	}
	return fresh
}

// challenges are those that can be answered. The first of a realm is the one that the server likes best
// (RFC 8760 section 2.4), but for those without qop: their answers have nothing of ours in them, so that
// they can be looked up in a table that was made for the nonce (RFC 3261 section 22.4).
func (e *Engine) challenges(headers []string) (list []digest.Challenge) {
	for _, value := range headers {
		ch, err := digest.ParseChallenge(value)
		if err != nil || ch.Algorithm == digest.AKAv1MD5 && e.set.SIM == nil || len(ch.QOP) > 0 && !slices.Contains(ch.QOP, "auth") {
			continue
		}
		list = append(list, ch)
	}
	slices.SortStableFunc(list, func(a, b digest.Challenge) int { return cmp.Compare(min(len(b.QOP), 1), min(len(a.QOP), 1)) })
	return list
}

// learn replaces what is known of a realm, and reports whether that gives hope: the nonce is
// the first, or the server says that the last one was merely stale, or it is another one that
// was not refused before.
func (c *credentials) learn(ch *challenge) bool {
	for i, old := range c.known {
		if old.Realm == ch.Realm && old.proxy == ch.proxy {
			c.known[i] = ch
			asked := old.aka != nil && old.aka.auts != "" // for this one
			return asked || ch.Stale || old.count > 1 && old.Nonce != ch.Nonce
		}
	}
	if len(c.known) >= maxRealms {
		return false
	}
	c.known = append(c.known, ch)
	return true
}

// apply answers in a request all challenges that are known, if it goes to a server of ours.
func (c *credentials) apply(e *Engine, req request) {
	if !c.home(e, &req.next) {
		return
	}
	for _, ch := range c.known {
		password, auts, ok := e.password(ch)
		if !ok {
			continue
		}
		ch.count++
		a := ch.Answer(e.set.Username, ch.Algorithm.HA1(e.set.Username, ch.Realm, password), req.Method, req.URI, e.token(), ch.count)
		a.AUTS = auts
		name := "Authorization"
		if ch.proxy {
			name = "Proxy-Authorization"
		}
		req.Add(name, a.String())
	}
}

// password is what answers a challenge. To one of AKA it is RES; or none, with AUTS, if the
// sequence number in it was used before (RFC 3310 sections 3.3 and 3.4). A challenge that is
// not of our home network is not answered.
func (e *Engine) password(ch *challenge) (password, auts string, ok bool) {
	if ch.Algorithm != digest.AKAv1MD5 {
		return e.set.Password, "", true
	}
	if ch.aka != nil {
		return ch.aka.password, ch.aka.auts, true
	}
	n, ok := aka.ParseNonce(ch.Nonce)
	if !ok || e.set.SIM == nil {
		return "", "", false
	}
	sim := e.set.SIM
	a, ok := sim.Milenage.Answer(n.RAND, n.AUTN)
	if !ok {
		return "", "", false
	}
	ch.aka = &akaAnswer{password: a.Password()}
	if !sim.Seen.Accept(a.SQN) {
		ch.aka = &akaAnswer{auts: sim.Milenage.AUTS(n.RAND, sim.Seen.Highest()).String()}
	}
	return ch.aka.password, ch.aka.auts, true
}

// copy gives an ACK those of its INVITE (section 22.1), if it goes to a server of ours as well.
func (c *credentials) copy(e *Engine, from *message.Message, to request) {
	if !c.home(e, &to.next) {
		return
	}
	for _, name := range []string{"Authorization", "Proxy-Authorization"} {
		for _, value := range from.All(name) {
			to.Add(name, value)
		}
	}
}
