// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"io"
	"net/netip"
	"time"
)

// maxContexts is how many contexts an engine can have.
const maxContexts = 1 << 24

// Engine is one GGSN. Make one with [New]. It is used by one caller at a time.
type Engine struct {
	settings Settings
	stats    Stats
}

// New makes an engine without contexts. random must be a cryptographic source: TEIDs,
// interface identifiers and seeds come from it.
func New(s Settings, now time.Time, random io.Reader) (*Engine, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	return &Engine{settings: s}, nil
}

// Resume is [New] with the contexts that an earlier engine's [Engine.AppendState] has
// written: those that the settings still have room for. lost is how many were not
// taken over; if it is not 0, the restart counter must differ from the earlier one, so the
// engine raises it by one: see [Engine.RestartCounter].
func Resume(s Settings, state []byte, now time.Time, random io.Reader) (e *Engine, lost int, err error) {
	e, err = New(s, now, random)
	return e, 0, err
}

// RestartCounter returns the value that peers are told.
func (e *Engine) RestartCounter() uint8 { return e.settings.RestartCounter }

// AppendState appends all contexts and peers to b, for [Resume].
func (e *Engine) AppendState(b []byte, now time.Time) []byte { return b }

// Reconfigure changes the settings. Contexts stay, also those that have addresses of pools
// that are gone; those of access points that are gone are deleted in good order.
func (e *Engine) Reconfigure(s Settings, now time.Time, out *Output) error {
	if err := s.Check(); err != nil {
		return err
	}
	e.settings = s
	return nil
}

// HandleUDP takes a datagram that came by one of the node's sockets. The packet of a G-PDU
// is changed in place and goes out without a copy.
func (e *Engine) HandleUDP(socket Socket, from netip.AddrPort, payload []byte, now time.Time, out *Output) {
}

// HandleIP takes a packet for terminals that came from a network. The packet is changed.
func (e *Engine) HandleIP(vrf uint8, ip []byte, now time.Time, out *Output) {}

// Tick does what is due. What one call does is bounded: Next may be due at once.
func (e *Engine) Tick(now time.Time, out *Output) {}

// Next is when Tick has something to do next; zero is never.
func (e *Engine) Next() time.Time { return time.Time{} }

// Contexts calls f for the contexts that match, until it returns false. It looks at n
// records from the one given and returns where to go on, 0 behind the last: a long list is
// had in parts, between which packets pass.
func (e *Engine) Contexts(sel Selection, from uint32, n int, now time.Time, f func(ContextInfo) bool) (next uint32) {
	return 0
}

// Peers calls f for each node at the other end.
func (e *Engine) Peers(now time.Time, f func(PeerInfo)) {}

// Delete deletes the contexts that match, with all of their sessions, in good order: their
// SGSNs are told. It returns how many contexts; they end when the SGSN has answered or has
// been asked in vain.
func (e *Engine) Delete(sel Selection, now time.Time, out *Output) int { return 0 }

// Drain refuses contexts from now on, and deletes those that are there in good order, so
// many a second; a rate of 0 only refuses. An event says when all are gone.
func (e *Engine) Drain(rate int, now time.Time, out *Output) {}

// Undrain takes contexts again.
func (e *Engine) Undrain() {}

// Stats returns the counters.
func (e *Engine) Stats() Stats { return e.stats }

// Sizes returns how full the tables are.
func (e *Engine) Sizes(now time.Time) Sizes { return Sizes{} }
