// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"bytes"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/internal/timerqueue"
)

// Ask is a Create Request that waits until [Engine.Authorize] says whether its terminal may come
// in (TS 29.061 section 11.2.1).
type Ask struct {
	Ticket uint64
	// ContextInfo is what is known of the context that is asked for.
	ContextInfo
	Credentials
}

// Credentials are what a terminal has to prove its name.
type Credentials struct {
	Password []byte // of PAP; nil: there is none
	// Response answers Challenge with CHAP's identifier; nil: there is none.
	Identifier          uint8
	Response, Challenge []byte
}

// Grant is what was said of an [Ask].
type Grant struct {
	Verdict Verdict
	// Address4 and Prefix6 are what the terminal gets, of a pool of its access point; not valid: any.
	Address4    netip.Addr
	Prefix6     netip.Prefix
	InterfaceID uint64 // of its IPv6 address; 0: any
	// DNS6 are the name servers that it is told in place of those of its access point, if there are any, and MTU is
	// that of its link if it is smaller; 0: that of the access point.
	DNS6 []netip.Addr
	MTU  int
	// Further6 are /64 that its link has beside Prefix6, of the same pools: all of them, or it is refused.
	Further6 []netip.Prefix
	// Pool4 and Pool6 name the parts of the pools of which it gets the others: see [APN].Named. Empty: none of
	// these.
	Pool4, Pool6 string
	// PoolDelegated names that of the prefix which is delegated to the terminal. Where the access point has that and
	// the link's of one lease, it is Pool6, too; elsewhere there are no such pools, and it says nothing.
	PoolDelegated string
	// Routes lead to what is behind the terminal, or may be delegated there, one to each association that asks.
	// MalformedRoutes is how many more were named that cannot be read.
	Routes          []Route
	MalformedRoutes int
	Terms
	// Interim is how often the accounts tell of its session, if its access point leaves that open; 0:
	// never. Class is what they tell with it.
	Interim time.Duration
	Class   [][]byte
}

// Terms are how long a session may last, in place of what its access point says; 0: that counts.
type Terms struct{ SessionLimit, IdleLimit time.Duration }

// Verdict is whether a terminal may come in.
type Verdict uint8

// The verdicts.
const (
	Granted Verdict = iota
	Refused
	Challenged // refused: a question has no way to the terminal (RFC 2865 section 4.4)
	Unknown    // nobody has said; see [APN].Fallback
	Superseded // a later request for the same context counts
	numVerdicts
)

// NumVerdicts is the number of verdicts, for an array of counters.
const NumVerdicts = int(numVerdicts)

var verdictNames = [numVerdicts]string{"granted", "refused", "challenged", "unanswered", "superseded"}

// String returns the name of the verdict, stable and fit for a counter's label.
func (v Verdict) String() string { return verdictNames[v] }

// heldCreate is a Create Request that waits.
type heldCreate struct {
	timerqueue.Node // when it has waited long enough

	key     heldKey
	of      heldContext
	node    netip.Addr // that has the control plane
	sender  handle
	ticket  uint64
	socket  Socket
	from    netip.AddrPort
	message []byte
}

// heldKey tells those apart that wait.
type heldKey struct {
	from netip.AddrPort
	answerKey
	hash uint64
}

// heldContext is the context that is asked for: see [Engine.contextsOf].
type heldContext struct {
	tid  gtp.TID
	imei bool
}

// held are the requests that wait, one at most for a context.
type held struct {
	byKey    map[heldKey]*heldCreate
	byOf     map[heldContext]*heldCreate
	byTicket map[uint64]*heldCreate
	queue    timerqueue.Queue[*heldCreate]
	ticket   uint64 // the last one
}

func newHeld() held {
	return held{byKey: make(map[heldKey]*heldCreate), byOf: make(map[heldContext]*heldCreate), byTicket: make(map[uint64]*heldCreate)}
}

func heldContextOf(tid gtp.TID, m marks) heldContext { return heldContext{tid, m&markIMEI != 0} }

func (t *transaction) heldKey() heldKey { return heldKey{t.from, t.key(), t.hash} }

// heldAt is when the first of them has waited long enough.
func (e *Engine) heldAt() time.Duration {
	if e.held.queue.Len() == 0 {
		return never
	}
	return e.held.queue.Next().Sub(e.epoch)
}

