// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/event"
	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/teredo"
)

// addressBits makes the whole service prefix on-link, so that other Teredo
// clients are reached without a router.
const addressBits = 32

// device is the TUN device of one client, or of several that work by different
// interfaces. Each client's address is on it; that of the active one is preferred
// for new connections, the others are deprecated and work on. While the active
// client has an address, the default route leads to the device.
type device struct {
	cfg  Settings
	log  *slog.Logger
	fast *fastPath

	lastRestore time.Duration // see host.DeviceConfig

	opening sync.RWMutex // guards tun and host
	tun     *host.Device
	host    *port.Host

	mu      sync.Mutex // guards what follows, and changes of the device
	addrs   map[*Client]assigned
	active  *Client
	current netip.Addr
	routed  bool
	tell    []func(event.AddressChange)
}

// assigned is the address of one client.
type assigned struct {
	addr netip.Addr
	via  string
}

func newDevice(cfg Settings, log *slog.Logger) *device {
	d := &device{cfg: cfg, log: log, addrs: map[*Client]assigned{}, fast: newFastPath(cfg, log)}
	d.onChange(func(event.AddressChange) { d.fast.address() })
	return d
}

// open makes the device, in the network namespace of the calling thread.
func (d *device) open(ctx context.Context) error {
	kernel, err := port.OpenHost()
	if err != nil {
		return err
	}
	d.opening.Lock()
	defer d.opening.Unlock()
	d.host = kernel
	if d.tun, err = host.OpenDevice(kernel, host.DeviceConfig{
		TUN:     port.TUNConfig{Name: d.cfg.Interface, MTU: teredo.MTU, Offload: true, Lasting: true},
		Without: "this host has no Teredo", Up: d.restore, Reopened: d.fast.DeviceReplaced, LastRestore: d.lastRestore,
	}, d.log); err != nil {
		return err
	}
	if ctx.Err() != nil {
		// The end came before, and found no device to close.
		d.tun.End(false)
	}
	return nil
}

// keep keeps the device as it is to be until ctx is done.
func (d *device) keep(ctx context.Context, group *errgroup.Group) error {
	d.opening.RLock()
	defer d.opening.RUnlock()
	return d.tun.Keep(ctx, group)
}

// kept is what is not as it should be.
func (d *device) kept() host.State {
	d.opening.RLock()
	defer d.opening.RUnlock()
	return d.tun.State()
}

// endReads makes a waiting reader return.
func (d *device) endReads() {
	d.opening.RLock()
	defer d.opening.RUnlock()
	d.tun.End(false)
}

// close gives addresses, routes and the device back.
func (d *device) close() (err error) {
	d.opening.Lock()
	defer d.opening.Unlock()
	if d.host != nil {
		err = d.host.Close()
	}
	d.tun.End(false)
	return err
}

// WriteBatch implements [port.IPWriter]. What an engine would deliver before the
// device is open is lost, but its address is not known to anybody then.
func (d *device) WriteBatch(pkts [][]byte) error {
	d.opening.RLock()
	defer d.opening.RUnlock()
	if d.tun == nil {
		return fmt.Errorf("the device is not open yet: %w", port.ErrClosed)
	}
	return d.tun.Queues[0].WriteBatch(pkts)
}

// onChange has f called for each change of the preferred address.
func (d *device) onChange(f func(event.AddressChange)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tell = append(d.tell, f)
}

// assign gives a client another address; not valid: none.
func (d *device) assign(c *Client, a netip.Addr, via string, why event.Cause) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.addrs[c].addr
	d.addrs[c] = assigned{a, via}
	if !a.IsValid() {
		delete(d.addrs, c)
	}
	if a == old {
		return nil
	}
	if old.IsValid() {
		if err := d.unroute(c, a); err != nil {
			return err
		}
		if err := d.host.RemoveAddr(d.tun.Name(), netip.PrefixFrom(old, addressBits)); err != nil {
			return err
		}
	}
	if err := d.unlessDown(d.addAddress(c)); err != nil {
		return err
	}
	return d.settle(why)
}

// addAddress puts the address of a client on the device, if it has one.
func (d *device) addAddress(c *Client) error {
	a := d.addrs[c].addr
	if !a.IsValid() {
		return nil
	}
	if err := d.host.AddAddr(d.tun.Name(), netip.PrefixFrom(a, addressBits)); err != nil || c == d.active {
		return err
	}
	return d.host.Prefer(d.tun.Name(), netip.PrefixFrom(a, addressBits), false)
}

// unlessDown forgives errors while the device is down or deleted: what is missing is set
// when it is up again.
func (d *device) unlessDown(err error) error {
	if err == nil || errors.Is(err, unix.ENETDOWN) { // it may be up again by now
		return nil
	}
	if _, up, e := d.host.Link(d.tun.Name()); e != nil || !up {
		return nil
	}
	return err
}

// unroute takes the default route away before the address that it needs.
func (d *device) unroute(c *Client, next netip.Addr) error {
	if c != d.active || next.IsValid() || !d.routed {
		return nil
	}
	d.routed = false
	return d.host.RemoveRoute(d.route())
}

// activate makes the address of a client the preferred one. The new one is ready
// before the old one steps back, so that no packet finds none.
func (d *device) activate(c *Client) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.active
	d.active = c
	if before == c {
		return nil
	}
	for _, step := range []struct {
		client    *Client
		preferred bool
	}{{c, true}, {before, false}} {
		a := d.addrs[step.client].addr
		if !a.IsValid() {
			continue // also of no one, the one before the first
		}
		if err := d.unlessDown(d.host.Prefer(d.tun.Name(), netip.PrefixFrom(a, addressBits), step.preferred)); err != nil {
			return err
		}
	}
	if !d.current.IsValid() {
		return d.settle(event.Qualified)
	}
	return d.settle(event.InterfaceChanged)
}

// settle makes the default route follow, and tells of the change.
func (d *device) settle(why event.Cause) error {
	now := d.addrs[d.active]
	var err error
	switch {
	case now.addr.IsValid() && !d.routed:
		err = routeTaken(d.host.AddRoute(d.route()))
		d.routed = err == nil
		err = d.unlessDown(err)
	case !now.addr.IsValid() && d.routed:
		err = d.host.RemoveRoute(d.route())
		d.routed = false
	}
	if now.addr == d.current || err != nil {
		return err
	}
	e := event.AddressChange{
		Instance: d.cfg.Name, Old: d.current, New: now.addr,
		Interface: d.tun.Name(), Via: now.via, Cause: why, Time: time.Now(),
	}
	d.current = now.addr
	for _, f := range d.tell {
		f(e)
	}
	return nil
}

func (d *device) route() port.Route { return clientRoute(&d.cfg, d.tun.Name()) }

// activeClient is the client whose address is preferred, or nil.
func (d *device) activeClient() *Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.active
}

// name is the name of the device, "" before it is open.
func (d *device) name() string {
	d.opening.RLock()
	defer d.opening.RUnlock()
	return d.tun.Name()
}

// collect gives the metrics of the device and of its fast path.
func (d *device) collect(emit func(role.Metric)) {
	d.fast.collect(emit)
	d.opening.RLock()
	defer d.opening.RUnlock()
	loop.CollectPort(emit, "tun", d.tun.Stats())
}

// restore sets what could not be set while the device was down or deleted. The keeper
// does the rest.
func (d *device) restore() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.addrs {
		if err := d.addAddress(c); err != nil {
			return err
		}
	}
	if d.routed || !d.addrs[d.active].addr.IsValid() {
		return nil
	}
	err := routeTaken(d.host.AddRoute(d.route()))
	d.routed = err == nil
	return err
}
