// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/isthmus-net/isthmus/internal/event"
	"github.com/isthmus-net/isthmus/internal/role"
)

// maxUnread is how many changes of addresses wait for a reader.
const maxUnread = 16

// addresses are those that instances have given the host, for readers in other processes.
type addresses struct {
	mu      sync.Mutex
	last    map[string]event.AddressChange // by instance, of those that have one
	readers map[chan event.AddressChange]bool
}

// follow notes the changes of the instances that make some.
func (a *addresses) follow(instances []role.Instance) {
	for _, i := range instances {
		if source, ok := i.(role.AddressSource); ok {
			source.OnAddressChange(a.changed)
		}
	}
}

func (a *addresses) changed(e event.AddressChange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil {
		a.last = map[string]event.AddressChange{}
	}
	a.last[e.Instance] = e
	if !e.New.IsValid() {
		delete(a.last, e.Instance)
	}
	for r := range a.readers {
		select {
		case r <- e:
		default: // it asks again, and is told what is then
			delete(a.readers, r)
			close(r)
		}
	}
}

// enter returns what is now, and what comes from now on.
func (a *addresses) enter() ([]event.AddressChange, chan event.AddressChange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.readers == nil {
		a.readers = map[chan event.AddressChange]bool{}
	}
	r := make(chan event.AddressChange, maxUnread)
	a.readers[r] = true
	now := slices.Collect(maps.Values(a.last))
	slices.SortFunc(now, func(x, y event.AddressChange) int { return x.Time.Compare(y.Time) })
	return now, r
}

func (a *addresses) leave(r chan event.AddressChange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.readers, r)
}

// Addresses implements control.Source.
func (d *Daemon) Addresses(ctx context.Context, emit func(event.AddressChange)) {
	now, changes := d.addresses.enter()
	defer d.addresses.leave(changes)
	for _, e := range now {
		emit(e)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-changes:
			if !ok {
				return
			}
			emit(e)
		}
	}
}
