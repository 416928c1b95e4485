// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// errorLen is the size of the largest ICMPv6 error (RFC 4443 section 2.4 c).
const errorLen = packet.MinMTU

// sendError sends an ICMPv6 error about p to its sender, an IPv6 host.
func (r *Relay) sendError(typ, code byte, param uint32, p packet.IPv6, now time.Time, out *packet.Batch) {
	if b := r.buildError(typ, code, param, p, now, out); b != nil {
		out.SendIP(b)
	}
}

// buildError returns an ICMPv6 error about p, or nil when none may be sent now
// (RFC 4443 section 2.4 e and f) or there is no address to send it from.
func (r *Relay) buildError(typ, code byte, param uint32, p packet.IPv6, now time.Time, out *packet.Batch) []byte {
	if !packet.MayAnswerWithError(p) {
		return nil
	}
	if !r.cfg.Address.IsValid() || !r.errorBucket.Take(r.errorLimit, r.errorSources.Take(p.Src(), now), now) {
		r.stats.ErrorsSuppressed++
		return nil
	}
	r.stats.ErrorsSent++
	n := min(packet.IPv6HeaderLen+8+len(p), errorLen)
	return packet.AppendICMPv6Error(out.Alloc(n), r.cfg.Address, typ, code, param, p)
}
