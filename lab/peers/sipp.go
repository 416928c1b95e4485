// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"net/netip"
)

// Sipp is one run of sipp, which plays a scenario so many times and ends: with status 0 if each of
// them went as it is written.
type Sipp struct {
	// Name distinguishes instances; it names the files.
	Name string
	// Scenario is the text of the scenario, Standard the name of one that sipp brings along instead.
	Scenario, Standard string
	// Domain is the one whose users have passwords.
	Domain string
	// User is the one that is called in a scenario of sipp's own.
	User string
	// Local and Remote are the addresses of SIP. A server has no remote one.
	Local, Remote netip.AddrPort
	// TCP speaks over one connection.
	TCP bool
	// Calls are played, Rate a second.
	Calls, Rate int
}

// Sipp writes the scenario below dir and returns the command.
func (p *Peers) Sipp(dir string, c Sipp) (*Command, error) {
	i, err := p.instance("sipp", dir, c.Name)
	if err != nil {
		return nil, err
	}
	transport := "u1"
	if c.TCP {
		transport = "t1"
	}
	args := []string{"-t", transport, "-i", bracketed(c.Local.Addr()), "-p", fmt.Sprint(c.Local.Port()),
		"-auth_uri", c.Domain, "-m", fmt.Sprint(c.Calls), "-r", fmt.Sprint(c.Rate), "-l", fmt.Sprint(c.Calls), "-nostdin", "-timeout", "60s", "-timeout_error",
		"-trace_err", "-error_file", i.at(".errors")}
	if c.Standard != "" {
		args = append(args, "-sn", c.Standard, "-s", c.User)
	} else {
		args = append(args, "-sf", i.at(configured))
	}
	if c.Remote.IsValid() {
		args = append(args, c.Remote.String())
	}
	return i.command(c.Scenario, args...)
}

// bracketed writes an address as sipp has it.
func bracketed(a netip.Addr) string {
	if a.Is6() {
		return "[" + a.String() + "]"
	}
	return a.String()
}
