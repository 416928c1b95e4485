// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"net/netip"
	"strings"
)

// Unbound is the configuration of unbound, a recursive name server that validates. It
// knows the zones and records that are written here and asks no one else.
type Unbound struct {
	// Name distinguishes instances; it names the files.
	Name string
	// Listen is where it answers, over UDP and TCP.
	Listen netip.AddrPort
	// Allow are who may ask.
	Allow []netip.Prefix
	// Zones are served out of texts in the form of zone files.
	Zones []UnboundZone
	// Anchors are DS or DNSKEY records of the keys that are trusted. None: nothing is
	// validated.
	Anchors []string
	// DNS64 is the prefix by which it makes AAAA records itself. Not valid: it makes
	// none.
	DNS64 netip.Prefix
}

// UnboundZone is a zone with its text.
type UnboundZone struct{ Name, Text string }

// Unbound writes the configuration below dir and returns the command that runs it.
func (p *Peers) Unbound(dir string, c Unbound) (*Command, error) {
	i, err := p.instance("unbound", dir, c.Name)
	if err != nil {
		return nil, err
	}
	ending := func(n int) string { return fmt.Sprintf("-%d.zone", n) }
	for n, z := range c.Zones {
		if err := i.write(ending(n), z.Text); err != nil {
			return nil, err
		}
	}
	config := c.config(i.dir, func(n int) string { return i.at(ending(n)) })
	return i.command(config, "-d", "-p", "-c", i.at(configured))
}

func (c Unbound) config(dir string, zone func(int) string) string {
	var b strings.Builder
	modules := "iterator"
	if len(c.Anchors) > 0 {
		modules = "validator iterator"
	}
	if c.DNS64.IsValid() {
		modules = "dns64 " + modules
	}
	fmt.Fprintf(&b, `server:
  directory: %q
  chroot: ""
  username: ""
  pidfile: ""
  use-syslog: no
  verbosity: 1
  module-config: %q
  interface: %s@%d
  do-daemonize: no
  hide-version: yes
  minimal-responses: no
  ede: yes
  root-hints: ""
  do-not-query-localhost: no
  unblock-lan-zones: yes
  insecure-lan-zones: yes
`, dir, modules, c.Listen.Addr(), c.Listen.Port())
	for _, p := range c.Allow {
		fmt.Fprintf(&b, "  access-control: %s allow\n", p)
	}
	for _, a := range c.Anchors {
		fmt.Fprintf(&b, "  trust-anchor: \"%s\"\n", strings.Join(strings.Fields(a), " ")) // no tab survives quoting
	}
	if c.DNS64.IsValid() {
		fmt.Fprintf(&b, "  dns64-prefix: %s\n", c.DNS64)
	}
	b.WriteString("remote-control:\n  control-enable: no\n")
	for i, z := range c.Zones {
		fmt.Fprintf(&b, "auth-zone:\n  name: %q\n  zonefile: %q\n  for-upstream: yes\n  for-downstream: no\n  fallback-enabled: no\n", z.Name, zone(i))
	}
	return b.String()
}
