// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/sip/aka"
	"github.com/isthmus-net/isthmus/sip/location"
)

// What a successor goes on from are records by keys: bindings by addresses of record, sequence
// numbers by the names of accounts, and the key of routes. Nonces are not part of it: a successor
// has a key of its own, and whoever answers with an old one gets another at once.
const (
	bindingsOf = "bindings "
	numberOf   = "sqn "
	routeKey   = "routes"
)

// Changed calls f with each record that has changed since it was called last; nil: it is gone.
// Who writes these down before anything is sent loses nothing when the process is killed.
func (e *Engine) Changed(f func(key string, record []byte)) {
	e.table.Changed(func(aor string, state []byte) { f(bindingsOf+aor, state) })
	for _, key := range e.renamed {
		f(key, nil)
	}
	e.renamed = nil
	for name := range e.auth.changed {
		f(numberOf+name, strconv.AppendUint(nil, uint64(e.auth.sqn[name]), 10))
	}
	clear(e.auth.changed)
	if e.routesChanged {
		f(routeKey, e.routes.key[:])
		e.routesChanged = false
	}
}

// ChangeAll has [Engine.Changed] report everything again, since what it has reported was lost.
func (e *Engine) ChangeAll() {
	e.table.ChangeAll()
	for name := range e.auth.sqn {
		e.auth.changed[name] = struct{}{}
	}
	e.routesChanged = true
}

// Restore takes over a record of an engine before, before the first request, and returns how many
// bindings are lost; keep says which flows are still there.
func (e *Engine) Restore(key string, record []byte, keep func(flow string) bool, now time.Time) (lost int, err error) {
	if aor, ok := strings.CutPrefix(key, bindingsOf); ok {
		if one := oneScheme(aor); one != aor { // earlier versions kept those of sips apart
			e.renamed, aor = append(e.renamed, key), one
		}
		return e.table.Restore(aor, record, keep, now)
	}
	if name, ok := strings.CutPrefix(key, numberOf); ok {
		sqn, err := strconv.ParseUint(string(record), 10, 48)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", location.ErrState, err)
		}
		e.auth.sqn[name] = max(e.auth.sqn[name], aka.SQN(sqn))
		return 0, nil
	}
	if key == routeKey && len(record) == len(e.routes.key) {
		copy(e.routes.key[:], record)
		return 0, nil
	}
	return 0, location.ErrState
}

// skipped is how many sequence numbers are left out where some may have been lost.
const skipped = 64

// SkipNumbers has all sequence numbers begin further on, since the last ones before a crash may
// not have been written down: none is used twice (TS 33.102 annex C.1.2).
func (e *Engine) SkipNumbers() {
	for name, a := range e.directory.byName {
		if a.Milenage == nil {
			continue
		}
		sqn := e.auth.last(&a.Account)
		for range skipped {
			sqn, _ = sqn.Next()
		}
		e.auth.count(name, sqn)
	}
}
