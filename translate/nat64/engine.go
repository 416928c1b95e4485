// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/ipid"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// Engine is one NAT64. Make one with [New]. It is used by one caller at a time; the
// state may be read, and added to by a fast path, meanwhile.
type Engine struct {
	settings   Settings
	lifetimes  lifetimes
	translator *translate.Translator
	table      *state.Table
	epoch      time.Time
	random     *rand.Rand
	ids        translate.Identifier
	routers    *translate.Routers

	prefixes []slot6 // of pool6, by the number that sessions have
	pool     pool
	clients  clients
	closed   closed
	limited  limited
	// unlogged are the blocks that no event has told of, being their holders' by calculation.
	unlogged map[state.Block]bool
	// exhausted is until when no free block is looked for.
	exhausted [state.Transports]time.Duration
	stored    stored
	// fragments of packets to IPv4 and to IPv6: neither side takes the other's room.
	fragments6, fragments4 assemblies
	peers                  peers
	met                    peerIndex
	aliases, callers       aliases // of IPv6 clients, and of IPv4 clients
	errors                 errorLimits
	reports                translate.Reports
	sweep                  sweep
	waiting                Waiting
	stats                  Stats
}

// Waiting is told of stored SYNs, so that a fast path leaves SYNs of the IPv6 side that
// may answer one to the engine: when one of Z,z begins to wait, and when it ends.
type Waiting interface {
	Wait(peer netip.AddrPort)
	Done(peer netip.AddrPort)
}

// New makes an engine over a table, whose state is none of an earlier one's: see [Resume].
// epoch is the instant at which the clock of the session's stamps was zero, and random is
// where the seeds come from.
func New(s Settings, table *state.Table, epoch time.Time, random io.Reader) (*Engine, error) {
	e, err := newEngine(table, epoch, random)
	if err != nil {
		return nil, err
	}
	return e, e.start(s, random)
}

func newEngine(table *state.Table, epoch time.Time, random io.Reader) (*Engine, error) {
	if table == nil {
		return nil, errors.New("a NAT64 needs a table for its state")
	}
	var seed [32]byte
	if _, err := io.ReadFull(random, seed[:]); err != nil {
		return nil, fmt.Errorf("no random seed for the NAT64: %w", err)
	}
	ids, err := ipid.New(random)
	if err != nil {
		return nil, err
	}
	drawn := rand.New(rand.NewChaCha8(seed))
	return &Engine{
		table: table, epoch: epoch, unlogged: make(map[state.Block]bool),
		random: drawn, ids: ids.Next, routers: translate.NewRouters(drawn.Uint64()),
	}, nil
}

// SetWaiting names who is told of stored SYNs.
func (e *Engine) SetWaiting(w Waiting) { e.waiting = w }

// SetIDs has the engine take identifications from where a fast path takes them.
func (e *Engine) SetIDs(ids ipid.IDs) { e.ids = ids.Next }

// Stats returns the counters.
func (e *Engine) Stats() Stats { return e.stats }

// lifetimes are those of sessions, as [Settings.Lifetimes] returns them.
type lifetimes = [state.Transports][state.Statuses]uint32

// Lifetimes returns how long sessions live without a packet, in units of a stamp, by
// transport and state; for states that are none, 0.
func (s *Settings) Lifetimes() (units lifetimes) {
	t := &s.Timers
	units[state.UDP][state.Opened] = state.Units(t.UDP)
	units[state.ICMP][state.Opened] = state.Units(t.ICMP)
	tcp := &units[state.TCP]
	for _, status := range []state.Status{state.V4Init, state.V6Init} {
		tcp[status] = state.Units(t.opening())
	}
	for _, status := range []state.Status{state.BothFin, state.Trans} {
		tcp[status] = state.Units(t.TCPTransitory)
	}
	for _, status := range []state.Status{state.Established, state.V4Fin, state.V6Fin} {
		tcp[status] = state.Units(t.TCPEstablished)
	}
	return units
}
