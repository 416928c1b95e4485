// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/internal/places"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/registrar"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// streams are the connections over TCP and TLS.
type streams struct {
	r        *Registrar
	counters streamCounters
	// How long a connection may be silent, a message may come, and a connection may take to
	// open, in nanoseconds.
	idle, message, connect atomic.Int64
	dials                  chan struct{} // those that are being opened, at a time

	mu     sync.Mutex // guards what follows; the loop's mutex is taken before it, never after
	places *places.Places
	byID   map[uint64]*stream
	// byRemote are the last connection with each remote end: by TLS of those alone that were opened here, for
	// whoever has come has not proved who he is (RFC 5923 section 9.2).
	byRemote map[remote]*stream
	last     uint64
	ended    bool
}

// remote is the other end of a connection, by the name that it has proved by TLS: one address may be that of several
// servers (RFC 5923 section 8.1).
type remote struct {
	transport string
	at        netip.AddrPort
	name      string
}

func remoteOf(t transaction.Target) remote { return remote{t.Transport, t.Remote, t.Name} }

const (
	// leastStay is how long a place is never taken for another of the same source.
	leastStay = time.Second
	// maxDials is how many connections are opened at a time, each on a thread of its own.
	maxDials = 256
)

func (s *streams) open(r *Registrar, cfg *Settings) {
	s.r, s.dials = r, make(chan struct{}, maxDials)
	s.byID, s.byRemote = map[uint64]*stream{}, map[remote]*stream{}
	// No number is one that an earlier process has used.
	s.last = uint64(time.Now().UnixNano())
	s.places = places.New(cfg.MaxConnections, cfg.ConnectionsPerSource, leastStay)
	s.set(cfg)
}

// set takes limits.
func (s *streams) set(cfg *Settings) {
	s.idle.Store(int64(cfg.IdleTimeout))
	s.message.Store(int64(cfg.MessageTimeout))
	s.connect.Store(int64(cfg.ConnectTimeout))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places.SetLimit(cfg.MaxConnections, cfg.ConnectionsPerSource)
	s.places.Shrink()
}

// area is what connections of one source are counted by: an IPv4 address or an IPv6 /64.
func area(a netip.Addr) netip.Addr {
	if a.Is4() {
		return a
	}
	p, _ := a.Prefix(64)
	return p.Addr()
}

// enter makes a stream, which was opened here or has come, and takes a place for it; nil: there is none. s.mu is held.
func (s *streams) enter(at transaction.Target, opened bool) *stream {
	if s.ended {
		return nil
	}
	one := newStream(s)
	end := func(places.Reason) {
		s.counters.gaveWay.Add(1)
		one.end()
	}
	if one.place, _ = s.places.Enter(area(at.Remote.Addr()), time.Now(), end); one.place == nil {
		return nil
	}
	s.last++
	one.at = at
	one.at.Connection = s.last
	s.byID[s.last] = one
	if opened || at.Transport != "TLS" {
		s.byRemote[remoteOf(at)] = one
	}
	return one
}

// leave forgets a stream, and returns the targets of requests that went by it.
func (s *streams) leave(one *stream) []transaction.Target {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places.Leave(one.place)
	delete(s.byID, one.at.Connection)
	if s.byRemote[remoteOf(one.at)] == one {
		delete(s.byRemote, remoteOf(one.at))
	}
	return one.requests
}

// accepted serves a connection that has come, or closes it.
func (s *streams) accepted(l registrar.Listener, conn net.Conn, from netip.AddrPort) {
	s.mu.Lock()
	one := s.enter(transaction.Target{Transport: l.Transport, Local: l.Address, Remote: from}, false)
	s.mu.Unlock()
	if one == nil {
		s.counters.refused.Add(1)
		_ = conn.Close()
		return
	}
	s.counters.accepted.Add(1)
	s.r.pending.Go(func() { one.serve(conn) })
}

// find returns the connection of a target; nil: there is none. s.mu is held.
func (s *streams) find(to transaction.Target) *stream {
	if to.Connection == 0 {
		return s.byRemote[remoteOf(to)]
	}
	one := s.byID[to.Connection]
	if one == nil {
		return nil
	}
	if to.Name = one.at.Name; one.at != to { // flows have no name
		return nil
	}
	return one
}

// connected reports whether a connection is still there.
func (s *streams) connected(t transaction.Target) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(t) != nil
}

// send queues a message for the connection of its target, or for a new one. False: there is no way.
func (s *streams) send(m *transaction.Send) bool {
	text := m.Message.Append(nil)
	to := m.To
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.find(to)
	if one == nil {
		if to.Connection != 0 && m.Message.IsRequest() {
			return false
		}
		if to.Connection != 0 {
			to = replyTo(m.Message, to)
			one = s.find(to)
		}
	}
	if one == nil {
		if one = s.enter(to, true); one == nil {
			s.counters.refused.Add(1)
			return false
		}
		s.r.pending.Go(one.dial)
	}
	if m.Message.IsRequest() && !slices.Contains(one.requests, m.To) {
		one.requests = append(one.requests, m.To)
	}
	return one.queue(text)
}

// replyTo is where a response goes whose connection is gone: to the port that the sender has named, of
// the address that it came from (RFC 3261 section 18.2.2). A sender with a name proves that one by TLS (RFC 5922).
func replyTo(m *message.Message, to transaction.Target) transaction.Target {
	port := uint16(sipPort)
	if to.Transport == "TLS" {
		port = sipsPort
	}
	v, _ := m.Via()
	if v.Port != 0 {
		port = v.Port
	}
	if _, err := netip.ParseAddr(v.Host); err != nil && to.Transport == "TLS" {
		to.Name = v.Host
	}
	to.Connection, to.Remote = 0, netip.AddrPortFrom(to.Remote.Addr(), port)
	return to
}

// use notes that a connection is in use, so that idler ones are given up before it.
func (s *streams) use(one *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places.Use(one.place, time.Now())
}

// count is how many there are.
func (s *streams) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.places.Len()
}

// closeAll ends them, and lets none begin.
func (s *streams) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, one := range s.byID {
		one.end()
	}
}