// take takes one out.
func (h *held) take(ticket uint64) *heldCreate {
	one := h.byTicket[ticket]
	if one != nil {
		h.queue.Stop(one)
		delete(h.byTicket, ticket)
		delete(h.byKey, one.key)
		if h.byOf[one.of] == one {
			delete(h.byOf, one.of)
		}
	}
	return one
}

// maxHeldMessage is how long a request may be that waits, in octets. The elements of the longest that makes
// sense have some 1.5 KB, but a private extension may have 64 KB.
const maxHeldMessage = 4 << 10

// mayAsk reports whether one more request of a node may wait: fewer of its wait than there is room for. So one
// alone gets half of that room, two a third each, and none of them all of it.
func (e *Engine) mayAsk(p *peer) bool {
	return p.asking < e.settings.Limits.Waiting-len(e.held.byTicket)
}

// ask holds a request until somebody has said whether its terminal may come in. The cause is why
// it cannot wait.
func (e *Engine) ask(t *transaction, m *gtp.CreateRequest, made *session) gtp.Cause {
	if len(t.message) > maxHeldMessage || !e.mayAsk(t.p) {
		return gtp.CauseNoResources
	}
	e.held.ticket++
	t.p.asking++
	one := &heldCreate{
		key: t.heldKey(), of: heldContextOf(made.tid, made.marks), node: e.peers.at(made.peer).addr, sender: t.ph, ticket: e.held.ticket, socket: t.socket, from: t.from,
		message: append([]byte(nil), t.message...),
	}
	until := t.now.Add(e.patience())
	if e.accessPoint(made).Fallback {
		until = until.Add(-e.settings.T3Response / 2) // so that the SGSN still waits
	}
	e.held.byKey[one.key], e.held.byOf[one.of], e.held.byTicket[one.ticket] = one, one, one
	e.held.queue.Set(one, until)
	e.stats.Asked++
	info := e.describeSession(made)
	info.NSAPI, info.QoS = made.tid.NSAPI(), m.QoS
	from, proof := originOf(m)
	info.Account = &Account{Origin: from}
	t.out.Asks = append(t.out.Asks, Ask{one.ticket, info, proof})
	return 0
}

// originOf returns what a request says of its terminal, in memory of its own.
func originOf(m *gtp.CreateRequest) (Origin, Credentials) {
	user, proof := credentialsOf(m.PCO.Value)
	return Origin{
		User: user, Selection: m.SelectionMode, Charging: m.ChargingCharacteristics, RAT: m.RATType, IMEI: m.IMEI,
		Network:  networkOf(m.RAI),
		Location: ownLocation(m.Location), TimeZone: m.TimeZone, CAMEL: bytes.Clone(m.CAMEL.Value),
	}, proof
}

// credentialsOf returns what the options of a request have of a name and its proof.
func credentialsOf(o gtp.PCO) (user []byte, c Credentials) {
	own := func(b []byte) []byte { return append([]byte{}, b...) }
	for container, value := range o.All() {
		p, ok := gtp.ParsePPP(value)
		switch {
		case !ok:
		case container == gtp.ContainerPAP:
			if name, password, ok := p.PAPCredentials(); ok {
				user, c.Password = own(name), own(password)
			}
		case container == gtp.ContainerCHAP:
			switch value, name, ok := p.CHAPValue(); {
			case !ok:
			case p.Code == gtp.CHAPChallenge:
				c.Challenge = own(value)
			default:
				user, c.Identifier, c.Response = own(name), p.Identifier, own(value)
			}
		}
	}
	return user, c
}

// Authorize says what was decided of an [Ask]. It comes too late where the request has waited as
// long as its SGSN would.
func (e *Engine) Authorize(ticket uint64, g Grant, now time.Time, out *Output) {
	c := e.begin(now, out)
	if one := e.held.take(ticket); one != nil {
		e.goOn(one, &g, c)
	} else {
		e.stats.GrantsLate++
	}
}

// heldDue refuses the requests that have waited long enough.
func (e *Engine) heldDue(c call) {
	for range tickBurst {
		one, due := e.held.queue.Due(c.now)
		if !due {
			return
		}
		e.goOn(e.held.take(one.ticket), &Grant{Verdict: Unknown}, c)
	}
}

