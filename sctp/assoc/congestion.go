// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import "time"

// congestion is the control of one path (RFC 9260 section 7.2). All are octets of DATA chunks, header and
// padding included.
type congestion struct {
	cwnd, ssthresh int
	partial        int // acknowledged since cwnd has grown (section 7.2.2)
	flight         int // sent, and neither acknowledged nor taken for lost

	recovering bool // fast recovery, until recoverTSN is acknowledged
	recoverTSN uint32
	alone      bool // after a timeout one packet is on its way at a time (section 7.2.3)
	idle       bool // cwnd has shrunk since data was sent
}

// unlimited is the first threshold: as high as any window (section 7.2.1).
const unlimited = 1 << 30

// begin takes the initial window for chunks of a largest size.
func (c *congestion) begin(largest int, ipv4 bool) {
	least := 4344
	if ipv4 {
		least = 4404
	}
	*c = congestion{cwnd: min(4*largest, max(2*largest, least)), ssthresh: unlimited, flight: c.flight}
}

// resume begins anew with the initial window: data has left the path, but nothing says that any was lost.
func (c *congestion) resume(largest int, ipv4 bool) {
	threshold := c.ssthresh
	c.begin(largest, ipv4)
	c.ssthresh = threshold
}

// grow takes what a SACK has acknowledged, when so much was in flight before it (sections 7.2.1 and 7.2.2).
// empty says that nothing is outstanding any more.
func (c *congestion) grow(acked, before, largest int, empty bool) {
	c.alone = false
	if c.cwnd <= c.ssthresh {
		if before >= c.cwnd && !c.recovering {
			c.cwnd += min(acked, largest)
		}
	} else {
		c.partial += acked
		switch {
		case c.partial > c.cwnd && before < c.cwnd:
			c.partial = c.cwnd
		case c.partial >= c.cwnd && before >= c.cwnd:
			c.partial -= c.cwnd
			if !c.recovering {
				c.cwnd += largest
			}
		}
	}
	if empty {
		c.partial = 0
	}
}

// lose cuts the window after a loss that a SACK has shown (section 7.2.3), once until all that was out by then
// is acknowledged (section 7.2.4).
func (c *congestion) lose(highest uint32, largest int) {
	if c.recovering {
		return
	}
	c.ssthresh = max(c.cwnd/2, 4*largest)
	c.cwnd, c.partial = c.ssthresh, 0
	c.recovering, c.recoverTSN = true, highest
}

// timeout begins anew with one packet (section 7.2.3).
func (c *congestion) timeout(largest int) {
	c.ssthresh = max(c.cwnd/2, 4*largest)
	c.cwnd, c.partial = largest, 0
	c.recovering, c.alone = false, true
}

// rest shrinks the window of a path that has sent nothing for a while, once each RTO (section 7.2.1).
func (p *Path) rest(largest int, now time.Time) {
	if p.flight > 0 || p.rto <= 0 {
		return
	}
	for !p.sentAt.IsZero() && now.Sub(p.sentAt) >= p.rto && p.cwnd > 4*largest {
		if !p.idle {
			p.ssthresh, p.idle = p.cwnd, true
		}
		p.cwnd = max(p.cwnd/2, 4*largest)
		p.sentAt = p.sentAt.Add(p.rto)
	}
}

// open is how many octets of chunks may be sent now; a packet may go over it by less than its size (section
// 6.1, B).
func (c *congestion) open() int {
	if c.alone && c.flight > 0 {
		return 0
	}
	return c.cwnd - c.flight
}
