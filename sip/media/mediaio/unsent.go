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

// unsent is a packet of media that no socket took, for want of a way. It goes to where media goes when there is one.
type unsent struct {
	at     time.Time
	octets []byte
}

// noWay reports whether a packet was not sent since its address, its link or its route is gone, or the path is
// not of the family of the place where media still goes. What a full device does not take is lost, as in a network.
func noWay(err error) bool {
	for _, gone := range []error{
		unix.EAFNOSUPPORT, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EADDRNOTAVAIL, unix.ENETDOWN, unix.ENODEV, unix.ENXIO, unix.EINVAL,
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
	c.sendAgain(p, to)
	err := error(unix.EADDRNOTAVAIL) // for those before it
	if len(c.unsent) == 0 {
		err = p.write(b, to)
	}
	switch {
	case err == nil:
	case noWay(err):
		c.keep(unsent{time.Now(), slices.Clone(b)})
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

// sendAgain sends what waits to where media goes now, as far as the path takes it and it is not too old.
func (c *Call) sendAgain(p *pair, to netip.AddrPort) {
	if len(c.unsent) == 0 {
		return
	}
	now, done := time.Now(), 0
	for _, u := range c.unsent {
		old := now.Sub(u.at) > unsentTime
		var err error
		if !old {
			if err = p.write(u.octets, to); noWay(err) {
				break
			}
		}
		if old || err != nil {
			c.lost.Add(1)
		}
		done++
	}
	c.unsent = slices.Delete(c.unsent, 0, done)
}

// write sends media by a path, if that is open.
func (p *pair) write(b []byte, to netip.AddrPort) error {
	if p == nil {
		return unix.EADDRNOTAVAIL
	}
	return p.rtp.write(b, to)
}
