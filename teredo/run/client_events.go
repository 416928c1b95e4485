// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"net/netip"
	"sync"

	"github.com/isthmus-net/isthmus/teredo/client"
)

// eventQueue hands events from the loops, which must not wait, to the one
// goroutine that changes the device.
type eventQueue struct {
	mu     sync.Mutex
	events []client.Event
	wake   chan struct{}
}

func newEventQueue() *eventQueue { return &eventQueue{wake: make(chan struct{}, 1)} }

// push appends events.
func (q *eventQueue) push(events []client.Event) {
	if len(events) == 0 {
		return
	}
	q.mu.Lock()
	q.events = append(q.events, events...)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns what is there.
func (q *eventQueue) take() []client.Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.events
	q.events = nil
	return events
}

// applyEvents makes the device follow the engine, until ctx is done.
func (c *Client) applyEvents(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.relinked:
			c.followDevice()
			continue
		case <-c.events.wake:
		}
		for _, e := range c.events.take() {
			// At the end the device may go before its events are done.
			if err := c.apply(e); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// apply makes one event true for the host, and tells people.
func (c *Client) apply(e client.Event) error {
	switch e.Kind {
	case client.GotAddress, client.AddressChanged:
		if err := c.setAddress(e.Address); err != nil {
			return err
		}
		if e.Old.IsValid() {
			c.log.Info("address changed", "address", e.Address, "mapped", e.Mapping, "server", e.Server, "old", e.Old)
		} else {
			c.log.Info("qualified", "address", e.Address, "mapped", e.Mapping, "server", e.Server)
		}
	case client.AddressLost:
		c.log.Warn("address lost: "+e.Cause.String(), "address", e.Old)
		return c.setAddress(netip.Addr{})
	case client.NATDetermined:
		c.log.Info("NAT: " + e.NAT.String())
	case client.ServerSilent:
		c.log.Warn("the server does not answer: check its address, that UDP to port 3544 may leave, and whether it wants another key", "server", e.Server)
	case client.ServerRefused:
		c.log.Warn("the server refuses the key: it is unknown there or has expired, so get another and reload", "server", e.Server)
	case client.SearchEnded:
		c.log.Info("the search for the refresh interval has ended", "interval", e.Wait)
	case client.WentOffLine:
		c.log.Warn("no server serves this client", "retry_in", e.Wait)
	}
	return nil
}

// addressBits makes the whole service prefix on-link, so that other Teredo
// clients are reached without a router.
const addressBits = 32

// setAddress replaces the address and the default route of the device; not
// valid: neither.
func (c *Client) setAddress(a netip.Addr) error {
	link := c.tun.Name()
	if c.given.IsValid() {
		if !a.IsValid() {
			if err := c.host.RemoveRoute(clientRoute(&c.cfg, link)); err != nil {
				return err
			}
		}
		if c.given != a {
			if err := c.host.RemoveAddr(link, netip.PrefixFrom(c.given, addressBits)); err != nil {
				return err
			}
		}
	}
	c.given = a
	err := c.equip()
	if _, up, e := c.host.Link(link); err != nil && e == nil && !up {
		return nil // they are set when the device is up again
	}
	return err
}

// equip gives the device the address and the default route that it is to have,
// if any, whether it has lost them or never had them.
func (c *Client) equip() error {
	if !c.given.IsValid() {
		return nil
	}
	link := c.tun.Name()
	if err := c.host.AddAddr(link, netip.PrefixFrom(c.given, addressBits)); err != nil {
		return err
	}
	return clientRouteTaken(c.host.AddRoute(clientRoute(&c.cfg, link)))
}

// followDevice puts back what the kernel has dropped from a device that was set
// down and up again, maybe before the change was heard of.
func (c *Client) followDevice() {
	link := c.tun.Name()
	_, up, err := c.host.Link(link)
	if err != nil {
		return // the end of a device is for those who read it
	}
	was := c.down.Swap(!up)
	if !up {
		if !was {
			c.log.Warn("the device is down, so this host has no Teredo: run ip link set up", "interface", link)
		}
		return
	}
	if err := c.equip(); err != nil {
		c.log.Warn("the device changed and its address and route cannot be set again", "interface", link, "error", err)
	} else if was {
		c.log.Info("the device is up again", "interface", link)
	}
}
