// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/sip/location"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/registrar"
)

// maxRows is how many rows a part has at most.
const maxRows = 5000

// aor is the key of an address of record as people write it: "sip:alice@example.net", or without the
// scheme.
func aor(text string) (string, error) {
	u, err := message.ParseURI(text)
	if err != nil || !u.IsSIP() && u.Scheme != "tel" {
		u, err = message.ParseURI("sip:" + text)
	}
	key, ok := u.AOR()
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
	of := ""
	if a.Address != "" {
		if of, err = aor(a.Address); err != nil {
			return list, err
		}
	}
	r.do(func(p *registrar.Proxy, now time.Time, _ *registrar.Output) {
		at := uint32(0)
		p.Table().All(func(key string, bindings []location.Binding) bool {
			if of != "" && key != of {
				return true
			}
			for i := range bindings {
				if at++; at <= a.From {
					continue
				}
				if len(list.Bindings) == a.Limit {
					list.From = at - 1
					return false
				}
				list.Bindings = append(list.Bindings, bindingOf(key, &bindings[i]))
			}
			return true
		})
	})
	return list, nil
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
