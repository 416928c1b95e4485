// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"sync/atomic"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/sctp"
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
	numReasons
)

var reasonWords = [numReasons]string{
	"sessions_full", "peer_full", "bad_message", "not_found", "busy", "too_large", "refused", "source_failed", "idle", "stalled",
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
		collectSCTP(emit, listener.Endpoint().Stats())
	}
}

// collectSCTP shows what the endpoint has counted.
func collectSCTP(emit func(role.Metric), s sctp.Stats) {
	for _, one := range []struct {
		name, help string
		n          uint64
	}{
		{"packets_sent_total", "Packets of SCTP sent.", s.Sent},
		{"packets_received_total", "Packets of SCTP received.", s.Received},
		{"chunks_sent_total", "DATA chunks sent for the first time.", s.Counters.Sent},
		{"timeouts_total", "Timeouts of T3.", s.Timeouts},
		{"spurious_timeouts_total", "Timeouts of T3 behind which a late acknowledgement came.", s.Spurious},
		{"retransmitted_total", "DATA chunks sent again after a timeout.", s.Retransmitted},
		{"fast_retransmitted_total", "DATA chunks sent again after three reports.", s.FastRetrans},
		{"early_copies_total", "Copies of DATA chunks by the early probe.", s.EarlyCopies},
		{"early_changes_total", "ASCONF chunks sent again before T4, because later DATA was acknowledged.", s.EarlyChanges},
		{"early_moves_total", "DATA chunks sent again when the early probe was answered.", s.EarlyMoves},
	} {
		emit(role.Count(one.name, one.help, one.n))
	}
	for _, one := range []struct {
		reason string
		n      uint64
	}{
		{"packet_malformed", s.BadPacket}, {"chunk_malformed", s.BadChunk}, {"tag_wrong", s.BadTag}, {"not_ours", s.NotOurs + s.NotBound},
		{"stranger", s.Stranger}, {"out_of_the_blue", s.OutOfTheBlue}, {"init_malformed", s.BadInit}, {"init_refused", s.Counters.Refused},
		{"cookie_wrong", s.BadCookie}, {"cookie_stale", s.StaleCookie}, {"cookie_old", s.OldCookie}, {"unauthenticated", s.Unauthenticated + s.BadAuth},
		{"unexpected", s.Unexpected}, {"unknown", s.Unknown}, {"duplicate", s.Duplicate}, {"beyond_window", s.BeyondWindow}, {"stream_wrong", s.BadStream},
		{"receive_full", s.ReceiveFull}, {"send_full", s.SendFull}, {"unreachable", s.Unreachable}, {"send_refused", s.SendRefused},
	} {
		emit(role.Dropped(one.reason, one.n))
	}
}
