// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package location

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
)

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

// Changed calls f with the addresses of record whose bindings have changed since it was called
// last, each with what [Table.Restore] takes of it; nil: no binding is left.
func (t *Table) Changed(f func(aor string, state []byte)) {
	for aor := range t.changed {
		var state []byte
		if one := t.records[aor]; one != nil {
			list := make([]written, len(one.bindings))
			for i := range one.bindings {
				b := &one.bindings[i]
				list[i] = written{
					message.Address{URI: b.URI, Params: b.Params}.String(), b.Q, b.Expires, b.Updated, b.CallID, b.CSeq, b.Instance, b.RegID, b.Path, b.Flow,
				}
			}
			state, _ = json.Marshal(list) // of plain values
		}
		f(aor, state)
	}
	clear(t.changed)
}

// ChangeAll has [Table.Changed] report all bindings again.
func (t *Table) ChangeAll() {
	for aor := range t.records {
		t.changed[aor] = struct{}{}
	}
}

// Restore takes over the bindings that another table had of an address of record, beside those that
// are there, as far as the limits allow, and returns how many that have not expired are lost; of one
// contact the later binding stays. Keep says which connections are still there: without its own a flow
// of RFC 5626 is lost, and any other binding is reached by its contact.
func (t *Table) Restore(aor string, state []byte, keep func(flow string) bool, now time.Time) (lost int, err error) {
	var list []written
	if err := json.Unmarshal(state, &list); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrState, err)
	}
	before := t.Bindings(aor)
	bindings := slices.Clone(before)
	for i := range list {
		b, err := list[i].binding()
		if err != nil {
			return 0, fmt.Errorf("%w: %w", ErrState, err)
		}
		apart := b.Flow != "" && !keep(b.Flow)
		if apart {
			b.Flow = ""
		}
		at := slices.IndexFunc(bindings, b.sameContact)
		switch {
		case !b.Expires.After(now):
		case apart && b.RegID != 0:
			lost++
		case at >= 0:
			if b.Updated.After(bindings[at].Updated) {
				bindings[at] = b
			}
		case len(bindings) >= t.limits.PerAOR, t.count+len(bindings)-len(before) >= t.limits.Bindings:
			lost++
		default:
			bindings = append(bindings, b)
		}
	}
	t.set(aor, bindings)
	return lost, nil
}

func (w *written) binding() (Binding, error) {
	a, err := message.ParseAddress(w.Contact)
	return Binding{
		URI: a.URI, Params: a.Params, Q: w.Q, Expires: w.Expires, Updated: w.Updated, CallID: w.CallID, CSeq: w.CSeq,
		Instance: w.Instance, RegID: w.RegID, Path: w.Path, Flow: w.Flow,
	}, err
}
