// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"encoding/binary"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// receiver is what an association keeps of what the peer sends.
type receiver struct {
	got     tsns
	in      []inStream // as far as used
	inLimit uint16     // streams that the peer may use
	held    int        // cost of what waits for others
	unread  int        // cost of what our user has not read yet
	told    int        // window that the last SACK told

	arrivals arrivals
	acks
}

// arrivals is what a packet has brought.
type arrivals struct {
	octets                         int // of all of its chunks
	data, fresh, duplicate, urgent bool
	answer                         bool // to what we have sent
	authentic                      bool // an AUTH stood before
	change                         bool // an ASCONF did
}

// expect begins with the peer's first TSN and as many streams.
func (r *receiver) expect(first uint32, streams uint16) {
	r.got = tsns{cumulative: first - 1}
	r.inLimit = streams
}

// window is how many octets more the peer may send.
func (a *Association) window() int { return max(0, a.par.ReceiveBuffer-a.occupied()) }

// occupied is how much of the receive buffer is in use: what the user has not read, and what waits for others.
func (a *Association) occupied() int { return a.unread + a.held }

// PieceCost is what each piece of a message counts in the receive buffer beside its octets: many small ones are not to
// take more memory than the peer is told that there is room for.
const PieceCost = 96

// Cost is what the piece counts in the receive buffer until it is read.
func (d *Data) Cost() int { return cost(d.User) }

func cost(user []byte) int { return len(user) + PieceCost }

// handleData takes a DATA or an I-DATA chunk (RFC 9260 section 6.2).
func (a *Association) handleData(p *Path, c chunk.Chunk, in *arrival, out *Output) {
	counters := &a.endpoint.Counters
	switch {
	case a.state == established, a.state == shutdownPending, a.state == shutdownSent:
	default: // RFC 9260 section 6
		counters.Unexpected++
		return
	}
	d, err := chunk.ParseData(c)
	switch {
	case err != nil:
		counters.BadChunk++
		return
	case (c.Type == chunk.TypeIData) != a.interleaved: // RFC 8260 section 2.2.2
		a.abort(p, ReasonViolation, chunk.Cause{Code: chunk.CauseProtocolViolation, Value: []byte("DATA and I-DATA are mixed")}, out)
		return
	case len(d.User) == 0: // section 6.2
		a.abort(p, ReasonViolation, chunk.Cause{Code: chunk.CauseNoUserData, Value: binary.BigEndian.AppendUint32(nil, d.TSN)}, out)
		return
	}
	a.arrivals.data = true
	a.arrivals.urgent = a.arrivals.urgent || d.Immediate
	switch {
	case a.got.has(d.TSN):
		a.passed(in, &d, Duplicated, out)
		counters.Duplicate++
		a.arrivals.duplicate = true
		a.noteDuplicate(d.TSN)
	case !a.fits(&d):
		counters.BeyondWindow++
		a.arrivals.urgent = true
	case d.Stream >= a.inLimit: // section 6.5
		counters.BadStream++
		a.got.add(d.TSN)
		a.arrivals.fresh, a.arrivals.urgent = true, true
		a.answerError(chunk.InvalidStream(d.Stream))
	default:
		a.arrivals.fresh = true
		a.got.add(d.TSN)
		a.passed(in, &d, Arrived, out)
		a.store(&d, out)
	}
}

// fits reports whether there is room for data. When the window is closed nothing beyond the highest TSN is taken (RFC
// 9260 section 6.2); what fills a gap is, so that what waits for it can leave, up to as much again: a peer that heeds
// the window has not sent more.
func (a *Association) fits(d *chunk.Data) bool {
	if !a.got.near(d.TSN) {
		return false
	}
	return a.window() > 0 || before(d.TSN, a.got.highest()) && a.occupied() < 2*a.par.ReceiveBuffer
}

// Read tells that our user has taken pieces of messages of such a cost: the peer may send as much again.
func (a *Association) Read(cost int, now time.Time, out *Output) {
	a.unread = max(0, a.unread-cost)
	if a.state < established || a.window()-a.told < max(a.par.ReceiveBuffer/4, 1) {
		return
	}
	// RFC 9260 section 6.2: a quarter of the buffer is news.
	if a.told < a.par.ReceiveBuffer/2 {
		a.endpoint.begin() // what is left there may be of another association, which has ended
		a.sackNow()
		a.transmit(nil, now, out)
		a.endpoint.settle(a)
	}
}
