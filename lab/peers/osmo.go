// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
)

// OsmoGGSN is the configuration of osmo-ggsn, a GGSN in user space with one TUN device per
// APN. Its host must forward.
type OsmoGGSN struct {
	// Name distinguishes instances; it names the files. One runs in a network namespace.
	Name string
	// Bind is its address towards SGSNs.
	Bind netip.Addr
	// APNs that it serves; the first is the default.
	APNs []OsmoAPN
}

// OsmoAPN is an access point of an [OsmoGGSN] for one family of addresses.
type OsmoAPN struct {
	// Name of the access point, Device of its TUN.
	Name, Device string
	// Pool are the addresses of its UEs: of IPv4 one each, of IPv6 a /64 each.
	Pool netip.Prefix
	// DNS is the name server that UEs are told.
	DNS netip.Addr
}

// OsmoGGSN writes the configuration below dir and returns the command.
func (p *Peers) OsmoGGSN(dir string, c OsmoGGSN) (*Command, error) {
	i, err := p.instance("osmo-ggsn", dir, c.Name)
	if err != nil {
		return nil, err
	}
	state, err := i.folder(stateFolder)
	if err != nil {
		return nil, err
	}
	return i.command(c.config(state), "-c", i.at(configured))
}

// stateFolder holds the restart counter, which the programs of Osmocom raise at each start.
const stateFolder = ".state"

func (c OsmoGGSN) config(state string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "line vty\n no login\nggsn ggsn0\n gtp state-dir %s\n gtp bind-ip %s\n", state, c.Bind)
	for _, a := range c.APNs {
		family, ip := "v4", "ip"
		if a.Pool.Addr().Is6() {
			family, ip = "v6", "ipv6"
		}
		fmt.Fprintf(&b, " apn %s\n  gtpu-mode tun\n  tun-device %s\n  type-support %s\n", a.Name, a.Device, family)
		fmt.Fprintf(&b, "  %s prefix dynamic %s\n  %s dns 0 %s\n  %s ifconfig %s\n  no shutdown\n", ip, a.Pool, ip, a.DNS, ip, a.Pool)
	}
	fmt.Fprintf(&b, " default-apn %s\n no shutdown ggsn\n", c.APNs[0].Name)
	return b.String()
}

// Sgsnemu is one run of sgsnemu, osmo-ggsn's emulator of an SGSN, which brings up one PDP
// context with a TUN device and keeps it until SIGTERM. Some 20 s behind the end of the
// context it goes; one may kill it then.
type Sgsnemu struct {
	// Name distinguishes instances; it names the files. One runs at an address.
	Name string
	// Listen is its address, Remote the GGSN's.
	Listen, Remote netip.Addr
	// APN is the access point that it asks for.
	APN string
	// IPv6 asks for an IPv6 context, not one of IPv4.
	IPv6 bool
	// GTPVersion is 0 or 1.
	GTPVersion int
	// IMSI of the subscriber; empty is the program's own.
	IMSI string
	// Device is the TUN, which the default route leads to.
	Device string
	// NoRecovery keeps the restart counter out of its requests: of two instances at one
	// address the second would seem to be the first one, restarted.
	NoRecovery bool
}

// Sgsnemu returns the command, whose state lies below dir.
func (p *Peers) Sgsnemu(dir string, c Sgsnemu) (*Command, error) {
	i, err := p.instance("sgsnemu", dir, c.Name)
	if err != nil {
		return nil, err
	}
	state, err := i.folder(stateFolder)
	if err != nil {
		return nil, err
	}
	family := "v4"
	if c.IPv6 {
		family = "v6"
	}
	args := []string{
		"--listen", c.Listen.String(), "--remote", c.Remote.String(), "--statedir", state, "--pidfile", i.at(".pid"),
		"--apn", c.APN, "--pdp-type", family, "--gtpversion", strconv.Itoa(c.GTPVersion),
		"--createif", "--defaultroute", "--tun-device", c.Device,
	}
	if c.IMSI != "" {
		args = append(args, "--imsi", c.IMSI)
	}
	if c.NoRecovery {
		args = append(args, "--norecovery")
	}
	// It tells what it does by the C library's buffer, for a file once it ends.
	stdbuf, err := exec.LookPath("stdbuf")
	if err != nil {
		return nil, fmt.Errorf("stdbuf of the GNU coreutils is needed to hear what sgsnemu says: %w", err)
	}
	return &Command{Path: stdbuf, Args: append([]string{"-oL", i.path}, args...)}, nil
}
