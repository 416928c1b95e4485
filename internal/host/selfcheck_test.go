// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// loopback are two sockets that send to one another.
func loopback(t *testing.T) (near, far *net.UDPConn) {
	t.Helper()
	local := net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0"))
	far, err := net.ListenUDP("udp4", local)
	if err != nil {
		t.Fatal(err)
	}
	if near, err = net.DialUDP("udp4", local, far.LocalAddr().(*net.UDPAddr)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// TestSelfCheck: one of two packets is lost, and what someone else sends is no answer.
func TestSelfCheck(t *testing.T) {
	near, far := loopback(t)
	var check SelfCheck[int]
	sent := 0
	came := check.Run(t.Context(), 7, near, func(nonce []byte) {
		if e := check.Expected(); e.About != 7 || !e.Is(nonce) || e.Is(nonce[1:]) || e.Is(make([]byte, NonceLen)) {
			t.Error("what is expected is not what is sent")
		}
		if sent++; sent == 1 {
			nonce = append([]byte{1}, nonce...)
		}
		far.WriteTo(nonce, near.LocalAddr())
	})
	if !came || sent != 2 {
		t.Errorf("came %t after %d packets, want true after 2", came, sent)
	}
	if check.Expected() != nil {
		t.Error("a check that is over expects something")
	}
	ctx, cancel := context.WithCancel(t.Context())
	if check.Run(ctx, 0, near, func([]byte) { cancel() }) {
		t.Error("nothing was sent, and came back")
	}
}

func TestInsideAndTurn(t *testing.T) {
	e := &Expectation[struct{}]{nonce: [NonceLen]byte{1, 2, 3}}
	ip := make([]byte, packet.IPv6HeaderLen+packet.UDPHeaderLen+NonceLen)
	ip[0], ip[6], ip[8], ip[24] = 6<<4, packet.ProtoUDP, 0xaa, 0xbb
	binary.BigEndian.PutUint16(ip[4:], packet.UDPHeaderLen+NonceLen)
	binary.BigEndian.PutUint16(ip[packet.IPv6HeaderLen:], 1000)
	binary.BigEndian.PutUint16(ip[packet.IPv6HeaderLen+2:], DiscardPort)
	copy(ip[packet.IPv6HeaderLen+packet.UDPHeaderLen:], e.nonce[:])
	p, ok := e.Inside(ip)
	if !ok {
		t.Fatal("the packet of a check is not known")
	}
	before := bytes.Clone(ip)
	Turn(p)
	if ip[8] != 0xbb || ip[24] != 0xaa || binary.BigEndian.Uint16(p[packet.IPv6HeaderLen:]) != DiscardPort {
		t.Errorf("turned: % x", ip)
	}
	if Turn(p); !bytes.Equal(ip, before) {
		t.Error("turned twice it is another packet")
	}
	for name, change := range map[string]func(b []byte) []byte{
		"cut":           func(b []byte) []byte { return b[:len(b)-1] },
		"IPv4":          func(b []byte) []byte { b[0] = 4 << 4; return b },
		"TCP":           func(b []byte) []byte { b[6] = packet.ProtoTCP; return b },
		"another nonce": func(b []byte) []byte { b[len(b)-1]++; return b },
	} {
		if _, ok := e.Inside(change(bytes.Clone(before))); ok {
			t.Errorf("%s: taken for the packet of a check", name)
		}
	}
}

// A packet of either family goes back to where it came from, and no one else's.
func TestBack(t *testing.T) {
	e := &Expectation[struct{}]{nonce: [NonceLen]byte{1, 2, 3}}
	six := packet.AppendIPv6Header(nil, packet.ProtoUDP, 64, packet.UDPHeaderLen+NonceLen, netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"))
	four := []byte{0x45, 0, 0, 44, 0, 0, 0, 0, 64, packet.ProtoUDP, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2}
	udp := append([]byte{0x10, 0x01, 0, DiscardPort, 0, packet.UDPHeaderLen + NonceLen, 0, 0}, e.nonce[:]...)
	for name, ip := range map[string][]byte{"IPv6": append(six, udp...), "IPv4": append(four, udp...)} {
		other := bytes.Clone(ip)
		other[len(other)-1] ^= 1
		if e.Back(other) || e.Back(other[:12]) {
			t.Errorf("%s: a packet of somebody else is turned round", name)
		}
		before := bytes.Clone(ip)
		if !e.Back(ip) || bytes.Equal(ip, before) || !e.Back(ip) || !bytes.Equal(ip, before) {
			t.Errorf("%s: %x is not turned round, and back", name, ip)
		}
	}
}
