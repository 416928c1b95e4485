// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestICMPErrorsEndNoReader: whatever routers and hosts say of an earlier datagram, and whoever forges it, the reader of a
// socket that asks for refusals goes on, and no error stays in the queue, whose room is that of datagrams.
func TestICMPErrorsEndNoReader(t *testing.T) {
	to := netip.MustParseAddrPort("192.0.2.1:3544")
	for name, c := range map[string]struct {
		kind, code uint8
		tells      bool
	}{
		"network unreachable":   {3, 0, false},
		"host unreachable":      {3, 1, false},
		"protocol unreachable":  {3, 2, false},
		"port unreachable":      {3, 3, true},
		"source route failed":   {3, 5, false},
		"network unknown":       {3, 6, false},
		"host unknown":          {3, 7, false},
		"host isolated":         {3, 8, false},
		"network prohibited":    {3, 9, false},
		"host prohibited":       {3, 10, false},
		"network not for class": {3, 11, false},
		"host not for class":    {3, 12, false},
		"filtered":              {3, 13, false},
		"precedence violated":   {3, 14, false},
		"precedence cut off":    {3, 15, false},
		"time exceeded":         {11, 0, false},
		"parameter problem":     {12, 0, false},
		"option missing":        {12, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			inNamespace(t)
			a, b := listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
			var told []netip.AddrPort
			a.OnRefusal(func(to netip.AddrPort) { told = append(told, to) })
			if err := a.Refusals(true); err != nil {
				t.Fatal(err)
			}
			sendICMP(t, c.kind, c.code, a.LocalAddr(), to)
			awaitSocketError(t, a)
			if err := b.WriteBatch([]packet.Datagram{{To: a.LocalAddr(), Payload: []byte("good")}}); err != nil {
				t.Fatal(err)
			}
			receive(t, a, 1, MaxBatch)
			if _, _, _, _, err := unix.Recvmsg(a.guard.fd, nil, make([]byte, 256), unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT); !errors.Is(err, unix.EAGAIN) {
				t.Errorf("the error queue has an error left, or else: %v", err)
			}
			if tells := len(told) == 1 && told[0] == to; tells != c.tells || len(told) > 1 {
				t.Errorf("told of %v", told)
			}
		})
	}
}

// sendICMP sends an ICMP error about a datagram, to where that came from. The test's thread is in a namespace with
// loopback up.
func sendICMP(t *testing.T, kind, code uint8, from, to netip.AddrPort) {
	t.Helper()
	conn, err := net.Dial("ip4:icmp", from.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	m := make([]byte, 8+20+8)
	m[0], m[1] = kind, code
	quoted := m[8:]
	quoted[0], quoted[3], quoted[8], quoted[9] = 0x45, 20+8, 64, unix.IPPROTO_UDP
	copy(quoted[12:], from.Addr().AsSlice())
	copy(quoted[16:], to.Addr().AsSlice())
	binary.BigEndian.PutUint16(quoted[20:], from.Port())
	binary.BigEndian.PutUint16(quoted[22:], to.Port())
	binary.BigEndian.PutUint16(quoted[24:], 8)
	binary.BigEndian.PutUint16(m[2:], ^packet.Fold(packet.Sum(0, m)))
	if _, err := conn.Write(m); err != nil {
		t.Fatal(err)
	}
}

// awaitSocketError waits until the kernel has an error for a socket.
func awaitSocketError(t *testing.T, u *UDP) {
	t.Helper()
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(u.guard.fd)}}, int(testutil.Patience.Milliseconds())); n != 1 {
		t.Fatalf("no error has come: %v", err)
	}
}
