// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// protocolICMP is ICMP over IPv4 (RFC 792).
const protocolICMP = 1

// Types of echo requests (RFC 792, RFC 4443 section 4.1).
const (
	echoRequest4 = 8
	echoRequest6 = 128
)

// MinEcho is the smallest IPv6 echo request that a [Meter] knows.
const MinEcho = packet.IPv6HeaderLen + packet.UDPHeaderLen + len(marker) + 8

// Echo puts an echo request with the marker into a frame. The ICMP message is as
// long as that of an IPv6 packet of size bytes, whatever the family of the
// addresses is. An answer needs a host that answers pings.
func Echo(srcMAC, dstMAC net.HardwareAddr, src, dst netip.Addr, size int) []byte {
	n := max(size, MinEcho) - packet.IPv6HeaderLen
	icmp := make([]byte, n)
	binary.BigEndian.PutUint16(icmp[4:], 0x1998) // the identifier
	copy(icmp[packet.UDPHeaderLen:], marker[:])
	binary.BigEndian.PutUint64(icmp[packet.UDPHeaderLen+len(marker):], echoNumber(0))
	if src.Is4() {
		icmp[0] = echoRequest4
		binary.BigEndian.PutUint16(icmp[2:], ^packet.Fold(packet.Sum(0, icmp)))
		return append(ipv4Header(ethernet(srcMAC, dstMAC, etherIPv4), src, dst, protocolICMP, n), icmp...)
	}
	icmp[0] = echoRequest6
	p := packet.IPv6(append(packet.AppendIPv6Header(make([]byte, 0, size), packet.ProtoICMPv6, 64, n, src, dst), icmp...))
	binary.BigEndian.PutUint16(p.Payload()[2:], packet.Checksum(p.SrcBytes(), p.DstBytes(), packet.ProtoICMPv6, p.Payload()))
	return Frame6(srcMAC, dstMAC, p)
}

// ipv4Header appends a header without options (RFC 791) for n bytes of payload.
func ipv4Header(b []byte, src, dst netip.Addr, protocol byte, n int) []byte {
	const length = 20
	s, d := src.As4(), dst.As4()
	at := len(b)
	b = append(b, 0x45, 0, byte((length+n)>>8), byte(length+n), 0, 0, 0, 0, 64, protocol, 0, 0)
	b = append(append(b, s[:]...), d[:]...)
	binary.BigEndian.PutUint16(b[at+10:], ^packet.Fold(packet.Sum(0, b[at:])))
	return b
}

// echoNumber is what stands for a sequence number in an echo request: beside it
// its complement, so that the checksum is the same for all.
func echoNumber(seq uint64) uint64 {
	low := uint16(seq)
	return uint64(^low)<<16 | uint64(low)
}

// Echoes sends n copies of a frame that [Echo] made, numbered from first on, one
// every gap. Call it from a goroutine that is locked to its thread: it waits in
// the kernel.
func (s *Sender) Echoes(frame []byte, first uint64, n int, gap time.Duration) error {
	next := time.Now()
	for i := range n {
		if err := Number(frame, echoNumber(first+uint64(i))); err != nil {
			return err
		}
		if wait := time.Until(next); wait > 0 {
			ts := unix.NsecToTimespec(int64(wait))
			_ = unix.Nanosleep(&ts, nil)
		}
		next = next.Add(gap)
		if err := s.Send(frame); err != nil {
			return fmt.Errorf("sending echo request %d: %w", i, err)
		}
	}
	return nil
}
