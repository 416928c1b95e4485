// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"log/slog"

	"github.com/isthmus-net/isthmus/translate"
)

// Reports are of packets of which RFC 7915, sections 4.5 and 5.1.1, wants the operator told.
// They wait for the log, which must not hold up packets.
type Reports chan translate.Report

// NewReports has room for a few.
func NewReports() Reports { return make(Reports, 16) }

// Add adds one, unless too many wait: the next ones say how many are not told.
func (r Reports) Add(one translate.Report) {
	select {
	case r <- one:
	default:
	}
}

// Log logs them until ctx is done.
func (r Reports) Log(ctx context.Context, log *slog.Logger) {
	for {
		select {
		case one := <-r:
			log.Warn("packet_dropped", "reason", one.Reason, "source", one.Src, "destination", one.Dst, "protocol", one.Proto, "suppressed", one.Suppressed)
		case <-ctx.Done():
			return
		}
	}
}
