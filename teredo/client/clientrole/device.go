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
//
// A device on standby, beside native IPv6, has its addresses for those alone who
// bind to them: all are deprecated, and of the routes there are those alone that
// are for packets from these addresses.
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
	network netip.Prefix // of the routes
	standby bool         // native IPv6 is there, and told is whether the last event said so
	told    bool
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
		if err := d.unroute(c, old, a); err != nil {
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
	if d.cfg.Native == NativeStandby {
		return errors.Join(d.hold(c), d.addSourceRoutes(a))
	}
	if err := d.host.AddAddr(d.tun.Name(), netip.PrefixFrom(a, addressBits)); err != nil || c == d.active {
		return err
	}
	return d.prefer(c, false)
}

// prefer makes the address of a client the one for new connections, or deprecates it.
func (d *device) prefer(c *Client, preferred bool) error {
	if d.cfg.Native == NativeStandby {
		return d.hold(c)
	}
	return d.host.Prefer(d.tun.Name(), netip.PrefixFrom(d.addrs[c].addr, addressBits), preferred)
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

// unroute takes routes away before the address that they need.
func (d *device) unroute(c *Client, old, next netip.Addr) error {
	if err := d.removeSourceRoutes(old); err != nil {
		return err
	}
	if c != d.active || !d.routed || next.IsValid() && networkOf(next) == d.network {
		return nil
	}
	return d.removeRoutes()
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
		if !d.addrs[step.client].addr.IsValid() {
			continue // also of no one, the one before the first
		}
		if err := d.unlessDown(d.prefer(step.client, step.preferred)); err != nil {
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
	wanted := now.addr.IsValid() && !d.standby
	var err error
	switch {
	case wanted && !d.routed:
		err = d.unlessDown(d.addRoutes(now.addr))
	case !wanted && d.routed:
		err = d.removeRoutes()
	}
	if err != nil || now.addr == d.current && (!now.addr.IsValid() || d.standby == d.told) {
		return err
	}
	e := event.AddressChange{
		Instance: d.cfg.Name, Old: d.current, New: now.addr, Standby: now.addr.IsValid() && d.standby,
		Interface: d.tun.Name(), Via: now.via, Cause: why, Time: time.Now(),
	}
	d.current, d.told = now.addr, d.standby
	for _, f := range d.tell {
		f(e)
	}
	return nil
}

// addRoutes has what the host sends leave by the device.
func (d *device) addRoutes(a netip.Addr) (err error) {
	d.network = networkOf(a)
	if d.cfg.Native == NativeStandby {
		err = d.host.AddRoute(d.networkRoute())
	}
	err = errors.Join(err, routeTaken(d.host.AddRoute(clientRoute(&d.cfg, d.tun.Name()))))
	d.routed = err == nil
	return err
}

// removeRoutes ends that.
func (d *device) removeRoutes() (err error) {
	d.routed = false
	if d.cfg.Native == NativeStandby {
		err = d.host.RemoveRoute(d.networkRoute())
	}
	return errors.Join(err, d.host.RemoveRoute(clientRoute(&d.cfg, d.tun.Name())))
}

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
	if d.routed || d.standby || !d.addrs[d.active].addr.IsValid() {
		return nil
	}
	return d.addRoutes(d.addrs[d.active].addr)
}
