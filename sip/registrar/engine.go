// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sip/aka"
	"github.com/isthmus-net/isthmus/sip/location"
	"github.com/isthmus-net/isthmus/sip/message"
)

var errNoChallenge = errors.New("no challenge can be made: the sequence numbers are used up, or there is no randomness")

// Engine is one registrar.
type Engine struct {
	settings  Settings
	directory directory
	auth      authenticator
	// routes seals what dialogs and terminals carry for longer than a process may live.
	routes        nonces
	routesChanged bool // since [Engine.Changed]
	table         *location.Table
	renamed       []string // keys of records that are kept under others now
	stats         Stats
}

// New makes a registrar without bindings. The random numbers, which must be good, are for keys,
// challenges and tags.
func New(s Settings, random io.Reader) (*Engine, error) {
	e := &Engine{table: location.New(s.Limits)}
	e.auth.random, e.auth.used = random, map[stamp]uint32{}
	e.auth.sqn, e.auth.changed, e.auth.held = map[string]aka.SQN{}, map[string]struct{}{}, map[string]held{}
	for _, key := range [][]byte{e.auth.key[:], e.routes.key[:]} {
		if _, err := io.ReadFull(random, key); err != nil {
			return nil, fmt.Errorf("no random key: %w", err)
		}
	}
	e.routesChanged = true
	return e, e.Reconfigure(s)
}

// Reconfigure sets other settings, or returns what is wrong with them and keeps the old ones.
// Bindings stay until they expire, and the numbers of SIMs for good.
func (e *Engine) Reconfigure(s Settings) error {
	d, err := newDirectory(s.Accounts)
	if err = errors.Join(s.check(), err); err != nil {
		return err
	}
	e.settings, e.directory = s, d
	e.auth.hosts = append(slices.Clone(s.Domains), s.Hosts...)
	e.auth.realm, e.auth.algorithms, e.auth.life, e.auth.most = s.Domains[0], s.Algorithms, s.NonceLife, s.MaxNonces
	gone := func(name string) bool { return d.byName[name] == nil }
	maps.DeleteFunc(e.auth.held, func(name string, _ held) bool { return gone(name) })
	e.table.Reconfigure(s.Limits)
	return nil
}

// Table holds the bindings.
func (e *Engine) Table() *location.Table { return e.table }

// Stats returns the counters.
func (e *Engine) Stats() Stats { return e.stats }

// Tick forgets what has expired.
func (e *Engine) Tick(now time.Time) { e.stats.Expired += uint64(e.table.Tick(now)) }

// Next is when Tick has something to do; zero: never.
func (e *Engine) Next() time.Time { return e.table.Next() }

// Source is where a request has come from.
type Source struct {
	// Flow is what the role knows the connection by, over which the request came directly from
	// its user agent; empty: there is none that lasts.
	Flow string
	// Holds reports whether a contact is reached by that, in place of its URI; nil: all are.
	Holds func(contact *message.Address) bool
}

// refuse counts a refusal and makes the response.
func (e *Engine) refuse(m *message.Message, why Reason, status int, reason string) *message.Message {
	e.stats.Refused[why]++
	return e.reply(m, status, reason)
}

// reply makes a response with a tag of its own.
func (e *Engine) reply(m *message.Message, status int, reason string) *message.Message {
	return message.Reply(m, status, reason, e.tag(m))
}

// tag is the same for the same request, so that a repetition gets the same answer (RFC 3261
// section 8.2.7), and tells strangers nothing.
func (e *Engine) tag(m *message.Message) string {
	v, _ := m.Via()
	code := e.auth.seal(stamp{}, []byte("tag"), []byte(m.CallID()), []byte(m.Get("From")), []byte(m.Get("CSeq")), []byte(v.Branch()))
	return fmt.Sprintf("%x", code[stampSize:stampSize+8])
}
