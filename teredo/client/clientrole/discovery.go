// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/teredo/client"
)

// discoverySocket hears the local discovery bubbles of neighbours (RFC 4380
// section 5.2.8). It is bound to the discovery address itself, so that nothing
// sent to an address of this host arrives there.
type discoverySocket struct {
	conn *port.UDP
	link int // joined; 0 is none
}

// openDiscovery opens the socket, if the configuration asks for it; c.mu is held.
func (c *Client) openDiscovery() (err error) {
	if !c.cfg.LocalDiscovery {
		return nil
	}
	c.discovery.conn, err = port.ListenUDP(port.UDPConfig{Addr: client.Discovery, Small: true})
	return err
}

// readDiscovery gives the engine what neighbours send.
func (c *Client) readDiscovery() error {
	return c.loop.ReadUDP(c.discovery.conn, func(m *port.Message, now time.Time, out *client.Out) {
		c.engine.HandleDiscovery(m.From, m.Payload, now, out)
	})
}

// closeDiscovery closes the socket, if it is open; c.mu is held.
func (c *Client) closeDiscovery() {
	if c.discovery.conn != nil {
		_ = c.discovery.conn.Close()
	}
}

// discoverOn moves discovery to the link by which packets to the server leave, and
// tells the engine its network. A link without multicast has no neighbours to
// discover.
func (c *Client) discoverOn(link int, subnet netip.Prefix) {
	d := &c.discovery
	if d.conn == nil {
		return
	}
	if link != d.link {
		if d.link != 0 {
			_ = d.conn.LeaveMulticast(d.link) // it may have gone with the link
		}
		if d.link = link; link != 0 {
			err := d.conn.JoinMulticast(link)
			if err == nil {
				err = c.conn.SendMulticastBy(link)
			}
			if err != nil {
				c.log.Warn("cannot discover other clients on this link", "error", err)
				d.link, subnet = 0, netip.Prefix{}
			}
		}
	}
	c.loop.Do(func(now time.Time, out *client.Out) { c.engine.SubnetChanged(subnet, now, out) })
}

// subnetOf returns the network of one of the host's addresses; not valid when the
// address has gone.
func subnetOf(own []port.IPv4, a netip.Addr) netip.Prefix {
	for _, o := range own {
		if o.Prefix.Addr() == a {
			return o.Prefix
		}
	}
	return netip.Prefix{}
}
