// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clat

import (
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// TestForgedSource has IPv6 packets come from the network with a source that stands for the host
// or the network behind it.
func TestForgedSource(t *testing.T) {
	withLAN := settings()
	withLAN.LAN = netip.MustParsePrefix("2001:db8:1:46::/96")
	const link, device = "link", "device"
	neighbour := netip.MustParseAddr("2001:db8:1:46::a00:5") // 10.0.0.5 by the LAN's prefix
	public := netip.MustParseAddr("2001:db8:1:46::808:808")
	router := netip.MustParseAddr("2001:db8:ffff::1")
	echo := func(src, dst netip.Addr) []byte {
		return packet.AppendICMPv6(nil, src, dst, 60, packet.ICMPv6EchoReply, 0, make([]byte, 4))
	}
	unreachable := func(src, of netip.Addr) []byte {
		return packet.AppendICMPv6(nil, src, of, 60, packet.ICMPv6Unreachable, 0, make([]byte, 4), echo(of, site6))
	}
	for _, tt := range []struct {
		name   string
		from   string
		s      Settings
		in     []byte
		passes bool
	}{
		{"a host behind this one, to the host", link, withLAN, echo(neighbour, own), false},
		{"a public address by the LAN's prefix", link, withLAN, echo(public, own), false},
		{"the host itself", link, settings(), echo(own, own), false},
		{"a host behind this one, to another", device, withLAN, echo(neighbour, lan6), false},
		{"the host, to one behind it", device, withLAN, echo(own, lan6), false},
		{"an error of a host behind this one", link, withLAN, unreachable(neighbour, own), false},
		{"an error of a host behind this one, to another", device, withLAN, unreachable(neighbour, lan6), false},
		{"a site", link, withLAN, echo(site6, own), true},
		{"a site, to a host behind this one", device, withLAN, echo(site6, lan6), true},
		{"an error of a router", link, withLAN, unreachable(router, own), true},
		{"an error of a router, to a host behind this one", device, withLAN, unreachable(router, lan6), true},
		{"such a prefix is nobody's without a LAN", link, settings(), unreachable(neighbour, own), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := owning(t, tt.s)
			var out packet.Batch
			if tt.from == link {
				e.HandleLink(tt.in, start, &out)
			} else {
				e.HandleHost(tt.in, start, &out)
			}
			passed, counted := 1, uint64(0)
			if !tt.passes {
				passed, counted = 0, 1
			}
			foreign := uint64(0)
			e.EachDropped(func(reason string, n uint64) {
				if reason == "foreign_source" {
					foreign = n
				}
			})
			if len(out.IP) != passed || foreign != counted {
				t.Errorf("sent %x, counted %d", out.IP, foreign)
			}
		})
	}
}
