// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"net/netip"
	"strings"
)

// Tayga is the configuration of tayga, a stateless translator in user space. It
// works through a TUN device, which the caller makes by the first command, sets up,
// and routes the prefix and the IPv4 addresses to before it starts the second.
type Tayga struct {
	// Name distinguishes instances; it names the files.
	Name string
	// Device is the TUN device.
	Device string
	// IPv4 and IPv6 are tayga's own addresses, which errors come from. IPv6 lies
	// outside of Prefix.
	IPv4, IPv6 netip.Addr
	// Prefix is the translation prefix, /96.
	Prefix netip.Prefix
	// Map gives IPv6 hosts their IPv4 addresses.
	Map []TaygaMap
}

// TaygaMap is an IPv6 host and the IPv4 address that stands for it.
type TaygaMap struct{ IPv6, IPv4 netip.Addr }

// Tayga writes the configuration below dir and returns the commands that make its
// device and that run it.
func (p *Peers) Tayga(dir string, c Tayga) (device, run *Command, err error) {
	i, err := p.instance("tayga", dir, c.Name)
	if err != nil {
		return nil, nil, err
	}
	data, err := i.folder("")
	if err != nil {
		return nil, nil, err
	}
	config := c.config(data)
	if device, err = i.command(config, "-c", i.at(configured), "--mktun"); err != nil {
		return nil, nil, err
	}
	run, err = i.command(config, "-c", i.at(configured), "-n", "-p", i.at(".pid"))
	return device, run, err
}

func (c Tayga) config(data string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "tun-device %s\nipv4-addr %s\nipv6-addr %s\nprefix %s\n", c.Device, c.IPv4, c.IPv6, c.Prefix)
	for _, m := range c.Map {
		fmt.Fprintf(&b, "map %s %s\n", m.IPv4, m.IPv6)
	}
	fmt.Fprintf(&b, "data-dir %s\n", data)
	return b.String()
}
