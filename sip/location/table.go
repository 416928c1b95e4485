// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package location

import (
	"cmp"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/timerqueue"
)

// Limits bound a table.
type Limits struct {
	// Bindings are those of all addresses of record, PerAOR those of one.
	Bindings, PerAOR int
	// BindingSize is the length of a binding's texts, in octets.
	BindingSize int
}

// DefaultLimits are those of a table of a hundred thousand bindings.
func DefaultLimits() Limits { return Limits{Bindings: 100_000, PerAOR: 10, BindingSize: 2048} }

// Why a registration is refused. Nothing has changed then.
var (
	ErrOutOfOrder = errors.New("out_of_order")   // an earlier request of the same Call-ID
	ErrPerAOR     = errors.New("aor_full")       // Limits.PerAOR
	ErrFull       = errors.New("table_full")     // Limits.Bindings
	ErrTooLarge   = errors.New("binding_size")   // Limits.BindingSize
	ErrTwice      = errors.New("contact_twice")  // one contact is there twice
	ErrState      = errors.New("state_unusable") // of another version, or damaged
)

// record are the bindings of one address of record.
type record struct {
	aor             string
	bindings        []Binding
	timerqueue.Node // of when the first of them expires
}

// Table holds the bindings of all addresses of record.
type Table struct {
	limits  Limits
	records map[string]*record
	changed map[string]struct{} // since [Table.Changed]
	expiry  timerqueue.Queue[*record]
	count   int
}

// New makes an empty table.
func New(limits Limits) *Table {
	return &Table{limits: limits, records: map[string]*record{}, changed: map[string]struct{}{}}
}

// Reconfigure sets other limits. What is above them stays until it expires.
func (t *Table) Reconfigure(limits Limits) { t.limits = limits }

// Len returns how many addresses of record and bindings there are.
func (t *Table) Len() (aors, bindings int) { return len(t.records), t.count }

// Register changes the bindings of an address of record as a REGISTER asks for: all of it, or
// with an error nothing (RFC 3261 section 10.3, numbers 6 to 8).
func (t *Table) Register(aor string, r *Registration, now time.Time) error {
	t.Tick(now)
	var before []Binding
	if one := t.records[aor]; one != nil {
		before = one.bindings
	}
	after, err := t.apply(slices.Clone(before), r, now)
	switch added := len(after) - len(before); {
	case err != nil:
		return err
	case added > 0 && len(after) > t.limits.PerAOR:
		return ErrPerAOR
	case added > 0 && t.count+added > t.limits.Bindings:
		return ErrFull
	}
	t.set(aor, after)
	return nil
}

// apply makes the bindings that there will be.
func (t *Table) apply(list []Binding, r *Registration, now time.Time) ([]Binding, error) {
	if r.All {
		for i := range list {
			if !r.follows(&list[i]) {
				return nil, ErrOutOfOrder
			}
		}
		return nil, nil
	}
	// As many as there may be can go for as many others; comparing more is work for nothing, and so is what is too large.
	if len(r.Contacts) > 2*t.limits.PerAOR {
		return nil, ErrPerAOR
	}
	if slices.ContainsFunc(r.Contacts, func(c Contact) bool { return c.size(r) > t.limits.BindingSize }) {
		return nil, ErrTooLarge
	}
	for i := range r.Contacts {
		c := &r.Contacts[i]
		if slices.ContainsFunc(r.Contacts[:i], func(d Contact) bool {
			return c.same(&Binding{URI: d.URI, Instance: d.Instance, RegID: d.RegID}) && (c.RegID == 0) == (d.RegID == 0)
		}) {
			return nil, ErrTwice
		}
		at := slices.IndexFunc(list, func(b Binding) bool { return c.same(&b) })
		if at >= 0 && !r.follows(&list[at]) {
			return nil, ErrOutOfOrder
		}
		switch {
		case c.Lifetime <= 0 && at >= 0:
			list = slices.Delete(list, at, at+1)
		case c.Lifetime <= 0:
		case at >= 0:
			list[at] = r.binding(c, now)
		default:
			list = append(list, r.binding(c, now))
		}
	}
	return list, nil
}

// follows reports whether the request comes behind the one that a binding is of: with the same
// Call-ID its number must be higher, and there is no order among others.
func (r *Registration) follows(b *Binding) bool { return r.CallID != b.CallID || r.CSeq > b.CSeq }

func (r *Registration) binding(c *Contact, now time.Time) Binding {
	flow := r.Flow
	if c.ByURI {
		flow = ""
	}
	return Binding{
		URI: c.URI, Params: c.Params, Q: c.Q, Expires: now.Add(c.Lifetime), Updated: now, CallID: r.CallID, CSeq: r.CSeq,
		Instance: c.Instance, RegID: c.RegID, Path: r.Path, Flow: flow,
	}
}

// Lookup returns the bindings of an address of record, the preferred ones first, and of the same
// preference the latest.
func (t *Table) Lookup(aor string, now time.Time) []Binding {
	one := t.records[aor]
	if one == nil {
		return nil
	}
	live := slices.DeleteFunc(slices.Clone(one.bindings), func(b Binding) bool { return !b.Expires.After(now) })
	slices.SortStableFunc(live, func(a, b Binding) int {
		return cmp.Or(cmp.Compare(b.Q, a.Q), b.Updated.Compare(a.Updated))
	})
	return live
}

// Remove removes the bindings of an address of record that match, and returns their number.
func (t *Table) Remove(aor string, match func(*Binding) bool) (removed int) {
	one := t.records[aor]
	if one == nil {
		return 0
	}
	rest := slices.DeleteFunc(slices.Clone(one.bindings), func(b Binding) bool { return match(&b) })
	removed = len(one.bindings) - len(rest)
	if removed > 0 {
		t.set(aor, rest)
	}
	return removed
}

// Addresses are the addresses of record that have bindings, in no order. The table may change between two of
// them: what then comes may be left out.
func (t *Table) Addresses() iter.Seq[string] { return maps.Keys(t.records) }

// Bindings are those of an address of record. They must not be changed; the table changes none either, but has
// others then.
func (t *Table) Bindings(aor string) []Binding {
	if one := t.records[aor]; one != nil {
		return one.bindings
	}
	return nil
}

// Tick forgets what has expired, and returns how many bindings that were.
func (t *Table) Tick(now time.Time) (expired int) {
	for one, ok := t.expiry.Due(now); ok; one, ok = t.expiry.Due(now) {
		expired += t.Remove(one.aor, func(b *Binding) bool { return !b.Expires.After(now) })
	}
	return expired
}

// Next is when the next binding expires; zero: there is none.
func (t *Table) Next() time.Time { return t.expiry.Next() }

// set replaces the bindings of an address of record.
func (t *Table) set(aor string, bindings []Binding) {
	one := t.records[aor]
	if one == nil && len(bindings) == 0 {
		return
	}
	t.changed[aor] = struct{}{}
	switch {
	case one == nil:
		one = &record{aor: aor}
		t.records[aor] = one
		one.put(bindings, t)
	case len(bindings) == 0:
		t.expiry.Stop(one)
		t.count -= len(one.bindings)
		delete(t.records, aor)
	default:
		one.put(bindings, t)
	}
}

func (r *record) put(bindings []Binding, t *Table) {
	t.count += len(bindings) - len(r.bindings)
	r.bindings = bindings
	t.expiry.Set(r, slices.MinFunc(bindings, func(a, b Binding) int { return a.Expires.Compare(b.Expires) }).Expires)
}
