// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/translate/nat64"
)

// changed follows one change of the host.
func (n *NAT64) changed(c port.Change) {
	if c.Kind == port.LinkChanged || c.Kind == port.Overrun {
		n.fast.LinksChanged()
		n.mu.Lock()
		advertisers := n.advertisers
		n.mu.Unlock()
		advertisers.linksChanged()
	}
	addresses := c.Kind == port.AddressChanged || c.Kind == port.Overrun || c.Local && c.Family == 4
	if !addresses && c.Kind != port.LinkChanged {
		return
	}
	if addresses {
		n.device.AddressesChanged()
	}
	if err := n.look(); err != nil {
		n.log.Warn("the host's addresses changed but cannot be used; the old ones stay in use", "error", err)
	}
}

// look reads the host's addresses and gives them to the engine.
func (n *NAT64) look() error {
	n.mu.Lock() // before it reads: the later of two readings is to stay
	defer n.mu.Unlock()
	if !n.device.Running() {
		return nil // closed meanwhile
	}
	at, err := n.device.LookOwn()
	hosts, err4 := n.device.Addresses4()
	local, errLocal := n.device.Local4()
	if err := errors.Join(err, err4, errLocal); err != nil {
		return err
	}
	n.local = local // at once, whatever becomes of the rest
	n.do(func(e *nat64.Engine, _ time.Time, _ *nat64.Out) { e.SetClosed(n.closed(&n.cfg)) })
	if at == n.own && slices.Equal(hosts, n.hosts) {
		return nil
	}
	settings, err := engineSettings(&n.cfg, at, hosts)
	if err != nil {
		return err
	}
	was := n.own
	n.own = at
	if err := n.reconfigure(settings, &n.cfg); err != nil {
		n.own = was
		return err
	}
	before := n.unserved()
	n.hosts = hosts
	if why := n.unserved(); why != "" && why != before {
		n.log.Warn("an address of the pool became one of this host, and is not served", "why", why)
	}
	return n.review()
}

// portsApart is the function of that name in the network namespace of the device.
func (n *NAT64) portsApart(own []nat64.Range) (err error) {
	n.device.InNamespace(func() { err = portsApart(own) })
	return err
}

// unserved says why the translator does not serve addresses of the pool, or takes them from
// the host: they became the host's own while it runs. Empty: none did. n.mu is held.
func (n *NAT64) unserved() (why string) {
	err := n.steerable(&n.cfg)
	if err == nil {
		err = n.portsApart(ownRanges(n.cfg.Pool4, n.hosts))
	}
	if err != nil {
		why = err.Error()
	}
	return why
}

// closed are the addresses that clients may not reach; n.mu is held.
func (n *NAT64) closed(cfg *Settings) []netip.Prefix {
	if cfg.AllowHost {
		return nil
	}
	return n.local
}

// steerable refuses an address of this host in the pool where nothing can lead packets
// for it to the device; n.mu is held.
func (n *NAT64) steerable(cfg *Settings) error {
	list := ownInPool(cfg, n.hosts)
	if len(list) == 0 || n.fast.Loaded() {
		return ownFit(cfg, n.hosts)
	}
	return fmt.Errorf("the pool has %s, an address of this host itself, and the program that leads its packets to the translator is not there (%s): use an address that is routed to this host, or restart where eBPF can be had", list[0], n.fast.Status().Why)
}
