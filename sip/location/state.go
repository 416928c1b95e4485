// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package location

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
)

// stateVersion is that of what AppendState writes.
const stateVersion = 1

// state is a table as it is kept.
type state struct {
	Version int                  `json:"version"`
	AORs    map[string][]written `json:"aors"`
}

// written is a binding as it is kept: its contact as the field was.
type written struct {
	Contact  string    `json:"contact"`
	Q        uint16    `json:"q"`
	Expires  time.Time `json:"expires"`
	Updated  time.Time `json:"updated"`
	CallID   string    `json:"call_id"`
	CSeq     uint32    `json:"cseq"`
	Instance string    `json:"instance,omitempty"`
	RegID    uint32    `json:"reg_id,omitempty"`
	Path     []string  `json:"path,omitempty"`
	Flow     string    `json:"flow,omitempty"`
}

// State writes the table down for a successor.
func (t *Table) State() ([]byte, error) {
	s := state{Version: stateVersion, AORs: map[string][]written{}}
	for aor, one := range t.records {
		for _, b := range one.bindings {
			s.AORs[aor] = append(s.AORs[aor], written{
				message.Address{URI: b.URI, Params: b.Params}.String(), b.Q, b.Expires, b.Updated, b.CallID, b.CSeq, b.Instance, b.RegID, b.Path, b.Flow,
			})
		}
	}
	return json.Marshal(s)
}

// Resume takes over what a table has written, as far as the limits allow, and returns how many
// bindings that have not expired are lost. Bindings of connections go with the process that had
// these; keep says which flows are still there.
func Resume(limits Limits, text []byte, keep func(flow string) bool, now time.Time) (t *Table, lost int, err error) {
	var s state
	if err := json.Unmarshal(text, &s); err != nil || s.Version != stateVersion {
		return nil, 0, ErrState
	}
	t = New(limits)
	for aor, list := range s.AORs {
		var bindings []Binding
		for i := range list {
			b, err := list[i].binding()
			if err != nil {
				return nil, 0, fmt.Errorf("%w: %w", ErrState, err)
			}
			switch {
			case !b.Expires.After(now):
			case b.Flow != "" && !keep(b.Flow), len(bindings) >= limits.PerAOR, t.count+len(bindings) >= limits.Bindings:
				lost++
			default:
				bindings = append(bindings, b)
			}
		}
		t.set(aor, bindings)
	}
	return t, lost, nil
}

func (w *written) binding() (Binding, error) {
	a, err := message.ParseAddress(w.Contact)
	return Binding{
		URI: a.URI, Params: a.Params, Q: w.Q, Expires: w.Expires, Updated: w.Updated, CallID: w.CallID, CSeq: w.CSeq,
		Instance: w.Instance, RegID: w.RegID, Path: w.Path, Flow: w.Flow,
	}, err
}
