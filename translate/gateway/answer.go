// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
)

// sweep ends the answers for addresses that a process which was killed has left; d.mu is
// held.
func (d *Device) sweep() {
	removed, err := d.host.RemoveLeftProxies()
	for _, what := range removed {
		d.log.Info("what an earlier process has left is removed", "what", what)
	}
	if err != nil {
		d.log.Warn("answers for addresses that an earlier process has left stay", "error", err)
	}
}

// maxProxies bounds the addresses that are answered for one by one.
const maxProxies = 4096

// answer makes this host answer, on the links whose networks they are in, for the IPv4
// addresses that lead to the device: hosts there ask by ARP instead of a router. d.mu
// is held.
func (d *Device) answer() error {
	if !d.route {
		return nil
	}
	own, err := d.host.Addresses()
	if err != nil {
		return err
	}
	want := make(map[proxy]bool)
	for _, p := range d.want {
		for _, o := range own {
			if !p.Addr().Is4() || o.Link.Name == d.tun.Name() || o.Prefix.Bits() == 32 || !o.Prefix.Masked().Contains(p.Addr()) || p.Bits() < o.Prefix.Bits() {
				continue
			}
			if len(want)+1<<(32-p.Bits()) > maxProxies {
				d.log.Warn("too many addresses lie in a connected network to be answered for one by one: have the routers there route the prefix to this host", "prefix", p, "interface", o.Link.Name)
				continue
			}
			for a := p.Addr(); p.Contains(a); a = a.Next() {
				want[proxy{o.Link.Name, o.Link.Index, a}] = true
			}
		}
	}
	return d.setProxies(want)
}

// setProxies brings the proxies to those wanted; d.mu is held. What fails is tried again the
// next time.
func (d *Device) setProxies(want map[proxy]bool) error {
	var errs []error
	for p := range d.proxies { // first: a link that is made again may have its former name
		if want[p] {
			continue
		}
		if err := d.host.RemoveProxy(p.link, p.addr); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(d.proxies, p)
	}
	for p := range want {
		if d.proxies[p] {
			continue
		}
		if err := d.host.AddProxy(p.link, p.addr); err != nil {
			errs = append(errs, err)
			continue
		}
		d.proxies[p] = true
	}
	return errors.Join(errs...)
}

// AddressesChanged answers for the pool where the networks are now.
func (d *Device) AddressesChanged() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return
	}
	if err := d.answer(); err != nil {
		d.log.Warn("the host's networks changed and the pool cannot be answered for everywhere", "error", err)
	}
}

// proxy is an address that this host answers for on a link.
type proxy struct {
	link  string
	index int // of the link
	addr  netip.Addr
}

// CleanProxies ends the answers for addresses of pools that no device of a translator leads
// anywhere.
func CleanProxies() (role.Cleaned, error) {
	host, err := port.OpenHost()
	if err != nil {
		return role.Cleaned{}, err
	}
	defer host.Abandon()
	removed, err := host.RemoveLeftProxies()
	return role.Cleaned{Removed: removed}, err
}
