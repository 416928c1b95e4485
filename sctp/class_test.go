// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// markedClass is what a relay puts into the packets that it passes on: a DSCP, and Congestion Experienced.
const markedClass = 46<<2 | 3

// TestTrafficClass has a relay between two ends mark what it passes on, and look at what comes: nothing that is sent has a
// DSCP or a bit of ECN, whatever has come (RFC 9260 section 7.2.5.1, RFC 6951 section 5.8).
func TestTrafficClass(t *testing.T) {
	for name, c := range map[string]struct {
		network, host         string
		level, receive, class int
	}{
		"IPv4": {"sctp4+udp", "127.0.0.1", unix.IPPROTO_IP, unix.IP_RECVTOS, unix.IP_TOS},
		"IPv6": {"sctp6+udp", "::1", unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, unix.IPV6_TCLASS},
	} {
		t.Run(name, func(t *testing.T) {
			hidden := &Config{UDPPort: AnyPort, HideAddresses: true}
			l := listen(t, hidden, c.network, net.JoinHostPort(c.host, "0"))
			host := netip.MustParseAddr(c.host)
			relay, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(host, 0)))
			if err != nil {
				t.Fatal(err)
			}
			raw, err := relay.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			if err := raw.Control(func(fd uintptr) {
				for option, value := range map[int]int{c.receive: 1, c.class: markedClass} {
					if err := unix.SetsockoptInt(int(fd), c.level, option, value); err != nil {
						t.Error(err)
					}
				}
			}); err != nil {
				t.Fatal(err)
			}
			server := netip.AddrPortFrom(host, l.endpoint.addr.UDP)
			packets := make(chan int, 1)
			go func() {
				n := 0
				defer func() { packets <- n }()
				var client netip.AddrPort
				packet, control := make([]byte, 2048), make([]byte, 64)
				for ; ; n++ {
					size, oob, _, from, err := relay.ReadMsgUDPAddrPort(packet, control)
					if err != nil {
						return // it is closed
					}
					messages, err := unix.ParseSocketControlMessage(control[:oob])
					if err != nil || len(messages) != 1 || messages[0].Header.Type != int32(c.class) || messages[0].Data[0] != 0 {
						t.Errorf("a packet of %v has the class %v, %v", from, messages, err)
					}
					to := server
					if from == server {
						to = client
					} else {
						client = from
					}
					if _, err := relay.WriteToUDPAddrPort(packet[:size], to); errors.Is(err, net.ErrClosed) {
						return
					} else if err != nil {
						t.Error(err)
					}
				}
			}()
			at := Addr{Hosts: []netip.Addr{host}, Port: l.endpoint.addr.Port, UDP: netip.MustParseAddrPort(relay.LocalAddr().String()).Port()}
			conn, err := hidden.Dial(context.Background(), c.network, at.String())
			if err != nil {
				t.Fatal(err)
			}
			peer, err := l.AcceptSCTP(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			go echo(peer)
			ask(t, conn, make([]byte, 1000), make([]byte, 2048))
			if err := conn.Shutdown(context.Background()); err != nil {
				t.Fatal(err)
			}
			relay.Close()
			if n := <-packets; n < 10 {
				t.Errorf("%d packets have passed", n)
			}
		})
	}
}
