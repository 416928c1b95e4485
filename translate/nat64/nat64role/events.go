// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/translate/nat64"
)

// eventLog writes the engine's events to the log, apart from the loops.
type eventLog struct {
	loop.EventLog[nat64.Event]
	log    *slog.Logger
	blocks atomic.Bool // log blocks of ports
}

// add takes events.
func (l *eventLog) add(events []nat64.Event) {
	for _, e := range events {
		if (e.Kind == nat64.BlockStart || e.Kind == nat64.BlockStop) && !l.blocks.Load() {
			continue
		}
		l.Add(e)
	}
}

// write logs one event, with what RFC 7422, section 4 and RFC 6888, section 4 want to
// know of a port: who, which address and ports, and when.
func (l *eventLog) write(e *nat64.Event) {
	at := slog.Time("at", e.Time)
	switch e.Kind {
	case nat64.BlockStart, nat64.BlockStop:
		l.log.Info(e.Kind.String(), "client", e.Client, "pool", e.Pool, "ports", fmt.Sprintf("%d-%d", e.First, e.Last), at)
	case nat64.SessionStart, nat64.SessionStop:
		l.log.Info(e.Kind.String(), "transport", e.Transport, "inside", e.Inside, "pool", e.Pool, "port", e.First, "peer", e.Peer, at)
	case nat64.PacketDropped:
		d := &e.Dropped
		l.log.Warn(e.Kind.String(), "reason", e.Reason, "source", d.Src, "destination", d.Dst, "protocol", d.Proto, "suppressed", d.Suppressed, at)
	default:
		l.log.Warn(e.Kind.String(), "client", e.Client, "reason", e.Reason, at)
	}
}

// settled takes the events of a batch.
func (n *NAT64) settled(out *nat64.Out) { n.events.add(out.Events) }
