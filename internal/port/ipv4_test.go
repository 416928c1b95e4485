// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/packet"
)

var (
	tunHost4 = netip.MustParsePrefix("192.0.2.1/24")
	tunPeer4 = netip.MustParseAddr("192.0.2.2")
)

// segment4 is tcpSegment or udpPacket over IPv4, with DF if the identification is 0.
func segment4(proto byte, id uint16, seq uint32, payload []byte, change func(p []byte)) []byte {
	t := 8
	if proto == packet.ProtoTCP {
		t = 20
	}
	p := make([]byte, ipv4HeaderLen+t+len(payload))
	p[0], p[ipv4TTLOff], p[ipv4ProtoOff] = 0x45, 64, proto
	binary.BigEndian.PutUint16(p[ipv4LenOff:], uint16(len(p)))
	binary.BigEndian.PutUint16(p[ipv4IDOff:], id)
	if id == 0 {
		p[ipv4FragOff] = 0x40
	}
	copy(p[12:], tunPeer4.AsSlice())
	copy(p[16:], tunHost4.Addr().AsSlice())
	h := p[ipv4HeaderLen:]
	sum := h[udpSumOff:]
	if proto == packet.ProtoTCP {
		binary.BigEndian.PutUint32(h[tcpSeqOff:], seq)
		h[tcpDataOff], h[tcpFlagsOff] = 5<<4, tcpACK
		sum = h[tcpSumOff:]
	} else {
		binary.BigEndian.PutUint16(h[udpLenOff:], uint16(len(h)))
	}
	copy(h[t:], payload)
	if change != nil {
		change(p)
	}
	fillIPv4Sum(p[:ipv4HeaderLen])
	acc := packet.Sum(uint64(len(h))+uint64(proto), p[12:20])
	binary.BigEndian.PutUint16(sum, ^packet.Fold(packet.Sum(acc, h)))
	return p
}

// TestIPv4Runs joins what may be joined, and expects it back bit for bit.
func TestIPv4Runs(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 122)
	tcp := func(id uint16, seq uint32) []byte { return segment4(packet.ProtoTCP, id, seq, data, nil) }
	changed := func(f func(p []byte)) []byte { return segment4(packet.ProtoTCP, 8, 1320, data, f) }
	udp := func(id uint16, n int) []byte { return segment4(packet.ProtoUDP, id, 0, data[:n], nil) }
	badHeader := tcp(8, 1320)
	badHeader[ipv4SumOff] ^= 1
	for _, tt := range []struct {
		name string
		pkts [][]byte
		want int
	}{
		{"TCP", [][]byte{tcp(7, 100), tcp(8, 1320), tcp(9, 2540)}, 3},
		{"identification wraps", [][]byte{tcp(0xffff, 100), segment4(packet.ProtoTCP, 0, 1320, data, func(p []byte) { p[ipv4FragOff] = 0 })}, 2},
		{"UDP", [][]byte{udp(7, 500), udp(8, 500), udp(9, 50)}, 3},
		{"other identification", [][]byte{tcp(7, 100), tcp(9, 1320)}, 1},
		{"other type of service", [][]byte{tcp(7, 100), changed(func(p []byte) { p[1] = 4 })}, 1},
		{"other time to live", [][]byte{tcp(7, 100), changed(func(p []byte) { p[ipv4TTLOff] = 9 })}, 1},
		{"other address", [][]byte{tcp(7, 100), changed(func(p []byte) { p[19] = 9 })}, 1},
		{"fragment", [][]byte{tcp(7, 100), changed(func(p []byte) { p[ipv4FragOff] = 0x20 })}, 1},
		{"header damaged", [][]byte{tcp(7, 100), badHeader}, 1},
		{"payload damaged", [][]byte{tcp(7, 100), damaged(tcp(8, 1320))}, 1},
		{"options", [][]byte{append([]byte{0x46}, tcp(7, 100)[1:]...), tcp(8, 1320)}, 1},
		{"length lies", [][]byte{append(tcp(7, 100), 0), tcp(8, 1320)}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, f := run(tt.pkts, true)
			if n != tt.want {
				t.Fatalf("run of %d, want %d", n, tt.want)
			}
			if n == 1 {
				return
			}
			got, ok := split(join(tt.pkts, f))
			if !ok {
				t.Fatal("not taken apart")
			}
			if diff := cmp.Diff(tt.pkts, got); diff != "" {
				t.Errorf("packets (-want +got):\n%s", diff)
			}
		})
	}
	// The identification of packets with DF need not count up.
	if n, _ := run([][]byte{tcp(0, 100), tcp(0, 1320)}, true); n != 2 {
		t.Errorf("with DF a run of %d, want 2", n)
	}
}

func TestAddHopIPv4(t *testing.T) {
	for ttl := range 256 {
		p := segment4(packet.ProtoUDP, 1, 0, nil, func(p []byte) { p[ipv4TTLOff] = byte(ttl) })
		addHop(p)
		if want := min(ttl+1, 255); int(p[ipv4TTLOff]) != want || packet.Fold(packet.Sum(0, p[:20])) != 0xffff {
			t.Errorf("time to live %d became %d, header %x", ttl, p[ipv4TTLOff], p[:20])
		}
	}
}

// TestTUNCarriesIPv4 sends a datagram of the host's stack, and it back with
// addresses and ports exchanged.
func TestTUNCarriesIPv4(t *testing.T) {
	h := inNamespace(t)
	tun := openTUN(t, h, TUNConfig{Name: "t0", Forwarding: true, Offload: true})
	if err := h.AddAddr("t0", tunHost4); err != nil {
		t.Fatal(err)
	}
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(tunPeer4, 9)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("to and fro")); err != nil {
		t.Fatal(err)
	}
	p := readIPv4(t, tun)
	if p[ipv4TTLOff] != 65 || packet.Fold(packet.Sum(0, p[:20])) != 0xffff {
		t.Errorf("header %x: want a time to live of 65 and a right checksum", p[:20])
	}
	for i := range 4 {
		p[12+i], p[16+i] = p[16+i], p[12+i]
	}
	p[20], p[21], p[22], p[23] = p[22], p[23], p[20], p[21]
	if err := tun.WriteBatch([][]byte{p}); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	if n, err := c.Read(buf); err != nil || string(buf[:n]) != "to and fro" {
		t.Errorf("read %q, %v", buf[:n], err)
	}
}

func readIPv4(t *testing.T, tun *TUN) []byte {
	t.Helper()
	pkts := make([][]byte, MaxBatch)
	for {
		n, err := tun.ReadBatch(pkts)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pkts[:n] {
			if p[0]>>4 == 4 && p[ipv4ProtoOff] == packet.ProtoUDP {
				return bytes.Clone(p)
			}
		}
	}
}
