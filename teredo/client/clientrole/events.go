// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/internal/event"
	"github.com/isthmus-net/isthmus/internal/port"
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
	c.ports.heed(e)
	if e.Kind == client.GotAddress || e.Kind == client.AddressLost {
		// While it has an address, peers that are gone must not hold up what is for others.
		if err := c.conn.Refusals(e.Kind == client.AddressLost); err != nil && !errors.Is(err, port.ErrClosed) {
			return err
		}
	}
	switch e.Kind {
	case client.GotAddress, client.AddressChanged:
		c.unserved.Works(time.Now())
		if err := c.setAddress(e); err != nil {
			return err
		}
		if e.Old.IsValid() {
			c.log.Info("address changed: "+e.Cause.String(), "address", e.Address, "mapped", e.Mapping, "server", e.Server, "old", e.Old)
		} else {
			c.log.Info("qualified", "address", e.Address, "mapped", e.Mapping, "server", e.Server)
		}
	case client.AddressLost:
		c.log.Warn("address lost: "+e.Cause.String(), "address", e.Old)
		return c.setAddress(e)
	case client.Doubted:
		c.log.Info("the server does not answer at once, asking on", "server", e.Server)
		return c.tell(e)
	case client.Confirmed:
		return c.tell(e)
	case client.StandbyChanged:
		if e.Standby {
			c.log.Info("this host has native IPv6, so the client stands by: its address is for those alone who bind to it")
		} else {
			c.log.Info("this host has no native IPv6 any more, so Teredo carries its IPv6")
		}
		return c.dev.standBy(e.Standby)
	case client.NATDetermined:
		c.log.Info("NAT: " + e.NAT.String())
	case client.ServerSilent:
		c.warnOnce("the server does not answer: check its address, that UDP to port 3544 may leave, and whether it wants another key", "server", e.Server)
	case client.ServerRefused:
		c.warnOnce("the server refuses the key: it is unknown there or has expired, so get another and reload", "server", e.Server)
	case client.SearchEnded:
		c.log.Info("the search for the refresh interval has ended", "interval", e.Wait)
	case client.WentOffLine:
		c.warnOnce("no server serves this client: they are asked again, less and less often")
	}
	return nil
}

// warnOnce reports a failure of servers, until one has served.
func (c *Client) warnOnce(text string, about ...any) {
	if c.unserved.Failed(fmt.Sprint(text, about), time.Now()) {
		c.log.Warn(text, about...)
	}
}

// setAddress makes the device follow an event with or without a new address.
func (c *Client) setAddress(e client.Event) error {
	if c.above != nil {
		return c.above(c, e)
	}
	return c.dev.assign(c, e.Address, c.viaNow(), causeOf(e))
}

// tell passes an event on that changes no address.
func (c *Client) tell(e client.Event) error {
	if c.above != nil {
		return c.above(c, e)
	}
	return nil
}

// causes are those of the engine in the words of package event.
var causes = map[client.Cause]event.Cause{
	client.CauseServerSilent:   event.ServerSilent,
	client.CauseServersChanged: event.ServersChanged,
	client.CauseNoIPv4:         event.NoIPv4,
	client.CauseNativeIPv6:     event.NativeIPv6,
	client.CauseStopped:        event.Stopped,
	client.CauseMappingChanged: event.MappingChanged,
	client.CauseLocalChanged:   event.LocalChanged,
	client.CauseBetterServer:   event.BetterServer,
}

// causeOf says why the address changed.
func causeOf(e client.Event) event.Cause {
	if e.Kind == client.GotAddress {
		return event.Qualified
	}
	if cause, ok := causes[e.Cause]; ok {
		return cause
	}
	return event.Other
}
