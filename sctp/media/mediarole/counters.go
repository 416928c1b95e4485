// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"sync/atomic"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// reason is why an association or an order was refused or ended.
type reason int

const (
	reasonSessionsFull reason = iota
	reasonPeerFull
	reasonBadMessage
	reasonNotFound
	reasonBusy
	reasonTooLarge
	reasonRefused
	reasonFailed
	reasonIdle
	reasonStalled
	reasonAssociationEnded
	numReasons
)

var reasonWords = [numReasons]string{
	"sessions_full", "peer_full", "bad_message", "not_found", "busy", "too_large", "refused", "source_failed", "idle", "stalled", "association_ended",
}

// reasonOf is that of a refusal.
var reasonOf = map[transfer.Status]reason{
	transfer.NotFound: reasonNotFound, transfer.Busy: reasonBusy, transfer.TooLarge: reasonTooLarge,
	transfer.Refused: reasonRefused, transfer.Failed: reasonFailed,
}

type counters struct {
	dropped                                              [numReasons]atomic.Uint64
	sessions, requests, lists, done, cancelled, messages atomic.Uint64
	octets                                               atomic.Uint64
}

func (c *counters) drop(why reason) { c.dropped[why].Add(1) }

// Collect implements [role.Instance].
func (i *Instance) Collect(emit func(role.Metric)) {
	c := &i.counters
	for why := range c.dropped {
		emit(role.Dropped(reasonWords[why], c.dropped[why].Load()))
	}
	i.mu.Lock()
	emit(role.Level("sessions", "Associations.", float64(len(i.sessions))))
	listener := i.listener
	i.mu.Unlock()
	emit(role.Count("sessions_total", "Associations that were taken.", c.sessions.Load()))
	emit(role.Count("requests_total", "Transfers that were asked for.", c.requests.Load()))
	emit(role.Count("lists_total", "Lists that were asked for.", c.lists.Load()))
	emit(role.Count("transfers_total", "Transfers that were sent to their ends.", c.done.Load()))
	emit(role.Count("cancelled_total", "Transfers that the client has cancelled.", c.cancelled.Load()))
	emit(role.Count("messages_total", "Messages of media that were sent.", c.messages.Load()))
	emit(role.Count("octets_total", "Octets of media that were sent.", c.octets.Load()))
	if listener != nil {
		stats := listener.Endpoint().Stats()
		for _, one := range stats.List() {
			if one.Drop {
				emit(role.Dropped(one.Name, one.Value))
			} else {
				emit(role.Count(one.Name+"_total", one.Help, one.Value))
			}
		}
	}
}
