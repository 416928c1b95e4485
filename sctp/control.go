// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/sctp/assoc"
)

// Pair is a local and a remote address: it names a path.
type Pair = assoc.Pair

// Status is what an association is doing (RFC 6458 section 8.2.1).
type Status = assoc.Status

// PathStatus is what a path is doing (RFC 6458 section 8.2.2).
type PathStatus = assoc.PathStatus

// PathState says what a path is good for.
type PathState = assoc.PathState

// States of a path.
const (
	PathStateActive   = assoc.Active   // carries data
	PathStateFailing  = assoc.Failing  // potentially failed: avoided where another is active (RFC 7829)
	PathStateInactive = assoc.Inactive // has missed too many answers
)

// ErrNoPath is the error of calls that name a path which the association does not have, or cannot use.
var ErrNoPath = errors.New("the association has no such path, or the peer is not known to be there yet")

// ErrNoAddress is the error of calls that name an address of this host which the association does not have.
var ErrNoAddress = errors.New("the association has no such address of this host")

// Status returns the state of the association and of its paths. Of one that has ended it is that at its end.
func (c *Conn) Status() Status {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	return c.a.Status()
}

// Parameters returns the parameters of the association; a path may have others.
func (c *Conn) Parameters() Parameters {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	return c.a.Parameters()
}

// SetParameters changes the parameters of the association and of all its paths from now on. Streams, buffers, and
// what the peer was offered stay as they are. With a small RTO.Min the endpoint is prompt from then on: see [Config.Prompt].
func (c *Conn) SetParameters(par Parameters) error {
	return c.control("set parameters", func(t turn) error {
		err := c.a.SetParameters(par, t.now)
		if err == nil {
			c.endpoint.keepPrompt(&par.PathParameters)
		}
		return err
	})
}

// SetPathParameters changes the parameters of one path, and may make the endpoint prompt as SetParameters does.
func (c *Conn) SetPathParameters(path Pair, par PathParameters) error {
	return c.control("set parameters", func(t turn) error {
		err := c.a.SetPathParameters(path, par, t.now)
		switch err {
		case nil:
			c.endpoint.keepPrompt(&par)
		case assoc.ErrNoPath: // which says there that none can be made
			err = ErrNoPath
		}
		return err
	})
}

// SetPrimary has data go by a path as long as it works. The peer goes on to send as it likes: see Prefer.
func (c *Conn) SetPrimary(path Pair) error {
	return c.control("set primary", func(t turn) error {
		if !c.a.SetPrimary(path) {
			return ErrNoPath
		}
		return nil
	})
}

// Probe sends a heartbeat by a path now. Status shows the answer, and so does an event if it changes the path's state.
func (c *Conn) Probe(path Pair) error {
	return c.control("probe", func(t turn) error {
		if !c.has(func(p PathStatus) bool { return p.Pair == path }) {
			return ErrNoPath
		}
		c.a.Probe(path, t.now, t.Output)
		return nil
	})
}

// AddAddress has the association use another address of this host, if the peer takes changes of addresses (RFC 5061).
// The event ChangeDone or ChangeRefused follows. An endpoint that has all addresses of the host does so by itself, but for those
// that were added or removed by hand; one that is bound to some takes these alone.
func (c *Conn) AddAddress(local netip.Addr) error {
	if !local.IsValid() || local.IsUnspecified() || local.IsMulticast() || local.Is4In6() {
		return c.opError("change addresses", &net.AddrError{Err: "not the address of a host", Addr: local.String()})
	}
	if bound := c.endpoint.addr.Hosts; len(bound) > 0 && !slices.Contains(bound, local) {
		return c.opError("change addresses", ErrBound)
	}
	return c.change(assoc.Change{Kind: assoc.AddAddress, Address: local})
}

// RemoveAddress has the association no more use an address of this host.
func (c *Conn) RemoveAddress(local netip.Addr) error {
	return c.change(assoc.Change{Kind: assoc.DeleteAddress, Address: local})
}

// Prefer asks the peer to send to an address of this host. While the link of that is down it is asked to send elsewhere:
// see LinkDown.
func (c *Conn) Prefer(local netip.Addr) error {
	return c.change(assoc.Change{Kind: assoc.PreferAddress, Address: local})
}

// LinkDown says that the link of an address of this host will carry nothing any more, or does not: data leaves it at
// once, and the peer is asked to send elsewhere. An endpoint that follows the host's links says so by itself, when it
// has happened; who knows it before can have the association move before packets are lost.
func (c *Conn) LinkDown(local netip.Addr) error {
	return c.control("leave", func(t turn) error {
		if !c.hasLocal(local) {
			return ErrNoAddress
		}
		c.a.LinkDown([]netip.Addr{local}, t.now, t.Output)
		return nil
	})
}

// LinkUp says that the link works again. If the peer has left for it, it is asked to return when it has answered there.
func (c *Conn) LinkUp(local netip.Addr) error {
	return c.control("return", func(t turn) error {
		if !c.hasLocal(local) {
			return ErrNoAddress
		}
		c.a.LinkUp(local, t.now, t.Output)
		return nil
	})
}

func (c *Conn) change(one assoc.Change) error {
	return c.control("change addresses", func(t turn) error {
		switch {
		case one.Kind != assoc.AddAddress && !c.hasLocal(one.Address):
			return ErrNoAddress
		case one.Kind == assoc.PreferAddress && !c.a.Reaches(one.Address):
			return ErrNoPath
		}
		err := c.a.Change([]assoc.Change{one}, t.now, t.Output)
		if err == nil && one.Kind != assoc.PreferAddress {
			if c.byHand == nil {
				c.byHand = map[netip.Addr]bool{}
			}
			c.byHand[one.Address] = true
		}
		return err
	})
}

// has reports whether the association has a path of some kind.
func (c *Conn) has(kind func(PathStatus) bool) bool {
	return slices.ContainsFunc(c.a.Status().Paths, kind)
}

// hasLocal reports whether the association has an address of this host.
func (c *Conn) hasLocal(local netip.Addr) bool {
	return slices.Contains(c.a.Locals(), local)
}

// control does something with the association, if it lives.
func (c *Conn) control(op string, f func(turn) error) error {
	t := c.endpoint.begin()
	err := c.ended
	switch {
	case err == io.EOF:
		err = net.ErrClosed
	case err == nil:
		err = f(t)
	}
	c.endpoint.finish(t)
	if err != nil {
		return c.opError(op, err)
	}
	return nil
}
