// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"io"
	"math"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sip/aka"
	"github.com/isthmus-net/isthmus/sip/digest"
	"github.com/isthmus-net/isthmus/sip/message"
)

// challengeHold is how long one challenge of AKA serves all who ask in the name of a subscriber,
// so that strangers cannot use up sequence numbers.
const challengeHold = 2 * time.Second

// authenticator proves who sends requests.
type authenticator struct {
	nonces
	realm      string
	hosts      []string // that this server answers for
	algorithms []digest.Algorithm
	random     io.Reader
	sqn        map[string]aka.SQN  // by the names of accounts
	changed    map[string]struct{} // whose numbers have changed since [Engine.Changed]
	held       map[string]held     // challenges of AKA, likewise
}

// count sets the last number of an account.
func (a *authenticator) count(name string, sqn aka.SQN) {
	a.sqn[name] = sqn
	a.changed[name] = struct{}{}
}

// last is the number that the next one of an account follows.
func (a *authenticator) last(who *Account) aka.SQN {
	if sqn, begun := a.sqn[who.Username]; begun {
		return sqn
	}
	return who.SQN
}

// held is a challenge of AKA that no one has answered.
type held struct {
	vector aka.Vector
	at     time.Time
}

// verdict is what there is to say of credentials.
type verdict struct {
	account *account // who sent the request; nil: that is not proved
	reason  Reason
	stale   bool // the credentials were right, the nonce was not
}

// authenticate judges the credentials of a request (RFC 3261 section 22.2, RFC 3310 section 3).
func (a *authenticator) authenticate(m *message.Message, field string, d *directory, now time.Time) verdict {
	v := verdict{reason: Challenged}
	for _, header := range m.All(field) {
		c, err := digest.ParseCredentials(header)
		switch {
		case err == digest.ErrNotDigest: // RFC 4475 section 3.3.7
			continue
		case err != nil:
			v = verdict{reason: BadHeader}
		case c.Realm != a.realm:
			v = verdict{reason: ForeignRealm}
		case c.Nonce == "" || c.Response == "": // a terminal says its name before it is challenged
			v = verdict{reason: Challenged}
		default:
			return a.judge(&c, m, d.byName[c.Username], now)
		}
	}
	return v
}

// consume takes the credentials for this realm out of a request, which are no one's business behind. Others are those of a proxy
// further on (RFC 3261 section 22.3).
func (a *authenticator) consume(m *message.Message, field string) {
	m.Headers = slices.DeleteFunc(m.Headers, func(h message.Header) bool {
		c, err := digest.ParseCredentials(h.Value)
		return h.Name == field && err == nil && c.Realm == a.realm
	})
}

// judge looks at credentials for this realm.
func (a *authenticator) judge(c *digest.Credentials, m *message.Message, who *account, now time.Time) verdict {
	if !a.concerns(c.URI, m.URI) {
		return verdict{reason: OtherURI}
	}
	ha1, ok := a.secret(c, who)
	if !ok || !c.Matches(ha1, m.Method, m.Body) {
		return verdict{reason: BadCredentials}
	}
	resync := c.Algorithm == digest.AKAv1MD5 && c.AUTS != ""
	var sqn aka.SQN
	if resync {
		// The response, with an empty password, proves nothing: whoever sends AUTS does.
		if sqn, ok = asked(c, who); !ok {
			return verdict{reason: BadCredentials}
		}
	}
	s, own := a.opened(c)
	switch {
	case !own:
		return verdict{reason: ForeignNonce, stale: true}
	case !a.fresh(s, now):
		return verdict{reason: StaleNonce, stale: true}
	case !a.use(s, c.Count, now):
		return verdict{reason: ReplayedNonce, stale: true}
	}
	if c.Algorithm == digest.AKAv1MD5 {
		delete(a.held, who.Username) // the next challenge is another one
	}
	if resync {
		a.resynchronise(who, s, sqn)
		return verdict{reason: Resynchronised}
	}
	return verdict{account: who}
}

// maxAhead is how far ahead of its own number a terminal takes one (TS 33.102 annex C.2.1, delta): 2^28 in SEQ, behind
// which IND has five bits.
const maxAhead = 1 << (28 + 5)