// goOn handles a request anew, of which is known whether it is granted.
func (e *Engine) goOn(one *heldCreate, g *Grant, c call) {
	e.stats.Verdicts[g.Verdict]++
	e.peers.at(one.sender).asking--
	t := transaction{call: c, socket: one.socket, from: one.from, message: one.message, hash: one.key.hash, grant: g}
	if h := e.byAddress[addressKey(one.node.As16())]; h != 0 && one.ticket <= e.peers.at(h).forgotten {
		e.stats.Dropped[CreateForgotten]++
		return
	}
	var ok bool
	if t.ph, t.p, ok = e.peerOf(one.from.Addr()); !ok {
		e.stats.Dropped[PeersFull]++
		return
	}
	t.header, _ = gtp.ParseHeader(one.message) // as it was when it came
	if t.header.Version == gtp.V0 {
		t.header.TID = e.wireTID(one.from.Addr(), t.header.TID)
	}
	if r := e.create(&t); r != none {
		e.stats.Dropped[r]++
	}
}

// supersede refuses a request that waits, since a later one for the same context counts (TS 29.060 section
// 7.3.1): its SGSN, which may be another one by now, need not repeat it.
func (e *Engine) supersede(one *heldCreate, c call) {
	e.goOn(e.held.take(one.ticket), &Grant{Verdict: Superseded}, c)
}

// local reports whether a terminal comes in though nobody has said that it may.
func (g *Grant) local(a *access) bool { return g != nil && g.Verdict == Unknown && a.Fallback }

// cause returns that for which a request is not granted, if it is not.
func (g *Grant) cause(a *access) gtp.Cause {
	switch {
	case g == nil || g.Verdict == Granted || g.local(a):
		return 0
	case g.Verdict == Refused || g.Verdict == Challenged:
		return gtp.CauseUserAuthentication
	}
	return gtp.CauseSystemFailure
}

// wanted is what a terminal asks for, or in its place what is its own by its subscription, or what it was
// granted, and of which families the latter is.
func (g *Grant) wanted(asked gtp.EndUserAddress, own *Service) (gtp.EndUserAddress, Types) {
	var given Types
	if own.Address4.IsValid() {
		asked.IPv4 = own.Address4
	}
	if own.Prefix6.IsValid() {
		asked.IPv6 = own.Prefix6.Addr()
	}
	if g == nil {
		return asked, 0
	}
	// A pool that is named counts before what the terminal asks for, or its subscription has.
	if g.Pool4 != "" {
		asked.IPv4 = netip.Addr{}
	}
	if g.Pool6 != "" {
		asked.IPv6 = netip.Addr{}
	}
	if g.Address4.Is4() {
		asked.IPv4, given = g.Address4, given|TypeIPv4
	}
	if g.Prefix6.IsValid() && g.Prefix6.Bits() == prefixBits {
		asked.IPv6, given = g.Prefix6.Addr(), given|TypeIPv6
	}
	return asked, given
}

// settle has both pools of prefixes be the one that the lease is of, which holds them (RFC 6911 section 2.4), and
// reports whether they can be.
func (g *Grant) settle(a *access) bool {
	switch {
	case g == nil || g.PoolDelegated == "":
	case a.Delegate == 0:
		g.PoolDelegated = ""
	case g.Pool6 == "":
		g.Pool6 = g.PoolDelegated
	default:
		return g.Pool6 == g.PoolDelegated
	}
	return true
}

// partOf names the part of a family's pools of which a terminal gets any.
func (g *Grant) partOf(t Types) string {
	switch {
	case g == nil:
		return ""
	case t == TypeIPv4:
		return g.Pool4
	}
	return g.Pool6
}

// interfaceID is that which a terminal was granted, or a new one.
func (e *Engine) interfaceID(g *Grant) uint64 {
	if g != nil && link.ValidID(g.InterfaceID) {
		return g.InterfaceID
	}
	return e.newInterfaceID()
}

// limits are how long a session may last, and how long without a packet of its terminal.
func (e *Engine) limits(h handle, a *access) (t Terms) {
	t = e.terms[h]
	if t.SessionLimit == 0 {
		t.SessionLimit = a.SessionLimit
	}
	if t.IdleLimit == 0 {
		t.IdleLimit = a.IdleLimit
	}
	return t
}
