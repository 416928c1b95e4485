// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package radius

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"slices"
	"testing"
	"time"

	"layeh.com/radius"
)

// asker is who may end and change sessions, and its port.
var asker = netip.MustParseAddrPort("192.0.2.1:40000")

// Requests and answers, made by another program from the text of RFC 5176, with the secret xyzzy5461
// at the time of start.
var (
	// Disconnect: nemo, Event-Timestamp, two Proxy-States.
	goldenDisconnect    = octets("2807002cdd10f1cf090ad939f04314c6a8cb1d75 01066e656d6f 37066b0970c0 210870726f787931 21047032")
	goldenDisconnectACK = octets("290700268167d73de61f77d4839c9579346dbaed 37066b0970c0 210870726f787931 21047032")
	// CoA: Acct-Session-Id, Session-Timeout, Event-Timestamp, Message-Authenticator.
	goldenCoA    = octets("2b08003c7c5d1336cac16650cc2d5d10812d5c95 2c0a4330303030323031 1b0600000e10 37066b0970c0 5012526938183b90bcf29c9572f04ee81443")
	goldenCoANAK = octets("2d0800320d377ace345a8ea4dfaa39da70c7529f 50126aa31659e5e8a54d81b14a59a7240d00 6506000001f7 37066b0970c0")
	goldenCoAACK = octets("2c08002c7367b4fbae6067d65f8d847b65c4aee5 50129fd0694b5456c01389857d8306bb2b22 37066b0970c0")
)

func octets(s string) []byte {
	b, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(s), []byte(" "), nil)))
	if err != nil {
		panic(err)
	}
	return b
}

// dynamicWorld is a server of requests, in virtual time.
type dynamicWorld struct {
	*testing.T
	d       *Dynamic
	now     time.Time
	out     Output
	cause   ErrorCause // of the next request
	applied []Code
	last    Attributes
}

func newDynamicWorld(t *testing.T) *dynamicWorld {
	t.Helper()
	d, err := NewDynamic([]DynamicClient{{Address: asker.Addr(), Secret: secret}, {Address: second.Addr(), Secret: secret2, Undated: true}})
	if err != nil {
		t.Fatal(err)
	}
	return &dynamicWorld{T: t, d: d, now: start}
}

// handle hands a datagram over and returns the answer; nil: there is none.
func (w *dynamicWorld) handle(from netip.AddrPort, b []byte) []byte {
	w.Helper()
	w.out.Reset()
	w.d.HandleUDP(1, from, b, w.now, &w.out, func(code Code, a *Attributes) ErrorCause {
		w.applied, w.last = append(w.applied, code), *a
		return w.cause
	})
	if len(w.out.UDP) == 0 {
		return nil
	}
	if d := w.out.UDP[0]; len(w.out.UDP) != 1 || d.To != from || d.Socket != 1 {
		w.Fatalf("answers %+v", w.out.UDP)
	}
	return slices.Clone(w.out.UDP[0].Payload)
}

// dropped hands a datagram over that is to be dropped for a reason.
func (w *dynamicWorld) dropped(what string, from netip.AddrPort, b []byte, why Reason) {
	w.Helper()
	before, applied := w.d.stats.Dropped[why], len(w.applied)
	if got := w.handle(from, b); got != nil || w.d.stats.Dropped[why] != before+1 || len(w.applied) != applied {
		w.Errorf("%s: answered %x, dropped %v; want %v", what, got, w.d.stats.Dropped, why)
	}
}

// dynamicRequest makes a request; a zero time is no Event-Timestamp.
func dynamicRequest(code Code, id byte, secret []byte, at time.Time, more ...radius.Attribute) []byte {
	p := radius.Packet{Code: code, Identifier: id, Secret: secret}
	p.Add(UserName, radius.Attribute("nemo"))
	if !at.IsZero() {
		p.Add(EventTimestamp, radius.NewInteger(uint32(at.Unix())))
	}
	for _, state := range more {
		p.Add(ProxyState, state)
	}
	b, err := p.Encode()
	if err != nil {
		panic(err)
	}
	return b
}

