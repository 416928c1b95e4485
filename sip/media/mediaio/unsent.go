// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediaio

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/sip/media"
)

// What waits for a way: between the moment when an address or a route goes and the one when the call moves, sockets
// take no packets. As sound they are still worth something for a while.
const (
	maxUnsent  = 10
	unsentTime = maxUnsent * media.Frame
)

// unsent is a packet of media that no socket took, for want of a way.
type unsent struct {
	at     time.Time
	to     netip.AddrPort
	octets []byte
}

// noWay reports whether a packet was not sent since its address, its link or its route is gone. What a full device
// does not take is lost, as in a network.
func noWay(err error) bool {
	for _, gone := range []error{
		unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EADDRNOTAVAIL, unix.ENETDOWN, unix.ENODEV, unix.ENXIO, unix.EINVAL,
	} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}

// send sends a packet by a path, behind those that wait for a way.
func (c *Call) send(slot int, control bool, to netip.AddrPort, b []byte) {
	p := c.paths[slot]
	if control {
		if p == nil || p.rtcp.write(b, to) != nil {
			c.lost.Add(1)
		}
		return
	}
	if len(c.unsent) > 0 {
		c.sendAgain(p)
	}
	err := error(unix.EADDRNOTAVAIL) // the path is closed
	if p != nil && len(c.unsent) == 0 {
		err = p.rtp.write(b, to)
	}
	switch {
	case err == nil:
	case noWay(err):
		c.keep(unsent{time.Now(), to, slices.Clone(b)})
	default:
		c.lost.Add(1)
	}
}

// keep has a packet wait for a way, the oldest giving way if there are too many.
func (c *Call) keep(u unsent) {
	if len(c.unsent) == maxUnsent {
		c.lost.Add(1)
		c.unsent = slices.Delete(c.unsent, 0, 1)
	}
	c.unsent = append(c.unsent, u)
}

// sendAgain sends what waits, as far as the path takes it and it is not too old.
func (c *Call) sendAgain(p *pair) {
	now, done := time.Now(), 0
	for _, u := range c.unsent {
		if now.Sub(u.at) <= unsentTime {
			if p == nil {
				break
			}
			if err := p.rtp.write(u.octets, u.to); err != nil {
				break
			}
		} else {
			c.lost.Add(1)
		}
		done++
	}
	c.unsent = slices.Delete(c.unsent, 0, done)
}
