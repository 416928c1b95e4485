// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"bytes"
	"encoding/binary"
	"io"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// Account is what accounts tell of a session besides what its contexts are. It does not change once it
// was told of.
type Account struct {
	Origin
	// Class is what [Grant] had of it, to be told with each event (RFC 2865 section 5.25).
	Class [][]byte
	// Pool6 and PoolDelegated are the pools that [Grant] has named, and of which the session's prefixes are.
	Pool6, PoolDelegated string
	// Local tells that the terminal came in by [APN].Fallback, Servers that it did where [APN] has them: who was told
	// of a beginning waits for the end.
	Local, Servers bool
}

// Origin is what a Create Request says of its terminal besides who it is.
type Origin struct {
	User      []byte // the name that it gives by PAP or CHAP; empty: none
	Selection gtp.Optional[gtp.SelectionMode]
	Charging  gtp.Optional[uint16] // characteristics
	RAT       gtp.Optional[gtp.RATType]
	IMEI      gtp.Optional[gtp.IMEI]
	// Network is that of its SGSN, Location and TimeZone where the terminal is.
	Network  gtp.Optional[gtp.PLMN]
	Location gtp.Optional[gtp.Location]
	TimeZone gtp.Optional[gtp.TimeZone]
	CAMEL    []byte // charging information of an intelligent network; empty: none
}

// accounting is the account of a session, and when it is told of between its beginning and its end.
type accounting struct {
	*Account
	interim time.Duration // by [Grant]; 0: it says none
	told    time.Duration // when it was due last, since the epoch
	tariff  int64         // when the tariff changes next, in seconds of Unix; 0: never
}

// account begins the account of a session if its access point has one.
func (e *Engine) account(h handle, a *access, m *gtp.CreateRequest, g *Grant, c call) {
	if !a.Account {
		return
	}
	from, _ := originOf(m)
	made := &accounting{Account: &Account{Origin: from, Servers: a.Servers}, told: c.at}
	if g != nil {
		made.Class, made.interim, made.Local = g.Class, g.Interim, g.local(a)
		if e.sessions.at(h).has.has(TypeIPv6) && !g.Prefix6.IsValid() {
			made.Pool6, made.PoolDelegated = g.Pool6, g.PoolDelegated
		}
	}
	made.told -= head(h, made.every(a))
	if e.settings.Records {
		made.tariff = a.Charging.nextTariff(c.now)
	}
	e.setAccount(h, made)
}

// setAccount gives a session an account.
func (e *Engine) setAccount(h handle, of *accounting) {
	e.accounts[h] = of
	e.sessions.at(h).user = e.userOf(of.User)
}

// userOf is what sessions are told apart by when one is looked for by the name of its user: few have the same
// by chance.
func (e *Engine) userOf(name []byte) uint32 { return uint32(e.hash(name)) }

// accountOf is that of a session; nil: it has none.
func (e *Engine) accountOf(h handle) *Account {
	if of := e.accounts[h]; of != nil {
		return of.Account
	}
	return nil
}

// every is how often a session is told of; 0: never. What is configured counts before what the server has
// said (RFC 2869 section 5.16).
func (of *accounting) every(a *access) time.Duration {
	if a.Interim > 0 {
		return a.Interim
	}
	return of.interim
}

// head is how much of an interval a session is ahead: of sessions that begin together the updates are
// spread over all of it (RFC 2869 section 2.1). Multiples of the golden ratio lie as evenly as can be,
// however many there are.
func head(h handle, interval time.Duration) time.Duration {
	const golden = 0x9e3779b9 // of 2^32
	return time.Duration(float64(uint32(h)*golden) / (1 << 32) * float64(interval))
}

// nextInterim is when a session is to be told of next.
func (e *Engine) nextInterim(h handle, a *access) time.Duration {
	of := e.accounts[h]
	if of == nil || of.every(a) == 0 {
		return never
	}
	return of.told + of.every(a)
}

// interimDue tells of a session's contexts if it is time.
func (e *Engine) interimDue(h handle, s *session, c call) {
	a := e.accessPoint(s)
	if e.nextInterim(h, a) > c.at {
		return
	}
	of := e.accounts[h] // it keeps its time, however late it is
	of.told += (c.at - of.told) / of.every(a) * of.every(a)
	for x := s.first; x != 0; x = e.contexts.at(x).next {
		e.tell(c, ContextCounted, x, 0)
	}
}