// TestDynamicGolden takes and answers requests by their octets.
func TestDynamicGolden(t *testing.T) {
	for _, one := range []struct {
		what       string
		ask, reply []byte
		cause      ErrorCause
		code       Code
	}{
		{"disconnected", goldenDisconnect, goldenDisconnectACK, 0, DisconnectRequest},
		{"changed", goldenCoA, goldenCoAACK, 0, CoARequest},
		{"not found", goldenCoA, goldenCoANAK, SessionNotFound, CoARequest},
		{"with padding", append(slices.Clone(goldenCoA), 1, 2, 3), goldenCoAACK, 0, CoARequest},
	} {
		w := newDynamicWorld(t)
		w.cause = one.cause
		if got := w.handle(asker, one.ask); !bytes.Equal(got, one.reply) {
			t.Errorf("%s: %x\nwant %x", one.what, got, one.reply)
		}
		if !slices.Equal(w.applied, []Code{one.code}) {
			t.Errorf("%s: applied %v", one.what, w.applied)
		}
		of := map[Code]map[ErrorCause]uint64{DisconnectRequest: w.d.stats.Disconnects, CoARequest: w.d.stats.Changes}[one.code]
		if of[one.cause] != 1 {
			t.Errorf("%s: counted %+v", one.what, w.d.stats)
		}
	}
	w := newDynamicWorld(t)
	w.handle(asker, goldenCoA)
	if limit, ok := w.last.FindSeconds(SessionTimeout); !ok || limit != time.Hour {
		t.Errorf("it asks for %v", limit)
	}
}

// TestDynamicDropped drops what is not of a client, or not of now, and counts it by what is wrong.
func TestDynamicDropped(t *testing.T) {
	w := newDynamicWorld(t)
	flip := func(b []byte, at int) []byte {
		b = slices.Clone(b)
		b[at] ^= 1
		return b
	}
	resign := func(b []byte) []byte { // with a Message-Authenticator that is wrong, by who has the secret
		p, _ := radius.Parse(b, secret)
		b, _ = p.Encode()
		return b
	}
	two, _ := radius.Parse(goldenCoA, secret)
	two.Add(MessageAuthenticator, make(radius.Attribute, 16))
	twice, _ := two.Encode()
	oddTime, _ := radius.Parse(goldenDisconnect, secret)
	oddTime.Set(EventTimestamp, radius.Attribute{1})
	odd, _ := oddTime.Encode()
	w.dropped("a stranger", netip.MustParseAddrPort("192.0.2.99:3799"), goldenDisconnect, Stranger)
	w.dropped("cut short", asker, goldenDisconnect[:19], Malformed)
	w.dropped("a length beyond it", asker, goldenDisconnect[:30], Malformed)
	w.dropped("an attribute beyond it", asker, flip(goldenDisconnect, 21), Malformed)
	w.dropped("another code", asker, append([]byte{byte(AccountingRequest)}, goldenDisconnect[1:]...), Malformed)
	w.dropped("an answer", asker, goldenDisconnectACK, Malformed)
	w.dropped("another authenticator", asker, flip(goldenDisconnect, 4), Authenticator)
	w.dropped("another name", asker, flip(goldenDisconnect, 23), Authenticator)
	w.dropped("another secret", asker, dynamicRequest(DisconnectRequest, 1, secret2, start), Authenticator)
	w.dropped("a signature that is wrong", asker, resign(flip(goldenCoA, len(goldenCoA)-1)), Signature)
	w.dropped("two signatures", asker, twice, Malformed)
	w.dropped("an odd time", asker, odd, Malformed)
	w.dropped("no time", asker, dynamicRequest(DisconnectRequest, 1, secret, time.Time{}), Undated)
	w.dropped("too old", asker, dynamicRequest(DisconnectRequest, 1, secret, start.Add(-DynamicWindow-time.Second)), Stale)
	w.dropped("from the future", asker, dynamicRequest(DisconnectRequest, 1, secret, start.Add(DynamicWindow+time.Second)), Stale)
	for id, at := range []time.Time{start.Add(-DynamicWindow), start.Add(DynamicWindow)} {
		if w.handle(asker, dynamicRequest(CoARequest, byte(id), secret, at)) == nil {
			t.Errorf("at the edge of the window, %v: dropped %v", at, w.d.stats.Dropped)
		}
	}
	if w.handle(second, dynamicRequest(CoARequest, 1, secret2, time.Time{})) == nil {
		t.Errorf("a client that may leave the time out: dropped %v", w.d.stats.Dropped)
	}
}

