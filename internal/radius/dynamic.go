// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package radius

import (
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"layeh.com/radius"
)

// DynamicPort is the UDP port for requests to end or change sessions (RFC 5176 section 2.3).
const DynamicPort = 3799

// DynamicWindow is how far the Event-Timestamp of a request may be from now (RFC 5176 section 6.3).
const DynamicWindow = 300 * time.Second

// maxRemembered is how many requests are remembered, each until none that is the same would be taken
// for a new one: with a timestamp from the future, for two windows.
const (
	maxRemembered = 1 << 16
	remembered    = 2 * DynamicWindow
)

// DynamicClient may end and change sessions.
type DynamicClient struct {
	Address netip.Addr
	Secret  []byte
	// Undated takes its requests without an Event-Timestamp, which whoever is on the way can send again
	// when they are forgotten here.
	Undated bool
}

// Dynamic takes requests to end or change sessions (RFC 5176). Make one with [NewDynamic]. It is used
// by one caller at a time.
type Dynamic struct {
	clients map[netip.Addr]DynamicClient
	replies map[requestKey][]byte
	queue   []forgotten // in the order of their time
	stats   DynamicStats
}

// DynamicStats are counters; they only grow.
type DynamicStats struct {
	// Replies are those to requests by [ErrorCause], 0: acknowledged; Repeated are replies sent again.
	Disconnects, Changes map[ErrorCause]uint64
	Repeated             uint64
	Dropped              [NumReasons]uint64
}

// requestKey tells requests apart (RFC 5176 section 2.3). One with an Event-Timestamp is the same from wherever
// it comes, or who has seen it could send it again from another port (section 6.3).
type requestKey struct {
	from          netip.AddrPort
	id            byte
	authenticator [16]byte
}

// forgotten is when a request is.
type forgotten struct {
	key requestKey
	at  time.Time
}

// ErrorCause is why a request is refused (RFC 5176 section 3.5).
type ErrorCause uint32

// The causes; 0 is none.
const (
	UnsupportedAttribute    ErrorCause = 401
	MissingAttribute        ErrorCause = 402
	NASMismatch             ErrorCause = 403
	InvalidRequest          ErrorCause = 404
	UnsupportedService      ErrorCause = 405
	InvalidValue            ErrorCause = 407
	Prohibited              ErrorCause = 501
	SessionNotFound         ErrorCause = 503
	SessionNotRemovable     ErrorCause = 504
	ResourcesUnavailable    ErrorCause = 506
	MultipleSessionsRefused ErrorCause = 508
)

// ErrorCauses are all that a request is answered by, with 0 for none.
var ErrorCauses = []ErrorCause{0, UnsupportedAttribute, MissingAttribute, NASMismatch, InvalidRequest, UnsupportedService, InvalidValue, Prohibited, SessionNotFound, SessionNotRemovable, ResourcesUnavailable, MultipleSessionsRefused}

// String returns the cause's name, stable and fit for a counter's label.
func (c ErrorCause) String() string {
	switch c {
	case 0:
		return "acknowledged"
	case UnsupportedAttribute:
		return "unsupported_attribute"
	case MissingAttribute:
		return "missing_attribute"
	case NASMismatch:
		return "nas_mismatch"
	case InvalidRequest:
		return "invalid_request"
	case UnsupportedService:
		return "unsupported_service"
	case InvalidValue:
		return "invalid_value"
	case Prohibited:
		return "prohibited"
	case SessionNotFound:
		return "session_not_found"
	case SessionNotRemovable:
		return "session_not_removable"
	case ResourcesUnavailable:
		return "resources_unavailable"
	case MultipleSessionsRefused:
		return "multiple_sessions"
	}
	return fmt.Sprint(uint32(c))
}

// NewDynamic makes one for clients; there may be none.
func NewDynamic(clients []DynamicClient) (*Dynamic, error) {
	d := &Dynamic{replies: map[requestKey][]byte{}}
	d.stats.Disconnects, d.stats.Changes = map[ErrorCause]uint64{}, map[ErrorCause]uint64{}
	return d, d.SetClients(clients)
}

// SetClients sets who the clients are, or returns why that cannot be and keeps those that there are. A request
// that comes again has the same answer as before.
func (d *Dynamic) SetClients(list []DynamicClient) error {
	clients := map[netip.Addr]DynamicClient{}
	for _, one := range list {
		if !one.Address.IsValid() || len(one.Secret) == 0 {
			return fmt.Errorf("the client %s lacks an address or a secret", one.Address)
		}
		if _, twice := clients[one.Address]; twice {
			return fmt.Errorf("the client %s is there twice", one.Address)
		}
		clients[one.Address] = one
	}
	d.clients = clients
	return nil
}

// Apply does what a request of a client says, whole or not at all, and returns why not. Its Code is
// [DisconnectRequest] or [CoARequest].
type Apply func(code Code, attributes *Attributes) ErrorCause