// Close ends all contexts without a word to anybody, for a node that stops.
func (e *Engine) Close(now time.Time, out *Output) {
	c := e.begin(now, out)
	for h := handle(1); h <= e.sessions.last; h++ {
		if e.sessions.at(h).first != 0 {
			e.endSession(h, EndStopped, c)
		}
	}
}

// storedAccount is followed by the name of its user, by its location and its CAMEL information, by its pools, and
// by the values of its class: each behind its length, of two octets.
type storedAccount struct {
	Told, Interim int64
	Tariff        int64
	Local         bool
	Servers       bool
	Origin        struct { // of each what it is, if it is there
		Selection, Charging, RAT, IMEI, Network, Location, TimeZone bool
	}
	Selection gtp.SelectionMode
	Charging  uint16
	RAT       gtp.RATType
	IMEI      gtp.IMEI
	Network   gtp.PLMN
	TimeZone  gtp.TimeZone
	Classes   uint16
}

func (of *accounting) appendStored(b []byte) []byte {
	r := storedAccount{
		Told: int64(of.told), Interim: int64(of.interim), Tariff: of.tariff, Local: of.Local, Servers: of.Servers, Classes: uint16(len(of.Class)),
		Selection: of.Selection.Value, Charging: of.Charging.Value, RAT: of.RAT.Value, IMEI: of.IMEI.Value,
		Network: of.Network.Value, TimeZone: of.TimeZone.Value,
	}
	r.Origin.Selection, r.Origin.Charging, r.Origin.RAT, r.Origin.IMEI = of.Selection.Present, of.Charging.Present, of.RAT.Present, of.IMEI.Present
	r.Origin.Network, r.Origin.Location, r.Origin.TimeZone = of.Network.Present, of.Location.Present, of.TimeZone.Present
	b = appendOctets(appendRecord(b, &r), of.User)
	b = appendOctets(appendOctets(b, of.Location.Value.Append(nil)), of.CAMEL)
	b = appendOctets(appendOctets(b, []byte(of.Pool6)), []byte(of.PoolDelegated))
	for _, class := range of.Class {
		b = appendOctets(b, class)
	}
	return b
}

func appendOctets(b, value []byte) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(value))), value...)
}

// account reads that of a session; false if it cannot be read.
func (r *resuming) account() (*accounting, bool) {
	var in storedAccount
	if !r.record(&in) {
		return nil, false
	}
	of := &accounting{Account: &Account{Local: in.Local, Servers: in.Servers}, told: time.Duration(in.Told), interim: time.Duration(in.Interim), tariff: in.Tariff}
	of.Selection = gtp.Optional[gtp.SelectionMode]{Value: in.Selection, Present: in.Origin.Selection}
	of.Charging = gtp.Optional[uint16]{Value: in.Charging, Present: in.Origin.Charging}
	of.RAT = gtp.Optional[gtp.RATType]{Value: in.RAT, Present: in.Origin.RAT}
	of.IMEI = gtp.Optional[gtp.IMEI]{Value: in.IMEI, Present: in.Origin.IMEI}
	of.Network = gtp.Optional[gtp.PLMN]{Value: in.Network, Present: in.Origin.Network}
	of.TimeZone = gtp.Optional[gtp.TimeZone]{Value: in.TimeZone, Present: in.Origin.TimeZone}
	var octets [5][]byte
	for i := range octets {
		var ok bool
		if octets[i], ok = r.octets(); !ok {
			return nil, false
		}
	}
	of.User, of.CAMEL, of.Pool6, of.PoolDelegated = octets[0], octets[2], string(octets[3]), string(octets[4])
	if l, ok := gtp.ParseLocation(octets[1]); in.Origin.Location && ok {
		of.Location = gtp.Some(l)
	}
	for range in.Classes {
		class, ok := r.octets()
		if !ok {
			return nil, false
		}
		of.Class = append(of.Class, class)
	}
	return of, true
}

func (r *resuming) octets() ([]byte, bool) {
	var n uint16
	if !r.record(&n) {
		return nil, false
	}
	var b bytes.Buffer
	_, err := io.CopyN(&b, r.in, int64(n))
	return b.Bytes(), err == nil
}
