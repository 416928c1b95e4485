// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/translate/keys"
)

// Device is the TUN device of one translator, with the routes and neighbour proxies
// that lead packets there.
type Device struct {
	log         *slog.Logger
	LastRestore time.Duration // see [host.DeviceConfig]; for tests
	check       host.SelfCheck[struct{}]

	mu      sync.Mutex     // guards what follows
	host    *port.Host     // open while running
	here    port.Namespace // likewise
	tun     *host.Device   // nil before it is open
	route   bool           // the configuration wants routes
	want    []netip.Prefix
	set     map[netip.Prefix]bool // routes that are set
	left    []netip.Prefix        // those of an earlier process, until it is known which are wanted
	proxies map[proxy]bool        // that are set
}

// NewDevice makes the device of a translator, without touching the host.
func NewDevice(log *slog.Logger) *Device {
	return &Device{log: log, set: make(map[netip.Prefix]bool), proxies: make(map[proxy]bool)}
}

// Name is that of the device.
func (d *Device) Name() string { return d.tun.Name() }

// Host is what the device undoes at its end, while it is open.
func (d *Device) Host() *port.Host { return d.host }

// Running reports whether the device is open.
func (d *Device) Running() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.host != nil
}

// Queues are those of the device, once it is open.
func (d *Device) Queues() []*port.TUN { return d.tun.Queues }

// Open makes the device, in the network namespace of the calling thread. A persistent one
// outlives the process. reopened is called when the device was deleted and made again.
func (d *Device) Open(cfg *keys.Translation, persistent bool, reopened func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	if d.here, err = port.CurrentNamespace(); err != nil {
		return err
	}
	if d.host, err = port.OpenHost(); err != nil {
		d.here.Close()
		return err
	}
	if d.tun, err = host.OpenDevice(d.host, host.DeviceConfig{
		TUN:       port.TUNConfig{Name: cfg.Interface, MTU: cfg.MTU, Forwarding: true, Offload: true, Persistent: persistent, Lasting: true},
		Queues:    loop.Workers(cfg.Workers),
		Configure: d.host.GatewayIPv4,
		Without:   "nothing is translated", Reopened: reopened, LastRestore: d.LastRestore,
	}, d.log); err != nil {
		return err
	}
	d.route = cfg.Route
	d.left, err = d.host.RoutesBy(d.tun.Name())
	return err
}

// Keep keeps the device, and what leads to it, as they are to be until ctx is done.
func (d *Device) Keep(ctx context.Context, group *errgroup.Group) error {
	return d.tun.Keep(ctx, group)
}

// InNamespace has f look at this host, in the device's network namespace.
func (d *Device) InNamespace(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return
	}
	if err := d.here.Do(func() error { f(); return nil }); err != nil {
		d.log.Warn("cannot determine whether packets pass through this host", "error", err)
	}
}

// State is the word for a status, on a host of which is known what passes, with what is
// missing.
func (d *Device) State(p *Passage) (word string, missing []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return "starting", nil
	}
	kept := d.tun.State()
	word = kept.Word()
	switch {
	case word != "":
	case len(p.Closed) > 0:
		word = "blocked"
	default:
		word = "serving"
	}
	return word, kept.All()
}

// Stats are the counters of all queues.
func (d *Device) Stats() (sum port.Stats, queues int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tun != nil {
		queues = len(d.tun.Queues)
	}
	return d.tun.Stats(), queues
}

// End makes the loops end. The device goes, unless it is left to a successor: then the last
// packets are read before.
func (d *Device) End(leave bool) {
	d.mu.Lock()
	tun := d.tun
	d.mu.Unlock()
	tun.EndLater(leave)
}

// Close undoes what leads to the device, and closes it; or leaves all to a successor.
func (d *Device) Close(leave bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	if d.host != nil {
		d.here.Close()
		if leave {
			d.host.Abandon()
		} else {
			err = d.host.Close()
		}
		d.host = nil
	}
	d.tun.End(leave)
	return err
}