// HandleUDP takes a datagram that came by a socket, and answers it. A request that comes again has the
// same answer and is not applied again.
func (d *Dynamic) HandleUDP(socket int, from netip.AddrPort, b []byte, now time.Time, out *Output, apply Apply) {
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	reply, r := d.receive(from, b, now, apply)
	if r != 0 {
		d.stats.Dropped[r]++
		return
	}
	out.SendUDP(socket, from, out.Copy(reply))
}

func (d *Dynamic) receive(from netip.AddrPort, b []byte, now time.Time, apply Apply) ([]byte, Reason) {
	client, ok := d.clients[from.Addr()]
	if !ok {
		return nil, Stranger
	}
	p, err := radius.Parse(b, client.Secret)
	if err != nil || p.Code != DisconnectRequest && p.Code != CoARequest {
		return nil, Malformed
	}
	b = b[:binary.BigEndian.Uint16(b[2:4])] // what follows is padding (RFC 2865 section 3)
	asked := Attributes{p.Attributes}
	if r := client.judge(b, &asked, now); r != 0 {
		return nil, r
	}
	d.forget(now)
	key := requestKey{id: p.Identifier, authenticator: p.Authenticator}
	if _, dated := asked.FindInteger(EventTimestamp); !dated {
		key.from = from
	}
	if reply, again := d.replies[key]; again {
		d.stats.Repeated++
		return reply, 0
	}
	if len(d.replies) >= maxRemembered {
		return nil, Crowded
	}
	if replyLen(&asked) > radius.MaxPacketLength {
		return nil, Malformed
	}
	cause := apply(p.Code, &asked)
	if p.Code == DisconnectRequest {
		d.stats.Disconnects[cause]++
	} else {
		d.stats.Changes[cause]++
	}
	reply := encodeReply(p, &asked, cause, now)
	d.replies[key] = reply
	d.queue = append(d.queue, forgotten{key, now.Add(remembered)})
	return reply, 0
}

// judge returns why a request is not the client's, or not of now.
func (c *DynamicClient) judge(b []byte, asked *Attributes, now time.Time) Reason {
	if !radius.IsAuthenticRequest(b, c.Secret) {
		return Authenticator
	}
	var zeros [md5.Size]byte // in place of the authenticator (RFC 5176 section 3.4)
	switch at, err := findSignature(b); {
	case err != nil:
		return Malformed
	case at != 0 && !signedBy(b, at, zeros[:], c.Secret):
		return Signature
	}
	sent, ok := asked.FindInteger(EventTimestamp)
	if !ok {
		if _, there := asked.Find(EventTimestamp); there {
			return Malformed
		}
		if !c.Undated {
			return Undated
		}
		return 0
	}
	if off := now.Sub(time.Unix(int64(sent), 0)); off > DynamicWindow || off < -DynamicWindow {
		return Stale
	}
	return 0
}

// forget forgets requests whose time has come.
func (d *Dynamic) forget(now time.Time) {
	for len(d.queue) > 0 && !now.Before(d.queue[0].at) {
		delete(d.replies, d.queue[0].key)
		d.queue = d.queue[1:]
	}
}

// Tick does what is due.
func (d *Dynamic) Tick(now time.Time, _ *Output) { d.forget(now) }

// Next is when Tick has something to do next; zero is never.
func (d *Dynamic) Next() time.Time {
	if len(d.queue) == 0 {
		return time.Time{}
	}
	return d.queue[0].at
}

// Stats returns the counters; the maps are d's own.
func (d *Dynamic) Stats() *DynamicStats { return &d.stats }

// replyLen is how long an answer can be: what proxies have added, a Message-Authenticator, an Error-Cause
// and an Event-Timestamp.
func replyLen(asked *Attributes) int {
	n := headerLen + signatureLen + 6 + 6
	for _, state := range asked.All(ProxyState) {
		n += 2 + len(state)
	}
	return n
}

// encodeReply writes the answer: signed if the request was, with what proxies have added to that (RFC
// 5176 sections 3.1 and 3.4).
func encodeReply(p *radius.Packet, asked *Attributes, cause ErrorCause, now time.Time) []byte {
	var to Attributes
	_, signed := asked.Find(MessageAuthenticator)
	if signed {
		to.Octets(MessageAuthenticator, make([]byte, md5.Size))
	}
	if cause != 0 {
		to.Integer(ErrorCauseType, uint32(cause))
	}
	to.Integer(EventTimestamp, uint32(now.Unix()))
	for _, state := range asked.All(ProxyState) {
		to.Octets(ProxyState, state)
	}
	b := make([]byte, 4, replyLen(asked))
	b[0], b[1] = byte(replyCode(p.Code, cause)), p.Identifier
	b = to.Append(append(b, p.Authenticator[:]...))
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	if signed {
		sign(b, headerLen, p.Secret)
	}
	sum := md5.Sum(append(b[:len(b):len(b)], p.Secret...)) // RFC 5176 section 2.3
	copy(b[4:], sum[:])
	return b[:len(b):len(b)]
}

func replyCode(asked Code, cause ErrorCause) Code {
	switch {
	case asked == DisconnectRequest && cause == 0:
		return DisconnectACK
	case asked == DisconnectRequest:
		return DisconnectNAK
	case cause == 0:
		return CoAACK
	}
	return CoANAK
}
