// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
)

// traffic sends and receives until the test ends.
func (s *site) traffic() {
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	s.t.Cleanup(func() { cancel(); work.Wait() })
	for i := range s.routers {
		work.Go(func() { s.receive(ctx, i) })
	}
	work.Go(func() { s.send(ctx) })
}

// send sends a packet to each destination every two milliseconds. A queue that a slow machine has filled may lose some.
func (s *site) send(ctx context.Context) {
	var toClients, fromClients [][]byte
	for _, v4 := range destinations4() {
		toClients = append(toClients, siteFrame(s.routers[2].near, unix.ETH_P_IPV6, siteInner(siteHost, clientOf(v4))))
	}
	for _, v6 := range destinations6() {
		fromClients = append(fromClients, siteFrame(s.routers[0].near, unix.ETH_P_IP, siteOuter(siteInner(clientOf(siteClient), v6))))
	}
	last := fastpath.Monotonic()
	for ctx.Err() == nil {
		for _, frames := range []struct {
			from *router
			list [][]byte
		}{{s.routers[2], toClients}, {s.routers[0], fromClients}} {
			for _, f := range frames.list {
				binary.BigEndian.PutUint64(f[len(f)-8:], uint64(fastpath.Monotonic()))
				if _, err := unix.Write(frames.from.socket, f); err != nil && err != unix.ENOBUFS {
					s.t.Errorf("cannot send: %v", err)
					return
				}
			}
		}
		time.Sleep(2 * time.Millisecond)
		now := fastpath.Monotonic()
		s.mu.Lock()
		s.interval = max(s.interval, now-last)
		s.mu.Unlock()
		last = now
	}
}

// siteFrame puts an Ethernet header before a packet.
func siteFrame(to net.HardwareAddr, kind uint16, packet []byte) []byte {
	f := append(slices.Clone(to), 2, 0, 0, 0, 0, 1)
	return append(binary.BigEndian.AppendUint16(f, kind), packet...)
}

// siteInner is an IPv6 packet whose last 8 bytes are for the time. No one looks at its
// UDP checksum, but none is not allowed.
func siteInner(src, dst netip.Addr) []byte {
	b := make([]byte, 56)
	b[0], b[5], b[6], b[7] = 0x60, 16, unix.IPPROTO_UDP, 64
	copy(b[8:], src.AsSlice())
	copy(b[24:], dst.AsSlice())
	binary.BigEndian.PutUint16(b[40:], payloadPort)
	binary.BigEndian.PutUint16(b[42:], payloadPort)
	binary.BigEndian.PutUint16(b[44:], 16)
	b[46] = 1
	return b
}

// siteOuter puts a packet of the client into its tunnel, without an outer checksum.
func siteOuter(packet []byte) []byte {
	b := make([]byte, 28, 28+len(packet))
	b[0], b[8], b[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(b[2:], uint16(28+len(packet)))
	copy(b[12:], siteClient.AsSlice())
	copy(b[16:], siteOwn.AsSlice())
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[10:], ^uint16(sum))
	binary.BigEndian.PutUint16(b[20:], clientPort)
	binary.BigEndian.PutUint16(b[22:], sitePort)
	binary.BigEndian.PutUint16(b[24:], uint16(8+len(packet)))
	return append(b, packet...)
}

// receive notes what comes to a router through the fast path.
func (s *site) receive(ctx context.Context, router int) {
	buf := make([]byte, 2048)
	for ctx.Err() == nil {
		n, from, err := unix.Recvfrom(s.routers[router].socket, buf, 0)
		if err != nil || from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		f := buf[:n]
		var dst netip.Addr
		switch {
		case n == 14+28+56 && router < 2:
			dst = netip.AddrFrom4([4]byte(f[30:34]))
		case n == 14+56 && router >= 2:
			dst = netip.AddrFrom16([16]byte(f[38:54]))
		default:
			continue
		}
		seen := sighting{time.Duration(binary.BigEndian.Uint64(f[n-8:])), router, [6]byte(f[:6])}
		s.mu.Lock()
		s.seen[dst] = append(s.seen[dst], seen)
		s.mu.Unlock()
	}
}
