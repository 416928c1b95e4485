// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// RouterDaemon is the configuration of a daemon that sends Router Advertisements, which
// make its host the default router of others.
type RouterDaemon struct {
	// Name distinguishes instances; it names the files.
	Name string
	// Links are the interfaces, each with the prefix that is on it.
	Links map[string]netip.Prefix
	// Lifetime is how long hosts use the router.
	Lifetime time.Duration
}

// Radvd writes the configuration below dir and returns the command that runs radvd. It
// advertises several times a second.
func (p *Peers) Radvd(dir string, c RouterDaemon) (*Command, error) {
	var b strings.Builder
	for link, prefix := range c.Links {
		// Without the option of mobile nodes no interval may be below three seconds.
		fmt.Fprintf(&b, `interface %s {
	AdvSendAdvert on;
	AdvIntervalOpt on;
	MinRtrAdvInterval 0.1;
	MaxRtrAdvInterval 0.2;
	MinDelayBetweenRAs 0.1;
	AdvDefaultLifetime %d;
	prefix %s { };
};
`, link, int(c.Lifetime.Seconds()), prefix)
	}
	i, err := p.instance("radvd", dir, c.Name)
	if err != nil {
		return nil, err
	}
	return i.command(b.String(), "-n", "-m", "stderr", "-C", i.at(configured), "-p", i.at(".pid"))
}

// Dnsmasq writes the configuration below dir and returns the command that runs dnsmasq as
// a router alone, without DNS and leases. It advertises every four seconds, and when it is
// solicited.
func (p *Peers) Dnsmasq(dir string, c RouterDaemon) (*Command, error) {
	const interval = 4
	var b strings.Builder
	b.WriteString("port=0\nenable-ra\nuser=root\nlog-facility=-\nleasefile-ro\n")
	for link := range c.Links {
		fmt.Fprintf(&b, "dhcp-range=::,constructor:%s,ra-only\nra-param=%s,%d,%d\n", link, link, interval, int(c.Lifetime.Seconds()))
	}
	i, err := p.instance("dnsmasq", dir, c.Name)
	if err != nil {
		return nil, err
	}
	return i.command(b.String(), "--keep-in-foreground", "--conf-file="+i.at(configured), "--pid-file=")
}
