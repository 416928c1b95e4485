// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/lab"
)

// shownDatagrams is how many datagrams of one step are told about.
const shownDatagrams = 12

// say prints a line with the time since the start of the tour.
func (g *guide) say(format string, args ...any) {
	g.env.Step("  %6.3f s  %s", time.Since(g.begin).Seconds(), fmt.Sprintf(format, args...))
}

// detail prints a line that belongs to the one before.
func (g *guide) detail(format string, args ...any) {
	g.env.Step("            %s", fmt.Sprintf(format, args...))
}

// saw reports what became of a first ping.
func (g *guide) saw(what string, r lab.PingResult) {
	if r.First() < 0 {
		g.say("No answer: the first packet was lost.")
		return
	}
	g.say("%s after %.2f ms.", what, milliseconds(r.First()))
}

// traced does a step and reports which datagrams passed the client meanwhile.
func (g *guide) traced(c *teredoClient, f func() error) error {
	datagrams, err := trace(g.net.lab, c.node, "eth0", f)
	if err != nil {
		return err
	}
	tests := connectivityTests{}
	for i, d := range datagrams {
		if i == shownDatagrams {
			g.detail("... and %d more", len(datagrams)-i)
			break
		}
		g.detail("%+7.2f ms  %-7s > %-7s  %s", milliseconds(d.at.Sub(datagrams[0].at)), g.net.nameOf(d.from), g.net.nameOf(d.to), describe(d.payload)+tests.remark(d))
	}
	return nil
}

// nameOf is the name of the node with an IPv4 address.
func (n *teredoNet) nameOf(a netip.AddrPort) string {
	switch a.Addr() {
	case serverAddr:
		return "server"
	case serverAddr2:
		return "server2" // its second address
	case relayBind.Addr():
		return "relay"
	}
	for _, c := range n.clients {
		if a.Addr() == c.external {
			return c.nat.Name()
		}
		if a.Addr() == c.local {
			return c.name
		}
	}
	return a.String()
}