// resynchronise goes on from the number of a terminal, but only if that would not take the next one from here (TS 33.102
// section 6.3.5). Who has seen an AUTS can send it again, since the response needs no password: each nonce has one, and
// none leads back to numbers that were used.
func (a *authenticator) resynchronise(who *account, s stamp, sqn aka.SQN) {
	a.used[s] = math.MaxUint32
	if next, _ := a.last(&who.Account).Next(); next <= sqn || next-sqn > maxAhead {
		a.count(who.Username, sqn)
	}
}

// concerns reports whether the URI of credentials is that of a request, or one that this server
// answers for (RFC 8760 section 2.6, number 6): proxies change Request-URIs.
func (a *authenticator) concerns(uri, request string) bool {
	u, err := message.ParseURI(uri)
	r, errR := message.ParseURI(request)
	return err == nil && errR == nil && (u.Host == r.Host || slices.Contains(a.hosts, u.Host))
}

// secret is HA1 of the one who sends credentials. Not ok: there is none.
func (a *authenticator) secret(c *digest.Credentials, who *account) (ha1 string, ok bool) {
	switch {
	case who == nil:
		return "", false
	case c.Algorithm != digest.AKAv1MD5:
		ha1, ok = who.HA1[c.Algorithm] // an account may have more than are offered
		return ha1, ok && slices.Contains(a.algorithms, c.Algorithm)
	case who.Milenage == nil:
		return "", false
	}
	n, ok := aka.ParseNonce(c.Nonce)
	password := ""
	if c.AUTS == "" { // RFC 3310 section 3.4
		password = who.Milenage.Vector(n.RAND, 0, aka.AMF{}).Password()
	}
	return c.Algorithm.HA1(c.Username, c.Realm, password), ok
}

// opened is the stamp of the nonce of credentials.
func (a *authenticator) opened(c *digest.Credentials) (s stamp, own bool) {
	if c.Algorithm != digest.AKAv1MD5 {
		return a.open(decode(c.Nonce), []byte("password"))
	}
	n, ok := aka.ParseNonce(c.Nonce)
	s, own = a.open(n.Data, []byte("aka"), []byte(c.Username), n.RAND[:], n.AUTN[:])
	return s, own && ok
}

// asked is the number that a terminal asks to go on from (TS 33.102 section 6.3.5).
func asked(c *digest.Credentials, who *account) (sqn aka.SQN, ok bool) {
	n, _ := aka.ParseNonce(c.Nonce)
	auts, ok := aka.ParseAUTS(c.AUTS)
	if !ok {
		return 0, false
	}
	return who.Milenage.Resynchronise(n.RAND, auts)
}

// challenges are those for an account, the preferred one first (RFC 8760 section 2.3); nil: for
// nobody that is known, who is challenged like all with a password.
func (a *authenticator) challenges(who *account, stale bool, now time.Time) (list []digest.Challenge, err error) {
	if who != nil && who.Milenage != nil {
		nonce, err := a.akaNonce(who, now)
		if err != nil {
			return nil, err
		}
		list = append(list, digest.Challenge{Realm: a.realm, Nonce: nonce, Algorithm: digest.AKAv1MD5, Stale: stale, QOP: []string{"auth"}})
	}
	for _, algorithm := range a.algorithms {
		if who != nil && who.HA1[algorithm] == "" {
			continue
		}
		nonce := encode(a.seal(a.stamp(now), []byte("password")))
		list = append(list, digest.Challenge{Realm: a.realm, Nonce: nonce, Algorithm: algorithm, Stale: stale, QOP: []string{"auth"}})
	}
	return list, nil
}

// akaNonce is the nonce of a challenge of AKA, with the next sequence number unless one was just
// used in vain.
func (a *authenticator) akaNonce(who *account, now time.Time) (string, error) {
	h, there := a.held[who.Username]
	if !there || now.Sub(h.at) > challengeHold {
		sqn, ok := a.last(&who.Account).Next()
		var random [16]byte
		if _, err := io.ReadFull(a.random, random[:]); err != nil || !ok {
			return "", errNoChallenge
		}
		a.count(who.Username, sqn)
		h = held{who.Milenage.Vector(random, sqn, who.AMF), now}
		a.held[who.Username] = h
	}
	data := a.seal(a.stamp(now), []byte("aka"), []byte(who.Username), h.vector.RAND[:], h.vector.AUTN[:])
	return aka.Nonce{RAND: h.vector.RAND, AUTN: h.vector.AUTN, Data: data}.String(), nil
}