// TestDynamicRepeated answers a request that comes again by the same octets, without applying it, until
// it would be too old, from whichever port of a client that has the secret; another identifier or content makes
// another request, and so does another port of one without a timestamp.
func TestDynamicRepeated(t *testing.T) {
	w := newDynamicWorld(t)
	w.cause = SessionNotFound
	ask := dynamicRequest(DisconnectRequest, 1, secret, start.Add(DynamicWindow))
	reply := w.handle(asker, ask)
	w.cause = 0
	w.now = start.Add(2 * DynamicWindow)
	w.now = w.now.Add(-time.Second)
	if again := w.handle(asker, ask); !bytes.Equal(again, reply) || len(w.applied) != 1 || w.d.stats.Repeated != 1 {
		t.Errorf("again: %x, want %x; applied %d times", again, reply, len(w.applied))
	}
	another := netip.AddrPortFrom(asker.Addr(), 40001)
	if replayed := w.handle(another, ask); !bytes.Equal(replayed, reply) || len(w.applied) != 1 || w.d.stats.Repeated != 2 {
		t.Errorf("replayed: %x, want %x; applied %d times", replayed, reply, len(w.applied))
	}
	w.handle(asker, dynamicRequest(DisconnectRequest, 2, secret, start.Add(DynamicWindow)))
	w.handle(asker, dynamicRequest(DisconnectRequest, 1, secret, start.Add(DynamicWindow-time.Second)))
	undated := dynamicRequest(DisconnectRequest, 1, secret2, time.Time{})
	w.handle(second, undated)
	w.handle(netip.AddrPortFrom(second.Addr(), 40001), undated)
	if len(w.applied) != 5 {
		t.Errorf("%d of 5 requests were applied", len(w.applied))
	}
	if next := w.d.Next(); !next.Equal(start.Add(2 * DynamicWindow)) {
		t.Errorf("the next time is %v", next)
	}
	w.now = start.Add(2*DynamicWindow + time.Second)
	w.dropped("too late", asker, ask, Stale)
	w.d.Tick(start.Add(4*DynamicWindow), &w.out)
	if len(w.d.replies) != 0 || len(w.d.queue) != 0 || !w.d.Next().IsZero() {
		t.Errorf("%d answers are remembered", len(w.d.replies))
	}
}

// TestDynamicBounded refuses new requests while as many are remembered as may be, and takes them when
// their time has come.
func TestDynamicBounded(t *testing.T) {
	w := newDynamicWorld(t)
	for n := range maxRemembered {
		key := requestKey{from: asker}
		binary.BigEndian.PutUint32(key.authenticator[:], uint32(n))
		w.d.replies[key] = nil
		w.d.queue = append(w.d.queue, forgotten{key, start.Add(remembered)})
	}
	w.dropped("one more", asker, goldenDisconnect, Crowded)
	w.now = start.Add(remembered)
	if w.handle(asker, dynamicRequest(DisconnectRequest, 1, secret, w.now)) == nil || len(w.d.replies) != 1 {
		t.Errorf("later: dropped %v, %d remembered", w.d.stats.Dropped, len(w.d.replies))
	}
}

// TestDynamicLongAnswer drops a request whose answer would not fit into a packet.
func TestDynamicLongAnswer(t *testing.T) {
	w := newDynamicWorld(t)
	states := func(n int) (list []radius.Attribute) {
		for range n {
			list = append(list, make(radius.Attribute, 253))
		}
		return list
	}
	w.dropped("too many", asker, dynamicRequest(DisconnectRequest, 1, secret, start, append(states(15), make(radius.Attribute, 237))...), Malformed)
	if got := w.handle(asker, dynamicRequest(DisconnectRequest, 1, secret, start, states(15)...)); len(got) != headerLen+6+15*255 {
		t.Errorf("an answer of %d octets; dropped %v", len(got), w.d.stats.Dropped)
	}
}

// TestDynamicClients refuses clients that nobody could be.
func TestDynamicClients(t *testing.T) {
	one := DynamicClient{Address: asker.Addr(), Secret: secret}
	for what, list := range map[string][]DynamicClient{
		"twice": {one, one}, "without a secret": {{Address: asker.Addr()}}, "without an address": {{Secret: secret}},
	} {
		if _, err := NewDynamic(list); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
}

// FuzzDynamic hands datagrams of any octets over, as they are and with the authenticator that they
// should have: none is applied that no client has made, and answers have their right authenticator.
func FuzzDynamic(f *testing.F) {
	for _, b := range [][]byte{goldenDisconnect, goldenCoA, goldenCoANAK, dynamicRequest(CoARequest, 3, secret, start, radius.Attribute("x"))} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		w := newDynamicWorld(t)
		if w.handle(asker, b); len(w.applied) > 0 && !radius.IsAuthenticRequest(b[:binary.BigEndian.Uint16(b[2:4])], secret) {
			t.Errorf("taken: %x", b)
		}
		p, err := radius.Parse(b, secret)
		if err != nil || p.Code != DisconnectRequest && p.Code != CoARequest {
			return
		}
		if b, err = p.Encode(); err != nil {
			return
		}
		if reply := w.handle(asker, b); reply != nil && !radius.IsAuthenticResponse(reply, b, secret) {
			t.Errorf("%x is answered by %x", b, reply)
		}
	})
}
