// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/ipv6"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate/pref64"
)

// advertise sends a Router Advertisement of a default router on up0 (RFC 4861 section 4.2).
func advertise(t *testing.T, router *testutil.Netns, options ...[]byte) {
	t.Helper()
	message := []byte{134, 0, 0, 0, 64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0}
	for _, o := range options {
		message = append(message, o...)
	}
	router.Do(t, func() error {
		link, err := net.InterfaceByName("up0")
		if err != nil {
			return err
		}
		conn, err := net.ListenPacket("ip6:ipv6-icmp", "::")
		if err != nil {
			return err
		}
		defer conn.Close()
		p := ipv6.NewPacketConn(conn)
		_, err = p.WriteTo(message, &ipv6.ControlMessage{HopLimit: 255, IfIndex: link.Index}, &net.IPAddr{IP: net.ParseIP("ff02::1"), Zone: "up0"})
		return err
	})
}

// mtuOption and prefixOption are of RFC 4861 sections 4.6.4 and 4.6.2, pref64Option is of RFC
// 8781.
func mtuOption(mtu uint32) []byte { return binary.BigEndian.AppendUint32([]byte{5, 1, 0, 0}, mtu) }

func prefixOption(prefix string, valid, preferred uint32) []byte {
	const onLink, autonomous = 0x80, 0x40
	p := netip.MustParsePrefix(prefix)
	raw := p.Addr().As16()
	b := binary.BigEndian.AppendUint32([]byte{3, 4, byte(p.Bits()), onLink | autonomous}, valid)
	b = binary.BigEndian.AppendUint32(b, preferred)
	return append(append(b, 0, 0, 0, 0), raw[:]...)
}

func pref64Option(t *testing.T, prefix string, lifetime time.Duration) []byte {
	t.Helper()
	b, err := pref64.AppendOption(nil, pref64.Option{Prefix: netip.MustParsePrefix(prefix), Lifetime: lifetime})
	if err != nil {
		t.Fatal(err)
	}
	return b
}
