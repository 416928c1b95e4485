// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/net/ipv6"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Advertise sends one Router Advertisement of a default router, by a link of the namespace (RFC
// 4861 section 4.2).
func (n *Netns) Advertise(t testing.TB, link string, options ...[]byte) {
	t.Helper()
	message := []byte{134, 0, 0, 0, 64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0}
	for _, o := range options {
		message = append(message, o...)
	}
	n.Do(t, func() error {
		ifi, err := net.InterfaceByName(link)
		if err != nil {
			return err
		}
		conn, err := net.ListenPacket("ip6:ipv6-icmp", "::")
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = ipv6.NewPacketConn(conn).WriteTo(message,
			&ipv6.ControlMessage{HopLimit: 255, IfIndex: ifi.Index}, &net.IPAddr{IP: net.ParseIP("ff02::1"), Zone: link})
		return err
	})
}

// OptionMTU is the option of an advertisement that names the MTU of the link (RFC 4861 section
// 4.6.4).
func OptionMTU(mtu uint32) []byte { return packet.AppendMTU(nil, mtu) }

// OptionPrefix is the option that gives hosts addresses in a network, with its lifetimes in
// seconds (RFC 4861 section 4.6.2).
func OptionPrefix(network string, valid, preferred uint32) []byte {
	return packet.AppendPrefixInformation(nil, netip.MustParsePrefix(network), packet.PrefixOnLink|packet.PrefixAutonomous, valid, preferred)
}
