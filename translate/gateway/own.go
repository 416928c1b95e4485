// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/keys"
)

// Own is what a translator has to know of its host: the addresses that it may send errors
// from, and what the links to either side take, in bytes; 0 is not known.
type Own struct {
	V4, V6     netip.Addr
	MTU4, MTU6 int
}

// Sources are the addresses that errors come from, where the configuration may name others.
func (o Own) Sources(c *keys.Translation) (v4, v6 netip.Addr) {
	v4, v6 = o.V4, o.V6
	if c.Address4.IsValid() {
		v4 = c.Address4
	}
	if c.Address6.IsValid() {
		v6 = c.Address6
	}
	return v4, v6
}

// LookOwn finds what a translator has to know of its host.
func (d *Device) LookOwn() (Own, error) {
	v4, err := d.own4()
	v6, err6 := d.own6()
	mtu4, mtu6, errMTU := d.linkMTUs()
	return Own{v4, v6, mtu4, mtu6}, errors.Join(err, err6, errMTU)
}

// WarnOwn warns of a family without an address to send errors from.
func WarnOwn(log *slog.Logger, t *translate.Settings) {
	if !t.Own4.IsValid() {
		log.Warn("this host has no IPv4 address, so the translator sends no ICMP errors to IPv4: set address4, or give the host one")
	}
	if !t.Own6.IsValid() {
		log.Warn("this host has no IPv6 address, so the translator sends no ICMP errors to IPv6: set address6, or give the host one")
	}
}

// own4 and own6 are addresses of this host, on other links than the device, for ICMP
// errors: the lowest, so that the answer stays the same. Not valid: there is none.
func (d *Device) own4() (netip.Addr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return netip.Addr{}, nil
	}
	return d.host.GlobalIPv4(d.tun.Name())
}

func (d *Device) own6() (netip.Addr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return netip.Addr{}, nil
	}
	list, err := d.host.IPv6()
	var best netip.Addr
	for _, one := range list {
		a := one.Prefix.Addr()
		switch {
		case one.Link == d.tun.Name():
		case best.IsValid() && one.Deprecated: // these come last
		case !best.IsValid(), best.IsPrivate() && !a.IsPrivate(), best.IsPrivate() == a.IsPrivate() && a.Less(best):
			best = a
		}
	}
	return best, err
}

// linkMTUs are the greatest MTUs of the links with IPv4 and with IPv6 addresses: by which of
// several a packet leaves, the routes say alone. IPv6 may have less of a link than the device
// takes.
func (d *Device) linkMTUs() (four, six int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return 0, 0, nil
	}
	list4, err := d.host.IPv4()
	list6, err6 := d.host.IPv6()
	for _, a := range list4 {
		if !a.Prefix.Addr().IsLoopback() {
			mtu, _ := d.mtuOf(a.Link)
			four = max(four, mtu)
		}
	}
	for _, a := range list6 {
		_, mtu := d.mtuOf(a.Link)
		six = max(six, mtu)
	}
	return four, six, errors.Join(err, err6)
}

// mtuOf returns what another link than the device takes, and how much of that IPv6 may have; 0
// if it is down; d.mu is held.
func (d *Device) mtuOf(link string) (mtu, mtu6 int) {
	index, up, err := d.host.Link(link)
	if err != nil || !up || link == d.tun.Name() {
		return 0, 0
	}
	wire, _ := d.host.WireAt(index)
	if mtu6, err = d.host.MTU6(index); err != nil {
		mtu6 = wire.MTU
	}
	return wire.MTU, mtu6
}

// Apart refuses prefixes in which this host has an address of its own: the network there
// would be taken for IPv4.
func (d *Device) Apart(prefixes []netip.Prefix) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return nil
	}
	return Apart(d.host, d.tun.Name(), prefixes)
}

func Apart(host *port.Host, but string, prefixes []netip.Prefix) error {
	list, err := host.IPv6()
	for _, p := range prefixes {
		for _, a := range list {
			if a.Link != but && p.Contains(a.Prefix.Addr()) {
				return fmt.Errorf("pool6 %s holds %s, an address of this host: choose a prefix that no network uses", p, a.Prefix.Addr())
			}
		}
	}
	return err
}

// Addresses4 lists this host's IPv4 addresses, but for the device's and loopback.
func (d *Device) Addresses4() ([]netip.Addr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return nil, nil
	}
	return HostAddresses(d.host, d.tun.Name())
}

// HostAddresses lists a host's IPv4 addresses, but for those of a link and loopback.
func HostAddresses(host *port.Host, but string) (addrs []netip.Addr, err error) {
	list, err := host.IPv4()
	for _, a := range list {
		if a.Link != but && !a.Prefix.Addr().IsLoopback() {
			addrs = append(addrs, a.Prefix.Addr())
		}
	}
	return addrs, err
}

// Local4 is [port.Host.Local4].
func (d *Device) Local4() (list []netip.Prefix, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return nil, nil
	}
	return d.host.Local4()
}
