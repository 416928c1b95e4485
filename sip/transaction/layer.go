// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"cmp"
	"container/heap"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Transport is how messages travel.
type Transport uint8

// Transports.
const (
	UDP Transport = iota
	TCP
	TLS
)

var transportNames = [...]string{UDP: "UDP", TCP: "TCP", TLS: "TLS"}

// String is the transport as a Via header has it.
func (t Transport) String() string { return transportNames[t] }

// Reliable reports whether the transport repeats by itself what was lost.
func (t Transport) Reliable() bool { return t != UDP }

// ParseTransport reads a transport's name, in whatever case.
func ParseTransport(name string) (Transport, bool) {
	i := slices.Index(transportNames[:], strings.ToUpper(name))
	return Transport(max(i, 0)), i >= 0
}

// Hop is one hop of a message, as seen from here.
type Hop struct {
	// Socket is the number that the layer's owner gave the sockets of a local address.
	Socket    int
	Transport Transport
	Remote    netip.AddrPort
}

// Packet is a message that is to be sent.
type Packet struct {
	Hop
	Data []byte
}

// Output takes what is to be sent.
type Output struct{ Packets []Packet }

// Send appends a packet.
func (o *Output) Send(h Hop, data []byte) { o.Packets = append(o.Packets, Packet{h, data}) }

// What ends a request without a response.
var (
	// ErrTimeout: no one answered (timers B and F), which stands for a 408.
	ErrTimeout = errors.New("no answer in time")
	// ErrTransport: the message cannot leave or the address that it left from is gone,
	// which stands for a 503 (RFC 3261 section 8.1.3.1).
	ErrTransport = errors.New("transport error")
	// ErrBusy: the table of transactions is full.
	ErrBusy = errors.New("too many transactions")
)

// Settings are timers and bounds; the zero value of each is the default.
type Settings struct {
	// T1, T2 and T4 are those of RFC 3261 table 4.
	T1, T2, T4 time.Duration
	// FirstRepeats are further repeats of a request before the one after T1, as times since
	// the request was first sent. RFC 3261 section 17.1.1.2 allows fewer than T1 in closed
	// networks alone; none is the default.
	FirstRepeats []time.Duration
	// Max is the most client transactions, and the most server transactions, at a time.
	Max int
}

// Defaults of Settings.
const (
	DefaultT1  = 500 * time.Millisecond
	DefaultT2  = 4 * time.Second
	DefaultT4  = 5 * time.Second
	DefaultMax = 65536
)

// timerD is how long a client transaction absorbs repeats of a final response by UDP.
const timerD = 32 * time.Second

// tryingAfter is when an INVITE that no one has answered is answered by 100 (section 17.2.1).
const tryingAfter = 200 * time.Millisecond

// Layer holds the transactions of an element. It is for one thread at a time.
type Layer struct {
	set     Settings
	clients map[clientKey]*Client
	servers map[serverKey]*Server
	queue   queue  // of transactions and of what the layer's owner waits for
	started uint64 // transactions until now, which orders them
	stats   Stats
}

// Stats count what went past the layer.
type Stats struct {
	Requests, Repeats, Timeouts      uint64
	AbsorbedRequests, StrayResponses uint64
	RefusedClients, RefusedServers   uint64
}

// New makes a layer.
func New(s Settings) *Layer {
	s.T1 = cmp.Or(s.T1, DefaultT1)
	s.T2 = cmp.Or(s.T2, DefaultT2)
	s.T4 = cmp.Or(s.T4, DefaultT4)
	s.Max = cmp.Or(s.Max, DefaultMax)
	return &Layer{set: s, clients: map[clientKey]*Client{}, servers: map[serverKey]*Server{}}
}

// T1 is the estimate of the round trip that all timers stand on.
func (l *Layer) T1() time.Duration { return l.set.T1 }

// T2 is the longest interval between repeats of what is no INVITE.
func (l *Layer) T2() time.Duration { return l.set.T2 }

// Lifetime is 64*T1, for which most things of a transaction are kept.
func (l *Layer) Lifetime() time.Duration { return 64 * l.set.T1 }

// Stats returns the counters.
func (l *Layer) Stats() Stats { return l.stats }

// Len is the number of transactions.
func (l *Layer) Len() int { return len(l.clients) + len(l.servers) }

// Next is when Tick has something to do; zero is never.
func (l *Layer) Next() time.Time {
	if len(l.queue) == 0 {
		return time.Time{}
	}
	return l.queue[0].at
}

// Tick does what is due.
func (l *Layer) Tick(now time.Time, out *Output) {
	for len(l.queue) > 0 && !l.queue[0].at.After(now) {
		heap.Pop(&l.queue).(*Timer).Fire(now, out)
	}
}

// FailSocket ends all requests that wait for an answer to an address that is gone. It is a
// transport error for each (RFC 3261 section 17.1.4), in the order in which they were sent.
func (l *Layer) FailSocket(socket int, now time.Time, out *Output) {
	l.failWhere(func(h Hop) bool { return h.Socket == socket }, now, out)
}

// FailHop ends all requests that wait for an answer by a hop, whose connection broke or whose
// far end was reported unreachable.
func (l *Layer) FailHop(h Hop, now time.Time, out *Output) {
	l.failWhere(func(of Hop) bool { return of == h }, now, out)
}

// Unanswered returns the requests by a hop to which nothing has come yet, oldest first.
func (l *Layer) Unanswered(h Hop) []*Client {
	return l.sorted(func(c *Client) bool { return c.state == calling && c.Hop == h })
}

func (l *Layer) sorted(match func(*Client) bool) []*Client {
	var found []*Client
	for _, c := range l.clients {
		if match(c) {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b *Client) int { return cmp.Compare(a.number, b.number) })
	return found
}

func (l *Layer) failWhere(match func(Hop) bool, now time.Time, out *Output) {
	for _, c := range l.sorted(func(c *Client) bool { return c.Waiting() && match(c.Hop) }) {
		if c.Waiting() { // the end of another may have ended it
			l.Fail(c, ErrTransport, now, out)
		}
	}
}

// MoveServers has the responses of transactions whose socket is gone leave by another: where
// a response comes from is not looked at, where it goes the request has said.
func (l *Layer) MoveServers(gone func(socket int) bool, to int) {
	for _, s := range l.servers {
		if gone(s.Hop.Socket) {
			s.Hop.Socket = to
		}
	}
}
