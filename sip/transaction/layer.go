// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/internal/timerqueue"
	"github.com/isthmus-net/isthmus/sip/message"
)

// Settings are timers and bounds.
type Settings struct {
	// T1 estimates the round trip, T2 is the longest time between two repetitions, T4 the time
	// that a message may live in the network (RFC 3261 section 17.1.2.2).
	T1, T2, T4 time.Duration
	// Servers and Clients bound transactions of each kind, PerSource the Servers of one IPv4
	// address or IPv6 /64.
	Servers, Clients, PerSource int
}

// Defaults are those of RFC 3261, with room for some thousand calls at a time.
func Defaults() Settings {
	return Settings{T1: 500 * time.Millisecond, T2: 4 * time.Second, T4: 5 * time.Second, Servers: 50_000, Clients: 50_000, PerSource: 10_000}
}

// Layer holds the transactions of one user.
type Layer struct {
	settings Settings
	servers  map[string]*Server
	clients  map[string]*Client
	sources  map[netip.Prefix]int
	avoided  map[server]time.Time     // until when
	timers   timerqueue.Queue[*Timer] // of transactions and of what the user waits for
	started  uint64                   // clients until now, which orders them
	stats    Stats
	spared   int // servers

	// Reserved reports whether a request may take one of the last quarter of Settings.Servers; nil: all may.
	Reserved func(*message.Message) bool
}

// Stats counts what a layer has done.
type Stats struct {
	// Repeated are messages that were sent again, Absorbed those that have come again.
	Repeated, Absorbed uint64
	// Timeouts are requests without a response and responses without an ACK, Strays responses to
	// no request, Overloads requests above Settings.Servers, SourceOverloads above PerSource, and
	// Unsent those of the user above Settings.Clients.
	Timeouts, Strays, Overloads, SourceOverloads, Unsent uint64
}

// New makes a layer without transactions.
func New(s Settings) *Layer {
	return &Layer{settings: s, servers: map[string]*Server{}, clients: map[string]*Client{}, sources: map[netip.Prefix]int{}, avoided: map[server]time.Time{}}
}

// Reconfigure sets other settings for transactions to come.
func (l *Layer) Reconfigure(s Settings) { l.settings = s }

// Len returns how many transactions there are.
func (l *Layer) Len() (servers, clients int) { return len(l.servers), len(l.clients) }

// Spared returns how many servers have senders that are spared.
func (l *Layer) Spared() int { return l.spared }

// Stats returns the counters.
func (l *Layer) Stats() Stats { return l.stats }

// Handle takes a message that [message.Parse] has found no fault with. In a request, it notes where
// that has come from.
func (l *Layer) Handle(m *message.Message, from Target, now time.Time, out *Output) {
	if m.IsRequest() {
		l.request(m, Receive(m, from), now, out)
	} else {
		l.response(m, from, now, out)
	}
}

// serverKey matches requests with transactions (RFC 3261 section 17.2.3). An ACK, and what CANCEL
// is about, is a matter of the INVITE.
func serverKey(m *message.Message, method string) string {
	v, _ := m.Via()
	if branch := v.Branch(); len(branch) > len(message.Cookie) && strings.EqualFold(branch[:len(message.Cookie)], message.Cookie) {
		return method + " " + v.SentBy() + " " + branch
	}
	// RFC 2543: requests are the same if these are.
	from, _ := m.From()
	number, _, _ := m.CSeq()
	return strings.Join([]string{method, m.URI, from.Tag(), m.CallID(), strconv.FormatUint(uint64(number), 10), m.Get("Via")}, "\n")
}

// clientKey matches responses with transactions (section 17.1.3).
func clientKey(m *message.Message) string {
	v, _ := m.Via()
	_, method, _ := m.CSeq()
	return method + " " + v.Branch()
}

// area is what the transactions of one source are counted by.
func area(a netip.Addr) netip.Prefix {
	a = a.Unmap()
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // none where there is no address
	return p
}
