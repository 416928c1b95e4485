// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gatewaytest

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// Pings has six ping an address until an answer comes, and returns its hop limit.
func (w *World) Pings(t *testing.T, to netip.Addr, hops int) {
	t.Helper()
	var conn *icmp.PacketConn
	w.Six.Do(t, func() (err error) {
		conn, err = icmp.ListenPacket("ip6:ipv6-icmp", SixAddr.String())
		return err
	})
	defer conn.Close()
	p := conn.IPv6PacketConn()
	if err := p.SetControlMessage(ipv6.FlagHopLimit, true); err != nil {
		t.Fatal(err)
	}
	echo := icmp.Message{Type: ipv6.ICMPTypeEchoRequest, Body: &icmp.Echo{ID: 77, Seq: 1, Data: []byte("ping")}}
	b, err := echo.Marshal(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.WriteTo(b, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1500)
	for {
		n, cm, from, err := p.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		m, err := icmp.ParseMessage(58, buf[:n])
		if err != nil || m.Type != ipv6.ICMPTypeEchoReply {
			continue // neighbours
		}
		if body, ok := m.Body.(*icmp.Echo); !ok || body.ID != 77 || string(body.Data) != "ping" || from.String() != to.String() || cm.HopLimit != hops {
			t.Errorf("answer %+v from %s with %d hops, want %s and %d", m.Body, from, cm.HopLimit, to, hops)
		}
		return
	}
}

// Refused has six send to a port of four where no one listens: the error comes back.
func (w *World) Refused(t *testing.T, to netip.Addr) {
	t.Helper()
	var conn *net.UDPConn
	w.Six.Do(t, func() (err error) {
		conn, err = net.DialUDP("udp6", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
		return err
	})
	defer conn.Close()
	if _, err := conn.Write([]byte("anybody there?")); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 10)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("error %v, want %v", err, syscall.ECONNREFUSED)
	}
}
