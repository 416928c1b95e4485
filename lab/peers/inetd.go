// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"os"
)

// Inetd is the configuration of a superserver that serves finger and telnet. Who
// comes by telnet is greeted and told what the first line said.
type Inetd struct {
	// Name distinguishes instances; it names the files.
	Name string
	// IPv6 serves by IPv6 instead of IPv4.
	IPv6 bool
}

// TelnetGreeting is what a telnet session begins with, and TelnetEcho what stands
// before the line that was typed.
const (
	TelnetGreeting = "welcome"
	TelnetEcho     = "you said "
)

// Inetd writes the configuration below dir and returns the command.
func (p *Peers) Inetd(dir string, c Inetd) (*Command, error) {
	i, err := p.instance("inetutils-inetd", dir, c.Name)
	if err != nil {
		return nil, err
	}
	for _, service := range []string{"in.fingerd", "telnetd"} {
		if _, err := p.Program(service); err != nil {
			return nil, err
		}
	}
	login := i.at("-login")
	// It stays until the caller hangs up: what a terminal holds when its program ends is
	// not always read.
	script := fmt.Sprintf("#!/bin/sh\necho %q\nread -r line\necho \"%s$line\"\nread -r line\n", TelnetGreeting, TelnetEcho)
	if err := os.WriteFile(login, []byte(script), 0o755); err != nil {
		return nil, fmt.Errorf("the login program of %s cannot be written: %w", c.Name, err)
	}
	return i.command(c.config(login), "-d", "-p"+i.at(".pid"), i.at(configured))
}

// config names the programs by where the wrapper's mount namespace has them.
func (c Inetd) config(login string) string {
	protocol := "tcp"
	if c.IPv6 {
		protocol = "tcp6"
	}
	return fmt.Sprintf("finger stream %s nowait root /usr/sbin/in.fingerd in.fingerd\n", protocol) +
		fmt.Sprintf("telnet stream %s nowait root /usr/sbin/telnetd telnetd -h -E %s\n", protocol, login)
}
