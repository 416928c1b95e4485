// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// Tayga is the configuration of tayga, a stateless translator in user space. It
// works through a TUN device, which the caller makes by the first command, sets up,
// and routes the prefix and the IPv4 addresses to before it starts the second.
type Tayga struct {
	// Name tells instances apart; it names the files.
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
	path, err := p.Program("tayga")
	if err != nil {
		return nil, nil, err
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("the folder for %s cannot be reached: %w", c.Name, err)
	}
	data := filepath.Join(dir, c.Name)
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, nil, fmt.Errorf("the folder for %s cannot be made: %w", c.Name, err)
	}
	file, config := filepath.Join(dir, c.Name+".conf"), c.config(data)
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return nil, nil, fmt.Errorf("the configuration of %s cannot be written: %w", c.Name, err)
	}
	command := func(args ...string) *Command {
		return &Command{Path: path, Args: append([]string{"-c", file}, args...), Config: config, ConfigPath: file}
	}
	return command("--mktun"), command("-n", "-p", filepath.Join(dir, c.Name+".pid")), nil
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
