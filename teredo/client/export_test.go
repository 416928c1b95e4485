// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"net/netip"
)

// CheckFast reports what is wrong with the peers that the fast path knows: each must
// be proved, and sent to as the engine itself would.
func (c *Client) CheckFast() error {
	for key, p := range c.fastPeers {
		e := c.peers.Lookup(&key)
		switch {
		case e == nil:
			return fmt.Errorf("%v is no peer", netip.AddrFrom16(key))
		case !e.Trusted() || !e.MappedIs(p.way.to):
			return fmt.Errorf("%v is not proved at %v", e.IP(), p.way.to)
		}
		f := c.peers.Cold(e)
		if w := c.target(e, f); w != p.way {
			return fmt.Errorf("%v is sent to by %+v, not by %+v", e.IP(), p.way, w)
		}
		if f != nil && (f.phase == soliciting || f.queue.Len() > 0) {
			return fmt.Errorf("%v is waited for", e.IP())
		}
	}
	if c.state != Qualified && len(c.fastPeers) > 0 {
		return fmt.Errorf("%d peers without an address", len(c.fastPeers))
	}
	return nil
}
