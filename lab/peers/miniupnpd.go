// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"net/netip"
)

// Miniupnpd is the configuration of MiniUPnP's daemon, which makes a router
// reserve ports by UPnP and NAT-PMP as most home routers do.
type Miniupnpd struct {
	// Name distinguishes instances; it names the files.
	Name string
	// Outside and Inside are the router's interfaces.
	Outside, Inside string
	// External is the router's outer address.
	External netip.Addr
}

// MiniupnpdRules is the nftables table that the daemon works in, for the program
// nft. Its chains stand before those of the lab's NAT boxes, so that a reserved
// port goes before what the kind of the NAT would do.
const MiniupnpdRules = `table inet miniupnpd {
	chain forward { type filter hook forward priority -10; policy accept; jump reserved; }
	chain reserved { }
	chain pre { type nat hook prerouting priority -110; policy accept; jump reserved_in; }
	chain reserved_in { }
	chain post { type nat hook postrouting priority 90; policy accept; jump reserved_out; }
	chain reserved_out { }
}
`

// Miniupnpd writes the configuration below dir and returns the command. The
// router needs [MiniupnpdRules] before it starts.
func (p *Peers) Miniupnpd(dir string, c Miniupnpd) (*Command, error) {
	i, err := p.instance("miniupnpd", dir, c.Name)
	if err != nil {
		return nil, err
	}
	return i.command(c.config(), "-d", "-f", i.at(configured), "-P", i.at(".pid"))
}

// config lets each inner host reserve ports for itself only.
func (c Miniupnpd) config() string {
	return fmt.Sprintf(`ext_ifname=%s
ext_ip=%s
listening_ip=%s
enable_upnp=yes
enable_natpmp=yes
secure_mode=yes
uuid=00000000-0000-0000-0000-000000000001
upnp_table_name=miniupnpd
upnp_nat_table_name=miniupnpd
upnp_forward_chain=reserved
upnp_nat_chain=reserved_in
upnp_nat_postrouting_chain=reserved_out
allow 1024-65535 0.0.0.0/0 1024-65535
deny 0-65535 0.0.0.0/0 0-65535
`, c.Outside, c.External, c.Inside)
}
