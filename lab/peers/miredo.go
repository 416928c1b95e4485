// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// miredoUser is whom Miredo becomes once its sockets are open. Its own account
// does not exist where its package is only unpacked.
const miredoUser = "nobody"

// Command is one peer ready to be started in a namespace of the caller's
// choice. The process stays in the foreground; stop it with SIGTERM to its
// process id.
type Command struct {
	// Path is the absolute path of the program, Args what follows its name.
	Path string
	Args []string
	// Env holds variables ("NAME=value") to add to the caller's environment.
	Env []string
	// Config is the text of the configuration file and ConfigPath the file,
	// written already; both are empty if the program takes none.
	Config     string
	ConfigPath string
}

// MiredoServer is the configuration of a Miredo server.
type MiredoServer struct {
	// Name tells instances apart; it names the files.
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
	// Name tells instances apart; it names the files.
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
	// Name tells instances apart; it names the files.
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
	path, err := p.Program(program)
	if err != nil {
		return nil, err
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("the folder for %s cannot be reached: %w", name, err)
	}
	file := filepath.Join(dir, name+".conf")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return nil, fmt.Errorf("the configuration of %s cannot be written: %w", name, err)
	}
	return &Command{
		Path:       path,
		Args:       []string{"-f", "-c", file, "-p", filepath.Join(dir, name+".pid"), "-u", miredoUser},
		Config:     config,
		ConfigPath: file,
	}, nil
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
