// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package announce

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// pingAgain is how long one echo request may go unanswered before another is
// sent: a lost packet is not a failed check.
const pingAgain = 200 * time.Millisecond

// ping returns nil when the host answers before ctx is done.
func ping(ctx context.Context, to netip.Addr) error {
	conn, err := listenICMP(to)
	if err != nil {
		return fmt.Errorf("cannot ping %s: %w", to, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	nonce := make([]byte, 16)
	rand.Read(nonce)
	request, reply, protocol := icmp.Type(ipv6.ICMPTypeEchoRequest), icmp.Type(ipv6.ICMPTypeEchoReply), 58
	if to.Is4() {
		request, reply, protocol = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply, 1
	}
	message := icmp.Message{Type: request, Body: &icmp.Echo{ID: int(nonce[0])<<8 | int(nonce[1]), Data: nonce}}
	packet, err := message.Marshal(nil)
	if err != nil {
		return err
	}
	buffer := make([]byte, 1500)
	var refused error // the last word of the kernel
	for ctx.Err() == nil {
		_, err := conn.WriteTo(packet, conn.address(to))
		if errors.Is(err, net.ErrClosed) {
			break // ctx is done, which the kernel has no word about
		}
		if refused = err; refused == nil && answered(conn, buffer, protocol, reply, nonce) {
			return nil
		}
		if refused != nil {
			select { // no route: there may be one soon
			case <-ctx.Done():
			case <-time.After(pingAgain):
			}
		}
	}
	if refused != nil {
		return fmt.Errorf("%s cannot be reached: %w", to, refused)
	}
	return fmt.Errorf("%s does not answer", to)
}

// answered waits for the reply with the nonce.
func answered(conn *icmpConn, buffer []byte, protocol int, reply icmp.Type, nonce []byte) bool {
	_ = conn.SetReadDeadline(time.Now().Add(pingAgain))
	for {
		n, _, err := conn.ReadFrom(buffer)
		if err != nil {
			return false
		}
		got, err := icmp.ParseMessage(protocol, buffer[:n])
		if err != nil || got.Type != reply {
			continue
		}
		if echo, ok := got.Body.(*icmp.Echo); ok && bytes.Equal(echo.Data, nonce) {
			return true
		}
	}
}

// icmpConn is a socket for echo requests.
type icmpConn struct {
	*icmp.PacketConn
	datagram bool
}

// address is a host in the form that the kind of socket wants.
func (c *icmpConn) address(to netip.Addr) net.Addr {
	if c.datagram {
		return &net.UDPAddr{IP: to.AsSlice()}
	}
	return &net.IPAddr{IP: to.AsSlice()}
}

// listenICMP opens a socket of the kind that needs no privilege, or where the host
// does not allow that, a raw one.
func listenICMP(to netip.Addr) (*icmpConn, error) {
	datagram, raw := "udp6", "ip6:ipv6-icmp"
	if to.Is4() {
		datagram, raw = "udp4", "ip4:icmp"
	}
	conn, err := icmp.ListenPacket(datagram, "")
	if errors.Is(err, os.ErrPermission) {
		conn, err = icmp.ListenPacket(raw, "")
		return &icmpConn{conn, false}, err
	}
	return &icmpConn{conn, true}, err
}
