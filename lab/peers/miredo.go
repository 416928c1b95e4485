// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"net/netip"
	"strings"
)

// miredoUser is whom Miredo becomes once its sockets are open. Its own account
// does not exist where its package is only unpacked.
const miredoUser = "nobody"

// MiredoServer is the configuration of a Miredo server.
type MiredoServer struct {
	// Name distinguishes instances; it names the files.
	Name string
	// Address and Address2 are the server's two IPv4 addresses, different and
	// both present on its host. Without Address2 Miredo takes Address + 1.
	Address, Address2 netip.Addr
	// Prefix replaces 2001:0::/32 if it is valid.
	Prefix netip.Prefix
}

// MiredoRelay is the configuration of a Miredo relay, host-specific or not.
// Its host must forward IPv6; the relay adds the route to its prefix itself.
type MiredoRelay struct {
	// Name distinguishes instances; it names the files.
	Name string
	// Interface is the tunnel to create, "teredo" if empty.
	Interface string
	// Bind is the local IPv4 address and UDP port.
	Bind netip.AddrPort
	// Prefix replaces 2001:0::/32 if it is valid.
	Prefix netip.Prefix
}

// MiredoClient is the configuration of a Miredo client. It is ready when its
// interface has an address of the server's prefix.
type MiredoClient struct {
	// Name distinguishes instances; it names the files.
	Name string
	// Interface is the tunnel to create, "teredo" if empty.
	Interface string
	// Server is the server's first IPv4 address.
	Server netip.Addr
	// BindPort is the local UDP port; 0 lets the system choose.
	BindPort uint16
}

// MiredoServer writes the configuration below dir and returns the command.
func (p *Peers) MiredoServer(dir string, c MiredoServer) (*Command, error) {
	return p.miredo(dir, "miredo-server", c.Name, c.config())
}

// MiredoRelay writes the configuration below dir and returns the command.
func (p *Peers) MiredoRelay(dir string, c MiredoRelay) (*Command, error) {
	return p.miredo(dir, "miredo", c.Name, c.config())
}

// MiredoClient writes the configuration below dir and returns the command.
func (p *Peers) MiredoClient(dir string, c MiredoClient) (*Command, error) {
	return p.miredo(dir, "miredo", c.Name, c.config())
}

// miredo prepares one of Miredo's two daemons. Each instance has its own
// configuration and process id file, since the built-in places are shared.
func (p *Peers) miredo(dir, program, name, config string) (*Command, error) {
	i, err := p.instance(program, dir, name)
	if err != nil {
		return nil, err
	}
	return i.command(config, "-f", "-c", i.at(configured), "-p", i.at(".pid"), "-u", miredoUser)
}

func (c MiredoServer) config() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ServerBindAddress %s\n", c.Address)
	if c.Address2.IsValid() {
		fmt.Fprintf(&b, "ServerBindAddress2 %s\n", c.Address2)
	}
	writePrefix(&b, c.Prefix)
	return b.String()
}

func (c MiredoRelay) config() string {
	var b strings.Builder
	fmt.Fprintf(&b, "RelayType relay\nInterfaceName %s\n", interfaceName(c.Interface))
	fmt.Fprintf(&b, "BindAddress %s\nBindPort %d\n", c.Bind.Addr(), c.Bind.Port())
	writePrefix(&b, c.Prefix)
	return b.String()
}

func (c MiredoClient) config() string {
	var b strings.Builder
	fmt.Fprintf(&b, "RelayType client\nInterfaceName %s\n", interfaceName(c.Interface))
	fmt.Fprintf(&b, "ServerAddress %s\n", c.Server)
	if c.BindPort != 0 {
		fmt.Fprintf(&b, "BindPort %d\n", c.BindPort)
	}
	return b.String()
}

func interfaceName(name string) string {
	if name == "" {
		return "teredo"
	}
	return name
}

// writePrefix adds the service prefix, which Miredo wants as an address whose
// last 96 bits are zero, without a length.
func writePrefix(b *strings.Builder, prefix netip.Prefix) {
	if prefix.IsValid() {
		fmt.Fprintf(b, "Prefix %s\n", prefix.Masked().Addr())
	}
}
