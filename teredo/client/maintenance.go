// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import "time"

// heardServer notes a packet from the server, the "last interaction" of RFC 4380
// section 5.2.5, and draws the next randomised interval.
func (c *Client) heardServer(now time.Time) {
	c.lastServer = now
	c.refreshAfter = c.share(c.interval)
}

func (c *Client) refreshAt() time.Time { return c.lastServer.Add(c.refreshAfter) }

// maintain solicits the server again when it was silent for a randomised
// interval (RFC 4380 section 5.2.5). The advertisement goes through qualify,
// which notices a changed mapping.
func (c *Client) maintain(now time.Time, out *Out) {
	if c.state == Qualified && !c.primary.active && !now.Before(c.refreshAt()) {
		c.solicit(&c.primary, c.server().Primary, now, out)
		if len(c.servers) > 1 {
			c.hasten(now)
		}
	}
}

// share returns 75 to 100 % of d (RFC 4380 section 5.2), so that clients do not
// fall into step with one another.
func (c *Client) share(d time.Duration) time.Duration {
	quarter := uint64(d / 4)
	return d - time.Duration(c.random.Uint64()%(quarter+1))
}
