// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// DHCP for IPv4 (RFC 2131 section 2, RFC 2132, RFC 4039).
const (
	dhcpServerPort, dhcpClientPort = 67, 68
	dhcpFixed                      = 240 // octets before the options, with the cookie
	dhcpCookie                     = 0x63825363
	dhcpDiscover, dhcpAck          = 1, 5

	optionMask, optionRouter, optionKind, optionRapidCommit, optionEnd = 1, 3, 53, 80, 255
)

// dhcpAgain is when a question without an answer is repeated, and each time after twice as long.
const dhcpAgain = time.Second

// Lease is what a DHCP server gives a host.
type Lease struct {
	Addr   netip.Prefix
	Router netip.Addr
}

// Lease asks for an address on an interface that has none, of a server that gives it at once
// (Rapid Commit, RFC 4039), as the SGSN emulator does. It sets nothing.
func (n *Node) Lease(ctx context.Context, iface string) (l Lease, err error) {
	var conn net.PacketConn
	if err := n.Do(func() (err error) { conn, err = openDHCP(ctx, iface); return err }); err != nil {
		return l, fmt.Errorf("node %s cannot ask for an address: %w", n.name, err)
	}
	defer conn.Close()
	transaction := rand.Uint32()
	for wait := dhcpAgain; ; wait *= 2 {
		if _, err := conn.WriteTo(discover(transaction), &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpServerPort}); err != nil {
			return l, fmt.Errorf("node %s cannot ask for an address: %w", n.name, err)
		}
		if l, err = awaitLease(conn, transaction, time.Now().Add(wait)); !errors.Is(err, os.ErrDeadlineExceeded) {
			return l, err
		}
		if ctx.Err() != nil {
			return l, ctx.Err()
		}
	}
}

// openDHCP opens a client's port on an interface.
func openDHCP(ctx context.Context, iface string) (net.PacketConn, error) {
	listen := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) {
			err = errors.Join(unix.BindToDevice(int(fd), iface), unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1))
		})
		return errors.Join(failed, err)
	}}
	return listen.ListenPacket(ctx, "udp4", fmt.Sprintf("0.0.0.0:%d", dhcpClientPort))
}

// discover asks for an address, to be given at once and told to all.
func discover(transaction uint32) []byte {
	b := make([]byte, dhcpFixed, dhcpFixed+8)
	b[0], b[1], b[2] = 1, 1, 6 // a request, of an Ethernet
	binary.BigEndian.PutUint32(b[4:], transaction)
	b[10] = 0x80 // answer to all, for the address is not here yet
	binary.BigEndian.PutUint32(b[236:], dhcpCookie)
	return append(b, optionKind, 1, dhcpDiscover, optionRapidCommit, 0, optionEnd)
}

// awaitLease reads answers until one gives an address.
func awaitLease(conn net.PacketConn, transaction uint32, until time.Time) (l Lease, err error) {
	if err := conn.SetReadDeadline(until); err != nil {
		return l, err
	}
	b := make([]byte, 1500)
	for {
		n, _, err := conn.ReadFrom(b)
		if err != nil {
			return l, err
		}
		if l, ok := parseLease(b[:n], transaction); ok {
			return l, nil
		}
	}
}

// parseLease reads the acknowledgement of a question.
func parseLease(b []byte, transaction uint32) (l Lease, ok bool) {
	if len(b) < dhcpFixed || b[0] != 2 || binary.BigEndian.Uint32(b[4:]) != transaction || binary.BigEndian.Uint32(b[236:]) != dhcpCookie {
		return l, false
	}
	kind, bits := byte(0), 32
	for options := b[dhcpFixed:]; len(options) >= 2 && options[0] != optionEnd; {
		if options[0] == 0 { // padding
			options = options[1:]
			continue
		}
		end := 2 + int(options[1])
		if end > len(options) {
			return l, false
		}
		switch v := options[2:end]; {
		case options[0] == optionKind && len(v) == 1:
			kind = v[0]
		case options[0] == optionMask && len(v) == 4:
			bits, _ = net.IPMask(v).Size()
		case options[0] == optionRouter && len(v) >= 4:
			l.Router = netip.AddrFrom4([4]byte(v))
		}
		options = options[end:]
	}
	l.Addr = netip.PrefixFrom(netip.AddrFrom4([4]byte(b[16:])), bits)
	return l, kind == dhcpAck && l.Router.IsValid()
}
