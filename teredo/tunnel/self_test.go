// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
)

// begin has a check be under way, and returns its nonce.
func begin(t *testing.T, s *SelfCheck, at ends) []byte {
	t.Helper()
	conn, err := net.ListenUDP("udp4", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	sent, ended := make(chan []byte), make(chan bool)
	go func() {
		ended <- s.check.Run(ctx, at, conn, func(nonce []byte) {
			select {
			case sent <- bytes.Clone(nonce):
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() { cancel(); <-ended; conn.Close() })
	return <-sent
}

// TestOthersCannotJoinACheck feeds packets that only resemble those of a check.
func TestOthersCannotJoinACheck(t *testing.T) {
	host, probe := netip.MustParseAddr("2001:db8::1"), ProbeAddress(teredo.Prefix)
	from := netip.MustParseAddrPort("127.0.0.1:4000")
	client := teredo.Addr{Prefix: teredo.Prefix, Server: netip.MustParseAddr("192.0.2.1"), Mapped: netip.MustParseAddrPort("192.0.2.7:40000")}.IP()
	ip := func(src, dst netip.Addr, text string) []byte {
		b := packet.AppendIPv6Header(nil, packet.ProtoUDP, 64, packet.UDPHeaderLen+len(text), src, dst)
		return append(append(b, 0, 9, 4, 5, 0, byte(packet.UDPHeaderLen+len(text)), 6, 7), text...)
	}
	var s SelfCheck
	var out packet.Batch
	if early := "0123456789abcdef"; s.FromTUN(0, ip(host, probe, early), &out) || s.FromUDP(0, from, []byte(early), &out) {
		t.Error("taken while there is no check")
	}
	nonce := begin(t, &s, ends{outer: from, inner: host, probe: probe})
	for _, tt := range []struct {
		name  string
		tun   bool
		from  netip.AddrPort
		bytes []byte
		taken bool
		sent  int
	}{
		{"from the host", true, from, ip(host, probe, string(nonce)), true, 1},
		{"from another host", true, from, ip(netip.MustParseAddr("2001:db8::2"), probe, string(nonce)), false, 0},
		{"another nonce", true, from, ip(host, probe, string(append(bytes.Clone(nonce[:15]), nonce[15]^1))), false, 0},
		{"to a client", true, from, ip(host, client, string(nonce)), false, 0},
		{"longer", true, from, ip(host, probe, string(nonce)+"!"), false, 0},
		{"empty", true, from, nil, false, 0},
		{"answer of the check", false, from, ip(probe, host, string(nonce)), true, 1},
		{"short way", false, from, nonce, true, 1},
		{"something else from the check's socket", false, from, []byte("x"), true, 0},
		{"answer to elsewhere", false, from, ip(probe, netip.MustParseAddr("2001:db8::2"), string(nonce)), true, 0},
		{"answer from elsewhere", false, netip.MustParseAddrPort("192.0.2.7:4000"), ip(probe, host, string(nonce)), false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out packet.Batch
			var taken bool
			if tt.tun {
				taken = s.FromTUN(0, tt.bytes, &out)
			} else {
				taken = s.FromUDP(0, tt.from, tt.bytes, &out)
			}
			if sent := len(out.UDP) + len(out.IP); taken != tt.taken || sent != tt.sent {
				t.Errorf("taken %v, sent %d", taken, sent)
			}
		})
	}
}

// TestCheckTurnsThePacketRound looks at what leaves by the UDP socket: a packet
// whose checksum still holds.
func TestCheckTurnsThePacketRound(t *testing.T) {
	const discard = 9
	host, probe := netip.MustParseAddr("2001:db8::1"), ProbeAddress(teredo.Prefix)
	from := netip.MustParseAddrPort("127.0.0.1:4000")
	var s SelfCheck
	nonce := begin(t, &s, ends{outer: from, inner: host, probe: probe})
	b := packet.AppendIPv6Header(nil, packet.ProtoUDP, 64, packet.UDPHeaderLen+len(nonce), host, probe)
	b = append(append(b, 0x12, 0x34, 0, discard, 0, byte(packet.UDPHeaderLen+len(nonce)), 0, 0), nonce...)
	p := packet.IPv6(b)
	sum := packet.Checksum(p.SrcBytes(), p.DstBytes(), packet.ProtoUDP, p.Payload())
	b[46], b[47] = byte(sum>>8), byte(sum)
	var out packet.Batch
	if !s.FromTUN(0, b, &out) || len(out.UDP) != 1 {
		t.Fatal("not taken")
	}
	got := packet.IPv6(out.UDP[0].Payload)
	want := []any{probe, host, from, []byte{0, discard, 0x12, 0x34}, uint16(0)}
	left := packet.Checksum(got.SrcBytes(), got.DstBytes(), packet.ProtoUDP, got.Payload())
	if diff := cmp.Diff(want, []any{got.Src(), got.Dst(), out.UDP[0].To, []byte(got[40:44]), left}, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
