// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
)

// place is what is looked for: a host with what a URI says of scheme, port and transport.
type place struct {
	scheme, host, maddr, transport string
	port                           uint16
}

func placeOf(u *message.URI) place {
	maddr, _ := u.Params.Get("maddr")
	transport, _ := u.Params.Get("transport")
	return place{u.Scheme, strings.ToLower(u.Host), strings.ToLower(maddr), strings.ToUpper(transport), u.Port}
}

// maxPlaces is how many are looked for at a time.
const maxPlaces = 256

// locate has a request sent when it is known where its URI leads: now, or when the engine's owner has
// looked for the host. One that is not found then, or not looked for since there are too many, is a
// transport error for who sends.
func (e *Engine) locate(hop message.URI, send func()) {
	at := placeOf(&hop)
	waiting, sought := e.sought[at]
	servers, _ := e.servers(&hop)
	if len(servers) > 0 || e.set.Lookup == nil || len(waiting) >= maxWaiting || !sought && len(e.sought) >= maxPlaces {
		send()
		return
	}
	if !sought {
		e.out.Lookups = append(e.out.Lookups, hop)
	}
	e.sought[at] = append(waiting, send)
}

// Resolved tells that the host of a URI of [Output.Lookups] was looked for: [Settings.Lookup] knows it,
// or no one does.
func (e *Engine) Resolved(hop message.URI, now time.Time, out *Output) {
	defer e.enter(now, out)()
	at := placeOf(&hop)
	waiting := e.sought[at]
	delete(e.sought, at)
	for _, send := range waiting {
		send()
	}
}
