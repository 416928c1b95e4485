// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/trace"
	"github.com/isthmus-net/isthmus/sctp"
	"github.com/isthmus-net/isthmus/sctp/chunk"
	"github.com/isthmus-net/isthmus/sctp/media/measure"
)

// capture has all packets of an endpoint written down, from the first one of its association on, until the recorder is
// closed.
func (r *Recorder) capture(e *sctp.Endpoint) {
	if r == nil || r.packets == nil {
		return
	}
	local := e.Addr().(*sctp.Addr).UDP
	e.Capture(func(at time.Time, sent bool, p *sctp.Packet) { r.packet(at, sent, p, local) })
}

// awaitEnd waits for the last packet of an association that has ended: its user knows of that before it is sent.
func (r *Recorder) awaitEnd(ctx context.Context) {
	if r == nil || r.packets == nil {
		return
	}
	select {
	case <-r.ended:
	case <-ctx.Done():
	}
}

// packet writes a packet, with the headers that it travelled behind. local is our port of UDP, if it did so in UDP.
func (r *Recorder) packet(at time.Time, sent bool, p *sctp.Packet, local uint16) {
	r.capturing.Lock()
	defer r.capturing.Unlock()
	if r.packets == nil {
		return
	}
	here, there, hook, verdict := netip.AddrPortFrom(p.Local, local), netip.AddrPortFrom(p.Remote, p.Port), "sent", trace.Forward
	from, to := here, there
	if !sent {
		from, to, hook, verdict = there, here, "received", trace.Keep
	}
	r.block = measure.AppendIP(r.block[:0], from, to, p.Octets)
	err := r.packets.Write(&trace.Sample{
		Time: at, Instance: "sctp", Path: trace.Engine, Hook: hook, Verdict: verdict, Link: trace.IP, Length: len(r.block), Data: r.block,
	})
	if err != nil && r.failed == nil {
		r.failed = err
	}
	if !r.over && isLast(p.Octets) {
		r.over = true
		close(r.ended)
	}
}

// isLast reports whether a packet ends its association in order (RFC 9260 section 9.2): the chunk that does travels
// alone.
func isLast(octets []byte) bool {
	return len(octets) > chunk.HeaderSize && chunk.Type(octets[chunk.HeaderSize]) == chunk.TypeShutdownComplete
}
