// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/sgsn"
	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/port"
)

// terminal is what a user has on this host: a TUN device in a network namespace, which several
// contexts may share, or a link behind which a stack of its own is.
type terminal struct {
	link       int
	netns, tun string
	wire       string // the link; empty: none
	frames     *port.Frames
	resolvers  *resolvConf // nil: they are not written
	metric     int
	here       port.Namespace // of the terminal
	named      bool           // it was opened by its name
	host       *port.Host
	device     *host.Device
	cancel     context.CancelFunc // of what keeps the device
	read       chan struct{}      // closed when nobody reads from it any more; nil: nobody did
	users      map[gtp.TID]bool   // guarded by the instance's mutex, as is the next
	over       bool               // it has no users any more, and is being closed

	// Of the goroutine that follows events alone.
	contexts  map[gtp.TID]sgsn.Info
	addresses []netip.Prefix
	routes    []port.Route
	mtu       int
}

// occupy returns the terminal of a device for one more context, which it makes if there is none.
func (s *SGSN) occupy(w *want, key gtp.TID) (t *terminal, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, sgsn.ErrRetired
	}
	free := slices.Index(s.terminals, nil)
	for _, other := range s.terminals {
		switch {
		case other == nil || other.over:
		case other.users[key]:
			return nil, sgsn.ErrKnown
		case w.wire != "":
			if other.wire == w.wire {
				t = other
			}
		case other.netns == w.netns && other.tun == w.tun && w.tun != noDevice && other.wire == "":
			t = other
		}
	}
	if t != nil {
		t.users[key] = true
		return t, nil
	}
	if free < 0 {
		free = len(s.terminals)
		s.terminals = append(s.terminals, nil)
	}
	t = &terminal{
		link: free, netns: w.netns, tun: w.tun, wire: w.wire, metric: s.cfg.RouteMetric + free,
		users: map[gtp.TID]bool{key: true}, contexts: map[gtp.TID]sgsn.Info{},
	}
	switch {
	case w.wire != "":
		err = s.openWire(t)
	case w.tun != noDevice:
		err = s.open(t, w)
	}
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	s.terminals[free] = t
	return t, nil
}

// joined notes that one more context uses the terminal of a link; nil: there is none.
func (s *SGSN) joined(link int, key gtp.TID) *terminal {
	t := s.terminal(link)
	if t != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.users[key] = true
	}
	return t
}

