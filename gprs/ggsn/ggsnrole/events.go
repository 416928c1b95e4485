// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"log/slog"
	"sync/atomic"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/loop"
)

// eventLog writes the engine's events to the log, apart from the loops.
type eventLog struct {
	loop.EventLog[ggsn.Event]
	log      *slog.Logger
	contexts atomic.Bool // log contexts
}

// add takes events.
func (l *eventLog) add(events []ggsn.Event) {
	for _, e := range events {
		if e.Kind > ggsn.ContextDeleted || e.Kind != ggsn.ContextCounted && l.contexts.Load() {
			l.Add(e)
		}
	}
}

// write logs one event.
func (l *eventLog) write(e *ggsn.Event) {
	at := slog.Time("at", e.Time)
	switch e.Kind {
	case ggsn.ContextCreated, ggsn.ContextUpdated, ggsn.ContextDeleted:
		x := &e.Context
		words := []any{"imsi", x.IMSI, "nsapi", x.NSAPI, "apn", x.APN, "sgsn", e.Peer}
		if x.Address4.IsValid() {
			words = append(words, "address", x.Address4)
		}
		if x.Prefix6.IsValid() {
			words = append(words, "prefix", x.Prefix6)
		}
		if len(x.Further6) > 0 {
			words = append(words, "further", x.Further6)
		}
		if len(x.Former6) > 0 {
			words = append(words, "former", x.Former6)
		}
		if len(x.Delegated6) > 0 {
			words = append(words, "delegated", x.Delegated6)
		}
		if len(x.Routes) > 0 {
			words = append(words, "routes", x.Routes)
		}
		if e.Kind == ggsn.ContextDeleted {
			words = append(words, "reason", e.End, "up", x.Up.Octets, "down", x.Down.Octets)
		}
		l.log.Info(e.Kind.String(), append(words, at)...)
	case ggsn.Drained:
		l.log.Info("all contexts are gone: the node is drained", at)
	case ggsn.PathUp:
		l.log.Info(e.Kind.String(), "sgsn", e.Peer, "port", e.Port, "contexts", e.Contexts, at)
	case ggsn.PathDown, ggsn.PathReleased:
		l.log.Warn(e.Kind.String(), "sgsn", e.Peer, "port", e.Port, "contexts", e.Contexts, at)
	default:
		l.log.Warn(e.Kind.String(), "sgsn", e.Peer, "contexts", e.Contexts, at)
	}
}
