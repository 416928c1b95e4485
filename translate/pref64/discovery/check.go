// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"

	"github.com/isthmus-net/isthmus/translate"
)

// checkTimes are the waits behind the three echo requests of a connectivity check (RFC
// 7050 section 3.2).
var checkTimes = []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}

// The addresses of ipv4only.arpa have no one behind them (RFC 7050 section 3.2.1).
var neverChecked = []netip.Addr{netip.MustParseAddr("192.0.0.170"), netip.MustParseAddr("192.0.0.171")}

// Check looks whether a prefix works: an IPv4 host that answers echo requests, such as one
// of the operator, must do so through it. It takes six seconds to know that it does not.
func Check(ctx context.Context, link string, prefix netip.Prefix, server netip.Addr) error {
	made, err := translate.NewPrefix(prefix)
	if err != nil {
		return err
	}
	if !server.Is4() || slices.Contains(neverChecked, server) {
		return fmt.Errorf("%s is no one to check a prefix with: name an IPv4 host that answers pings", server)
	}
	var control net.ListenConfig
	control.Control = byLink(link)
	conn, err := control.ListenPacket(ctx, "ip6:ipv6-icmp", "::")
	if err != nil {
		return fmt.Errorf("cannot open a socket for ICMPv6: %w", err)
	}
	defer conn.Close()
	var filter ipv6.ICMPFilter
	filter.SetAll(true)
	filter.Accept(ipv6.ICMPTypeEchoReply)
	if err := ipv6.NewPacketConn(conn).SetICMPFilter(&filter); err != nil {
		return err
	}
	return ping(ctx, conn, made.Embed(server))
}

// ping sends the echo requests and waits for one answer.
func ping(ctx context.Context, conn net.PacketConn, to netip.Addr) error {
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	var secret [2]byte
	_, _ = rand.Read(secret[:]) // never fails
	echo := icmp.Echo{ID: int(binary.BigEndian.Uint16(secret[:])), Data: []byte("isthmus")}
	for i, wait := range checkTimes {
		echo.Seq = i + 1
		b, err := (&icmp.Message{Type: ipv6.ICMPTypeEchoRequest, Body: &echo}).Marshal(nil)
		if err != nil {
			return err
		}
		if _, err := conn.WriteTo(b, &net.IPAddr{IP: to.AsSlice()}); err != nil {
			return fmt.Errorf("no packet can be sent to %s: %w", to, err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(wait))
		if echoed(conn, to, echo.ID) {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.New("no one answers through it: the NAT64, the way to it, or the way behind it is down")
}

// echoed waits for an answer until the deadline.
func echoed(conn net.PacketConn, from netip.Addr, id int) bool {
	buffer := make([]byte, 1500)
	for {
		n, source, err := conn.ReadFrom(buffer)
		if err != nil {
			return false
		}
		address, ok := source.(*net.IPAddr)
		if !ok || !address.IP.Equal(from.AsSlice()) {
			continue
		}
		m, err := icmp.ParseMessage(58, buffer[:n])
		if err != nil {
			continue
		}
		if reply, ok := m.Body.(*icmp.Echo); ok && reply.ID == id {
			return true
		}
	}
}
