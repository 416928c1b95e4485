// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// startTest begins the direct IPv6 connectivity test towards a native host (RFC
// 4380 sections 5.2.4 case 2 and 5.2.9). All echo requests of one test carry the
// same nonce, so that a late reply counts.
func (c *Client) startTest(e *peer.Entry, f *effort, at peer.Instant, now time.Time, out *Out) {
	f.phase, f.sent, f.tested = testing, 0, true
	c.fill(c.scratch[:teredo.EchoNonceLen])
	f.echo = [teredo.EchoNonceLen]byte(c.scratch[:])
	c.test(e, f, at, now, out)
}

// test sends an echo request through the server, or gives up behind four.
func (c *Client) test(e *peer.Entry, f *effort, at peer.Instant, now time.Time, out *Out) {
	if c.reached(e, f, at) {
		return
	}
	if f.sent == maxAttempts {
		c.fail(e, f, at, now, out)
		return
	}
	f.sent++
	c.stats.EchoTests++
	b := out.Alloc(packet.IPv6HeaderLen + 8 + teredo.EchoNonceLen)
	b = teredo.AppendEchoTest(b, c.last.address, e.IP(), &f.echo)
	out.SendUDP(0, c.primary.server, b)
	c.peers.SetDeadline(e, at.Add(retryInterval))
	if f.sent == 2 {
		c.suspect(now, out)
	}
}

// proves reports whether p is the reply that the echo test under way waits for.
func (c *Client) proves(e *peer.Entry, p packet.IPv6) bool {
	return c.echoed(e, p) && c.peers.Cold(e).phase == testing
}

// echoed reports whether p is a reply to the last echo test of its source, whose
// entry is e or nil. Relays of this project send the reply twice.
func (c *Client) echoed(e *peer.Entry, p packet.IPv6) bool {
	if e == nil {
		return false
	}
	f := c.peers.Cold(e)
	if f == nil || !f.tested {
		return false
	}
	nonce, ok := teredo.EchoTestReply(p)
	return ok && nonce == f.echo
}