// vacate takes a context from its terminal, which goes with the last one. Its place is free for
// another when nothing comes from it any more, and the engine has forgotten its station.
func (s *SGSN) vacate(t *terminal, key gtp.TID) error {
	s.mu.Lock()
	delete(t.users, key)
	over := len(t.users) == 0 && !t.over && t.link < len(s.terminals) && s.terminals[t.link] == t
	t.over = t.over || over
	s.mu.Unlock()
	if !over {
		return nil
	}
	s.loop.SetDevice(t.link, nil)
	err := t.close()
	s.loop.Do(func(time.Time, *sgsn.Output) { s.engine.RemoveStation(t.link) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.link < len(s.terminals) { // the instance has not ended meanwhile
		s.terminals[t.link] = nil
	}
	return err
}

// closeTerminals takes all terminals back.
func (s *SGSN) closeTerminals() error {
	s.mu.Lock()
	all := s.terminals
	s.terminals, s.closed = nil, true
	s.mu.Unlock()
	var errs []error
	for link, t := range all {
		if t != nil && !t.over {
			s.loop.SetDevice(link, nil)
			errs = append(errs, t.close())
		}
	}
	return errors.Join(errs...)
}

// open makes the device.
func (s *SGSN) open(t *terminal, w *want) error {
	t.here = s.here
	if t.netns != "" {
		here, err := port.OpenNamespace(t.netns)
		if err != nil {
			return err
		}
		t.here, t.named = here, true
	}
	if w.resolvConf {
		var err error
		if t.resolvers, err = openResolvConf(filepath.Join(resolvFolder, t.netns)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(s.ctx)
	t.cancel = cancel
	err := t.here.Do(func() (err error) {
		if t.host, err = port.OpenHost(); err != nil {
			return err
		}
		if t.device, err = host.OpenDevice(t.host, host.DeviceConfig{
			TUN:     port.TUNConfig{Name: t.tun, MTU: largestMTU, Offload: true, Lasting: true},
			Without: "this terminal is off the air",
		}, s.log); err != nil {
			return err
		}
		return t.device.Keep(ctx, s.group)
	})
	if err != nil {
		return err
	}
	tun, link := t.device.Queues[0], t.link
	s.loop.SetDevice(link, tun)
	s.serve(t, tun, func(ip []byte, now time.Time, out *sgsn.Output) { s.engine.HandleUE(link, ip, now, out) })
	return nil
}

// serve gives the engine what comes from a terminal.
func (s *SGSN) serve(t *terminal, from port.Tun, handle func(b []byte, now time.Time, out *sgsn.Output)) {
	t.read = make(chan struct{})
	s.group.Go(func() error {
		defer close(t.read)
		return s.loop.ReadTun(from, handle)
	})
}

// openWire takes the frames of a link. The stack at its far end has addresses and routes by DHCP
// and router advertisements.
func (s *SGSN) openWire(t *terminal) (err error) {
	t.here = s.here
	if err = t.here.Do(func() (err error) {
		if t.host, err = port.OpenHost(); err != nil {
			return err
		}
		if err := t.host.SetUp(t.wire); err != nil {
			return err
		}
		t.frames, err = port.OpenFrames(t.host, t.wire)
		return err
	}); err != nil {
		return err
	}
	link := t.link
	s.loop.SetDevice(link, t.frames)
	s.serve(t, t.frames, func(b []byte, now time.Time, out *sgsn.Output) { s.engine.HandleFrame(link, b, now, out) })
	return nil
}

// station has the engine be our end of the terminal's link, with an address that no other
// program has: the host's own stack drops what is for it.
func (s *SGSN) station(t *terminal) error {
	if t.frames == nil {
		return nil
	}
	var own sgsn.MAC
	if _, err := rand.Read(own[:]); err != nil {
		return fmt.Errorf("no randomness for an address: %w", err)
	}
	own[0] = own[0]&^1 | 2 // of one station, made here
	s.loop.Do(func(time.Time, *sgsn.Output) { s.engine.AddStation(t.link, own) })
	return nil
}

// terminal returns that of a link; nil: there is none.
func (s *SGSN) terminal(link int) *terminal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if link < 0 || link >= len(s.terminals) || s.terminals[link] == nil || s.terminals[link].over {
		return nil
	}
	return s.terminals[link]
}

// apply gives the terminal what its contexts have: one of them has come, changed or gone.
func (t *terminal) apply(key gtp.TID, i sgsn.Info, there bool) error {
	switch {
	case !there || i.State == sgsn.Opening: // it may be opened anew, elsewhere
		delete(t.contexts, key)
	default:
		t.contexts[key] = i
	}
	if t.device == nil {
		return nil
	}
	return t.here.Do(t.reconcile)
}

// reconcile sets addresses, routes and MTU.
func (t *terminal) reconcile() error {
	has := t.wanted()
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	link := t.device.Name()
	if has.mtu != t.mtu {
		note(t.host.SetMTU(link, has.mtu))
		t.mtu = has.mtu
	}
	for _, r := range t.routes {
		if !slices.Contains(has.routes, r) {
			note(t.host.RemoveRoute(r))
		}
	}
	for _, a := range t.addresses {
		if !slices.Contains(has.addresses, a) {
			note(t.host.RemoveAddr(link, a))
		}
	}
	for _, a := range has.addresses {
		if !slices.Contains(t.addresses, a) {
			note(t.host.AddAddr(link, a))
		}
	}
	for _, a := range has.deprecated {
		note(t.host.Prefer(link, a, false))
	}
	for _, r := range has.routes {
		if !slices.Contains(t.routes, r) {
			note(t.host.AddRoute(r))
		}
	}
	t.addresses, t.routes = has.addresses, has.routes
	if t.resolvers != nil {
		note(t.resolvers.write(has.dns, has.search))
	}
	return errors.Join(errs...)
}

// String names the terminal for people.
func (t *terminal) String() string {
	if t.wire != "" {
		return t.wire
	}
	if t.netns == "" {
		return t.tun
	}
	return fmt.Sprintf("%s in %s", t.tun, t.netns)
}

// close takes back all that was set up.
func (t *terminal) close() error {
	var err error
	if t.cancel != nil {
		t.cancel() // nothing is set up again from here on
	}
	t.device.End(false)
	if t.frames != nil {
		_ = t.frames.Close()
	}
	if t.read != nil {
		<-t.read // the device goes with the last who uses it
	}
	if t.resolvers != nil {
		err = t.resolvers.restore()
	}
	if t.host != nil {
		err = errors.Join(err, t.host.Close())
	}
	if t.named {
		t.here.Close()
	}
	return err
}
