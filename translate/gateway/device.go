// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/upkeep"
	"github.com/isthmus-net/isthmus/translate/keys"
)

// Device is the TUN device of one translator, with the routes and neighbour proxies
// that lead packets there.
type Device struct {
	log         *slog.Logger
	LastRestore time.Duration // see [upkeep.Device]; for tests

	mu      sync.Mutex // guards what follows
	host    *port.Host // open while running
	tuns    []*port.TUN
	name    string
	route   bool // the configuration wants routes
	want    []netip.Prefix
	set     map[netip.Prefix]bool // routes that are set
	left    []netip.Prefix        // those of an earlier process, until it is known which are wanted
	proxies []proxy
	here    port.Namespace // open while running
	keeper  *upkeep.Keeper // nil before start
}

// NewDevice makes the device of a translator, without touching the host.
func NewDevice(log *slog.Logger) *Device { return &Device{log: log} }

// Name is that of the device.
func (d *Device) Name() string { return d.name }

// Host is what the device undoes at its end, while it is open.
func (d *Device) Host() *port.Host { return d.host }

// Queues are those of the device, once it is open.
func (d *Device) Queues() []*port.TUN { return d.tuns }

// Open makes the device, in the network namespace of the calling thread. A persistent
// one outlives the process.
func (d *Device) Open(cfg *keys.Translation, persistent bool) error {
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
	tun := port.TUNConfig{Name: cfg.Interface, MTU: cfg.MTU, Forwarding: true, Offload: true, Persistent: persistent, Lasting: true}
	if d.tuns, err = port.OpenTUNQueues(tun, loop.Workers(cfg.Workers)); err != nil {
		return err
	}
	d.name, d.route = d.tuns[0].Name(), cfg.Route
	if d.left, err = d.host.RoutesBy(d.name); err != nil {
		return err
	}
	return d.equip(d.host)
}

// equip makes the device what it is to be.
func (d *Device) equip(host *port.Host) error {
	if err := host.TranslateIPv4(d.name); err != nil {
		return err
	}
	return host.SetUp(d.name)
}

// Keep keeps the device, and what leads to it, as they are to be until ctx is done; back is
// told when the device was made again.
func (d *Device) Keep(ctx context.Context, group *errgroup.Group, back func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	host, tuns := d.host, d.tuns
	d.keeper = upkeep.New(host, upkeep.Device{
		Name: d.name, Index: tuns[0].Index(), Without: "nothing is translated", Back: back, Last: d.LastRestore,
		Reopen: func() error {
			if err := port.ReopenTUN(tuns); err != nil {
				return err
			}
			return d.equip(host)
		},
	}, d.log)
	return d.keeper.Start(ctx, group)
}

// InNamespace has f look at this host, in the device's network namespace.
func (d *Device) InNamespace(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return
	}
	if err := d.here.Do(func() error { f(); return nil }); err != nil {
		d.log.Warn("it cannot be told whether packets pass through this host", "error", err)
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
	kept := d.keeper.State()
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
	for _, tun := range d.tuns {
		sum = sum.Plus(tun.Stats())
	}
	return sum, len(d.tuns)
}

// ClosePorts makes the loops end. The device goes, unless it is left to a successor.
func (d *Device) ClosePorts(leave bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !leave && len(d.tuns) > 0 {
		if err := d.tuns[0].Discard(); err != nil && !errors.Is(err, port.ErrClosed) {
			d.log.Warn("the device stays behind", "error", err)
		}
	}
	for _, tun := range d.tuns {
		_ = tun.Close()
	}
}

// Close undoes what leads to the device, and closes it; or leaves all to a successor.
func (d *Device) Close(leave bool) error {
	d.mu.Lock()
	host := d.host
	d.host = nil
	if host != nil {
		d.here.Close()
	}
	d.mu.Unlock()
	var err error
	if host != nil {
		if leave {
			host.Abandon()
		} else {
			err = host.Close()
		}
	}
	d.ClosePorts(leave)
	return err
}

// ErrWatchEnded is the end of what tells of changes, without the end of the instance.
var ErrWatchEnded = errors.New("the kernel tells no more of changes of addresses and links: restart isthmus")
