// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package radius

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Server is one that is asked, or told.
type Server struct {
	Address netip.AddrPort
	Secret  []byte
	// AnySigned takes answers to Access-Requests without a Message-Authenticator, which whoever
	// is on the way can forge (CVE-2024-3596).
	AnySigned bool
}

// Settings of a [Client]. [Defaults] fills what has a usual value.
type Settings struct {
	// Servers in their order: the first that lives is used. There may be none.
	Servers []Server
	// Timeout is how long the first answer is waited for; each time a request is sent again the
	// wait doubles (RFC 5080 section 2.2.1). Tries is how often it is sent to one server.
	Timeout time.Duration
	Tries   int
	// DeadTime is how long a server that has not answered is left alone; then one request tries it.
	DeadTime time.Duration
	// Sockets is how many ports requests are sent from, each with 256 identifiers for a server.
	Sockets int
}

// Defaults returns the settings with what has a usual value.
func Defaults() Settings {
	return Settings{Timeout: time.Second, Tries: 2, DeadTime: 30 * time.Second, Sockets: 16}
}

// maxSockets is how many ports a client may have in each family.
const maxSockets = 128

// Check returns what is wrong with the settings.
func (s *Settings) Check() error {
	switch {
	case s.Timeout <= 0 || s.Tries < 1 || s.DeadTime <= 0:
		return errors.New("a request needs a time to wait for its answer, and is sent once at least")
	case s.Sockets < 1 || s.Sockets > maxSockets:
		return fmt.Errorf("%d ports to send from: there must be 1 to %d", s.Sockets, maxSockets)
	}
	for i, a := range s.Servers {
		if !a.Address.IsValid() || a.Address.Port() == 0 || len(a.Secret) == 0 {
			return fmt.Errorf("the server %s lacks an address, a port or a secret", a.Address)
		}
		for _, b := range s.Servers[:i] {
			if a.Address == b.Address {
				return fmt.Errorf("the server %s is there twice", a.Address)
			}
		}
	}
	return nil
}

// identifiers are those of one port for one server.
const identifiers = 256

// server is what a client knows of one.
type server struct {
	Server
	slots []slot
	free  []uint16 // numbers of slots, a ring: what was used last is used again last
	first int
	count int

	window window
	queue  []*pending // that wait for room there, and those of these that do not any more

	gone   bool // from the settings
	dead   bool
	deadAt time.Time // until then, if it is dead
	heard  time.Time // an answer of it
	turn   uint64    // of the request that was sent to it last
	asked  time.Time // when it was
	back   uint64    // the turn when it was known to be back
	lost   int       // requests that wait since before that
	stats  ServerStats
}

// slot is an identifier at a port.
type slot struct {
	waiting  *pending // nil: none
	answered bool     // the last request was, and not given up
}

func newServer(s Server, sockets int) *server {
	n := sockets * identifiers
	made := &server{Server: s, slots: make([]slot, n), free: make([]uint16, n), count: n, window: newWindow()}
	for i := range made.free {
		made.free[i] = uint16(i) // requests in a row leave, and are answered, by one socket: in few calls of the kernel
	}
	return made
}

// take returns a slot that no request has.
func (s *server) take() (n int, ok bool) {
	if s.count == 0 {
		return 0, false
	}
	n = int(s.free[s.first])
	s.first, s.count = (s.first+1)%len(s.free), s.count-1
	return n, true
}

// give takes a slot back.
func (s *server) give(n int, answered bool) {
	s.slots[n] = slot{answered: answered}
	s.free[(s.first+s.count)%len(s.free)] = uint16(n)
	s.count++
}

// mayTry reports whether a request may be sent to the server. One that is dead lets one through
// when its time has come.
func (s *server) mayTry(now time.Time, deadTime time.Duration) bool {
	switch {
	case !s.dead:
		return true
	case now.Before(s.deadAt):
		return false
	}
	s.deadAt = now.Add(deadTime)
	return true
}

// ServerStats are counters of one server.
type ServerStats struct {
	// Sent are requests, Repeated those sent again, Answered those that an answer came for, and
	// GivenUp those that this server did not answer.
	Sent, Repeated, Answered, GivenUp uint64
}

// ServerInfo is one server for people.
type ServerInfo struct {
	Address netip.AddrPort
	Dead    bool
	Waiting int // requests that wait for its answer
	Stats   ServerStats
}
