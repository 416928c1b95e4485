// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"context"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/event"
	"github.com/isthmus-net/isthmus/internal/retry"
	"github.com/isthmus-net/isthmus/teredo/client"
)

// path is one interface. Its client is nil while the interface does not exist.
type path struct {
	iface   string
	index   int // 0: there is none of this name
	client  *Client
	stop    context.CancelFunc
	ended   chan struct{}
	address netip.Addr
	lost    *error        // why the client ended; for those who see ended closed
	trouble retry.Trouble // of the client
	tried   int           // index of the interface that this is about
	candidate
}

// An interface that could not be used is tried again after so long.
const (
	firstBegin = time.Second
	lastBegin  = time.Minute
)

// lookAround looks at the interfaces and at the route to the server.
func (h *Handover) lookAround(ctx context.Context) error {
	routed := h.routedLink()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.paths {
		link, err := h.host.LinkNamed(p.iface)
		if err != nil {
			h.log.Warn("cannot examine an interface", "interface", p.iface, "error", err)
			continue
		}
		if p.client != nil && (link.Index != p.index || isClosed(p.ended)) {
			// Another path takes over before the address goes.
			p.candidate = candidate{}
			if err := h.chooseLocked(); err != nil {
				return err
			}
			p.end(h)
		}
		switch p.index = link.Index; {
		case link.Index != p.tried && link.Index != 0:
			p.tried, p.trouble = link.Index, retry.Trouble{First: firstBegin, Last: lastBegin}
		case link.Up && !p.up:
			p.trouble.Changed()
		}
		if p.client == nil && link.Index != 0 && p.trouble.Wait(time.Now()) == 0 {
			if err := h.begin(ctx, p); err != nil {
				return err
			}
		}
		switch {
		case p.up && !link.Up:
			p.doubted = true
		case !p.up && link.Up && p.client != nil:
			p.client.loop.Do(p.client.engine.Examine)
		}
		p.up, p.routed = link.Up, link.Index != 0 && link.Index == routed
	}
	return h.chooseLocked()
}

// routedLink is the index of the interface that the host's routes lead to towards
// the server, or 0.
func (h *Handover) routedLink() int {
	dst := anyServer
	h.mu.Lock()
	for _, s := range h.cfg.Servers {
		if s.Addr.IsValid() {
			dst = s.Addr
			break
		}
	}
	h.mu.Unlock()
	e, err := h.host.Egress(dst)
	if err != nil {
		return 0
	}
	return e.Link
}

// begin starts the client of a path whose interface has come.
func (h *Handover) begin(ctx context.Context, p *path) error {
	c, err := h.newClient(p)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	wait, err := c.start(ctx)
	if err != nil {
		stop()
		p.failed(h, err)
		return nil
	}
	p.trouble.Works(time.Now())
	ended, lost := make(chan struct{}), new(error)
	p.client, p.stop, p.ended, p.lost = c, stop, ended, lost
	h.log.Info("standing by", "via", p.iface)
	go func() {
		defer close(ended)
		*lost = wait()
	}()
	return nil
}

// failed notes why an interface is not used, and tells of it once. What is tried makes
// changes itself, which must not have it tried at once.
func (p *path) failed(h *Handover, err error) {
	now := time.Now()
	if p.trouble.Failed(err.Error(), now) {
		h.log.Warn("cannot use an interface, trying again", "interface", p.iface, "in", p.trouble.Wait(now), "error", err)
	}
}

// again is when the first interface is to be tried that could not be used; nil: never.
func (h *Handover) again() <-chan time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	var first time.Duration
	now := time.Now()
	for _, p := range h.paths {
		if wait := p.trouble.Wait(now); p.client == nil && p.index != 0 && wait > 0 && (first == 0 || wait < first) {
			first = wait
		}
	}
	if first == 0 {
		return nil
	}
	return time.After(first)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// end stops the client of a path whose interface has gone.
func (p *path) end(h *Handover) {
	p.stop()
	if err := h.tun.assign(p.client, netip.Addr{}, p.iface, event.InterfaceChanged); err != nil {
		h.log.Warn("cannot take an address back", "interface", p.iface, "error", err)
	}
	if isClosed(p.ended) && *p.lost != nil {
		p.failed(h, *p.lost)
	}
	*p = path{iface: p.iface, trouble: p.trouble, tried: p.tried}
}

// handle takes the events of the clients.
func (h *Handover) handle(c *Client, e client.Event) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.paths {
		if p.client != c {
			continue
		}
		if err := h.follows(p, e); err != nil {
			return err
		}
		if h.active < 0 || h.paths[h.active] != p {
			h.warm(c)
		}
		return nil
	}
	return nil // of a client whose interface has gone meanwhile
}

// follows makes one path, and then the choice, follow an event. A lost address
// goes only after another has taken over; h.mu is held.
func (h *Handover) follows(p *path, e client.Event) error {
	switch e.Kind {
	case client.Doubted, client.Confirmed:
		p.doubted = e.Kind == client.Doubted
		return h.chooseLocked()
	}
	p.address, p.addressed, p.doubted = e.Address, e.Address.IsValid(), false
	assign := func() error { return h.tun.assign(p.client, e.Address, p.iface, causeOf(e)) }
	if p.addressed {
		if err := assign(); err != nil {
			return err
		}
		return h.chooseLocked()
	}
	if err := h.chooseLocked(); err != nil {
		return err
	}
	return assign()
}

// chooseLocked goes over to the best path; h.mu is held.
func (h *Handover) chooseLocked() error {
	list := make([]candidate, len(h.paths))
	owners := []owner{}
	for i, p := range h.paths {
		list[i] = p.candidate
		if p.addressed {
			owners = append(owners, owner{p.address.As16(), p.client})
		}
	}
	h.owners.Store(&owners)
	next := choose(list, h.active)
	if next < 0 || next == h.active && h.paths[next].client == h.tun.activeClient() {
		return nil
	}
	h.active = next
	p := h.paths[next]
	if p.client == nil {
		return nil
	}
	if err := h.tun.activate(p.client); err != nil {
		return err
	}
	h.warm(p.client)
	h.log.Info("in use", "via", p.iface, "address", p.address)
	return nil
}
