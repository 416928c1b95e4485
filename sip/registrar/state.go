// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/sip/aka"
	"github.com/isthmus-net/isthmus/sip/location"
)

// state is what a successor goes on from. Nonces are not part of it: a successor has a key of its
// own, and whoever answers with an old one gets another at once.
type state struct {
	Bindings json.RawMessage    `json:"bindings"`
	SQN      map[string]aka.SQN `json:"sqn"`
}

// State writes bindings and sequence numbers down for a successor.
func (e *Engine) State() ([]byte, error) {
	bindings, err := e.table.State()
	if err != nil {
		return nil, err
	}
	return json.Marshal(state{bindings, e.auth.sqn})
}

// Resume takes over what an engine with [Engine.State] has left, before the first request, and
// returns how many bindings are lost; keep says which flows are still there. After an error
// nothing has changed.
func (e *Engine) Resume(text []byte, keep func(flow string) bool, now time.Time) (lost int, err error) {
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return 0, fmt.Errorf("%w: %w", location.ErrState, err)
	}
	table, lost, err := location.Resume(e.settings.Limits, s.Bindings, keep, now)
	if err != nil {
		return 0, err
	}
	e.table = table
	for name, sqn := range s.SQN {
		if e.directory.byName[name] != nil && sqn <= aka.MaxSQN {
			e.auth.sqn[name] = sqn
		}
	}
	return lost, nil
}
