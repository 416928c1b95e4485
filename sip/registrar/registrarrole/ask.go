// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/sip/location"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/registrar"
)

// maxRows is how many rows a part has at most.
const maxRows = 5000

// step is how many addresses of record are looked at while messages wait: to copy and sort all that there may
// be would keep them waiting for long, as often as anyone asks who may.
const step = 256

// aor is the key of an address of record as people write it: "sip:alice@example.net", or without the
// scheme.
func aor(text string) (string, error) {
	u, err := message.ParseURI(text)
	if err != nil || !u.IsSIP() && u.Scheme != "tel" {
		u, err = message.ParseURI("sip:" + text)
	}
	key, ok := registrar.AOR(&u)
	if err != nil || !ok {
		return "", fmt.Errorf("%q is no address of record: write it like sip:alice@example.net", text)
	}
	return key, nil
}

// list lists a part of the bindings.
func (r *Registrar) list(a listArguments) (list Bindings, err error) {
	list.Bindings = []Binding{}
	if a.Limit < 1 || a.Limit > maxRows {
		return list, fmt.Errorf("limit must be a number from 1 to %d", maxRows)
	}
	hold := func(f func(*location.Table)) {
		r.do(func(p *registrar.Proxy, _ time.Time, _ *registrar.Output) { f(p.Table()) })
	}
	var of []string
	if a.Address == "" {
		of = addresses(hold)
	} else {
		key, err := aor(a.Address)
		if err != nil {
			return list, err
		}
		of = []string{key}
	}
	list.fill(of, a.After, a.Limit, hold)
	return list, nil
}

// addresses are all addresses of record, in their order. hold has the table to itself, each time for one step.
func addresses(hold func(func(*location.Table))) (all []string) {
	var next func() (string, bool)
	stop := func() {}
	hold(func(t *location.Table) { next, stop = iter.Pull(t.Addresses()) })
	defer stop()
	for more := true; more; {
		hold(func(*location.Table) {
			for range step {
				var one string
				if one, more = next(); !more {
					return
				}
				all = append(all, one)
			}
		})
	}
	slices.Sort(all)
	return all
}

// fill lists up to limit bindings of these addresses of record, each behind the other and behind a place, in steps as
// well.
func (l *Bindings) fill(of []string, after *Place, limit int, hold func(func(*location.Table))) {
	if after != nil {
		first, _ := slices.BinarySearch(of, after.Address)
		of = of[first:]
	}
	for some := range slices.Chunk(of, step) {
		bindings := make([][]location.Binding, 0, step)
		hold(func(t *location.Table) {
			for _, key := range some {
				bindings = append(bindings, t.Bindings(key))
			}
		})
		for n, key := range some {
			for _, one := range rows(key, bindings[n]) {
				switch place := one.place(); {
				case after != nil && place.compare(*after) <= 0:
				case len(l.Bindings) == limit:
					last := l.Bindings[limit-1].place()
					l.After = &last
					return
				default:
					l.Bindings = append(l.Bindings, one)
				}
			}
		}
	}
}

// rows are the bindings of an address of record in the order of their places.
func rows(aor string, bindings []location.Binding) []Binding {
	list := make([]Binding, len(bindings))
	for i := range bindings {
		list[i] = bindingOf(aor, &bindings[i])
	}
	slices.SortFunc(list, func(a, b Binding) int { return a.place().compare(b.place()) })
	return list
}

// remove removes the bindings of an address of record, or one of them.
func (r *Registrar) remove(a removeArguments) (d Removed, err error) {
	key, err := aor(a.Address)
	if err != nil {
		return d, err
	}
	if (a.Contact != "") == a.All {
		return d, errors.New("say which contact, by --contact, or --all of them")
	}
	contact, err := message.ParseURI(a.Contact)
	if a.Contact != "" && err != nil {
		return d, fmt.Errorf("%q is no contact: write it as isthmus registrar bindings shows it", a.Contact)
	}
	r.do(func(p *registrar.Proxy, _ time.Time, _ *registrar.Output) {
		d.Removed = p.Table().Remove(key, func(b *location.Binding) bool { return a.All || b.URI.Equal(&contact) })
	})
	return d, nil
}

var questions = []role.Question{
	role.Answer("bindings", (*Registrar).list),
	role.Follow("remove", (*Registrar).remove),
}
