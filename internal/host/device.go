// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/port"
)

// DeviceConfig says what device an instance needs, and who is told of it.
type DeviceConfig struct {
	TUN    port.TUNConfig
	Queues int // 0: one
	// VRF, if set, is the one that the device is in, and whose table has its routes. What none of
	// the routes there leads is refused: see [port.Host.Contain].
	VRF string
	// Configure, if set, sets what the device needs beside being up, each time that it is
	// made.
	Configure func(device string) error
	// Without is what does not work without the device, for the log.
	Without string
	// Up, if set, sets up what could not be while the device was down or deleted.
	Up func() error
	// Reopened, if set, is called when the device was deleted and made again, with its routes.
	Reopened func()
	// LastRestore is the longest wait before what someone removes again and again is set up
	// once more; 0: a minute.
	LastRestore time.Duration
}

// Device is the TUN device of an instance. Its methods may be called by all, and those that
// tell something on a nil Device too, which is one that is not open yet.
type Device struct {
	Queues []*port.TUN // at least one

	cfg    DeviceConfig
	log    *slog.Logger
	host   *port.Host
	keeper atomic.Pointer[Keeper]
	ending sync.Mutex // so that who ends the device a second time finds it gone
}

// OpenDevice makes a device in the network namespace of the calling thread, and sets it up.
// What leads to it is the work of host, which is to be closed before it. A device that could
// not be set up is returned with the error: whether it stays is for who ends it.
func OpenDevice(host *port.Host, cfg DeviceConfig, log *slog.Logger) (*Device, error) {
	d := &Device{cfg: cfg, log: log, host: host}
	var err error
	if d.Queues, err = port.OpenTUNQueues(cfg.TUN, max(cfg.Queues, 1)); err != nil {
		return nil, err
	}
	if cfg.VRF != "" {
		if err := host.Contain(cfg.VRF); err != nil {
			return d, err
		}
	}
	return d, d.configure()
}

// configure sets the device up.
func (d *Device) configure() error {
	if d.cfg.Configure != nil {
		if err := d.cfg.Configure(d.Name()); err != nil {
			return err
		}
	}
	if d.cfg.VRF != "" { // before it is up: a move flushes addresses and routes
		if err := d.host.Enslave(d.Name(), d.cfg.VRF); err != nil {
			return err
		}
	}
	return d.host.SetUp(d.Name())
}

// Name is the device's name, empty before it is open.
func (d *Device) Name() string {
	if d == nil {
		return ""
	}
	return d.Queues[0].Name()
}

// Index is its number in the network namespace.
func (d *Device) Index() int { return d.Queues[0].Index() }

// Keep keeps the device, and what the host has set up, as they are to be until ctx is done. It
// watches the network namespace of the calling thread.
func (d *Device) Keep(ctx context.Context, group *errgroup.Group) error {
	k := NewKeeper(d.host, KeptDevice{
		Name: d.Name(), Index: d.Index(), Without: d.cfg.Without, Up: d.cfg.Up, Back: d.cfg.Reopened, Last: d.cfg.LastRestore,
		Reopen: func() error {
			if err := port.ReopenTUN(d.Queues); err != nil {
				return err
			}
			return d.configure()
		},
	}, d.log)
	d.keeper.Store(k)
	return k.Start(ctx, group)
}

// State is what is not as it should be.
func (d *Device) State() State {
	if d == nil {
		return State{}
	}
	return d.keeper.Load().State()
}

// Route leads packets to the device, or expects others to, unless own. A device that an earlier
// process has left makes room, when the configuration has had another name for it.
func (d *Device) Route(r port.Route, own bool) error {
	r.Link, r.VRF = d.Name(), d.cfg.VRF
	if !own {
		return d.host.Expect(r)
	}
	err := d.host.AddRoute(r)
	taken := new(port.RouteTakenError)
	if !errors.As(err, &taken) {
		return err
	}
	if removed, _ := d.host.RemoveTUN(taken.Link); !removed {
		return err // it is someone's
	}
	d.log.Info("a device that an earlier process has left is removed", "interface", taken.Link)
	return d.host.AddRoute(r)
}

// Unroute takes back what Route has done.
func (d *Device) Unroute(r port.Route, own bool) error {
	r.Link, r.VRF = d.Name(), d.cfg.VRF
	if !own {
		d.host.Unexpect(r)
		return nil
	}
	return d.host.RemoveRoute(r)
}

// Stats are the counters of all queues.
func (d *Device) Stats() (sum port.Stats) {
	if d == nil {
		return sum
	}
	for _, q := range d.Queues {
		sum = sum.Plus(q.Stats())
	}
	return sum
}

// End makes those who read from the device return. The device goes, unless it is left to a
// successor.
func (d *Device) End(leave bool) {
	if d == nil {
		return
	}
	d.ending.Lock()
	defer d.ending.Unlock()
	if !leave {
		if err := d.Queues[0].Discard(); err != nil && !errors.Is(err, port.ErrClosed) {
			d.log.Warn("the device stays behind", "error", err)
		}
	}
	for _, q := range d.Queues {
		_ = q.Close()
	}
}

// lastPackets is how long an engine goes on when a successor is to come: packets that programs
// have left to it lie in its device's queue.
const lastPackets = 20 * time.Millisecond

// EndLater is End for an instance whose work ends; one that leaves reads the last packets first.
func (d *Device) EndLater(leave bool) {
	if leave {
		time.Sleep(lastPackets)
	}
	d.End(leave)
}
