// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

var (
	tunHost  = netip.MustParsePrefix("2001:db8::1/64") // the device's own address
	tunPeer  = netip.MustParseAddr("2001:db8::2")      // an address behind it
	tunRoute = netip.MustParsePrefix("2001:db8:1::/48")
)

// openTUN opens a device that is up and has the address tunHost.
func openTUN(t testing.TB, h *Host, cfg TUNConfig) *TUN {
	t.Helper()
	tun, err := OpenTUN(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tun.Close() })
	if err := h.SetUp(tun.Name()); err != nil {
		t.Fatal(err)
	}
	if err := h.AddAddr(tun.Name(), tunHost); err != nil {
		t.Fatal(err)
	}
	testutil.AwaitLocal(t, tunHost.Addr())
	return tun
}

// readUDP reads packets until one is UDP, and returns a copy of it.
func readUDP(t testing.TB, tun *TUN) packet.IPv6 {
	t.Helper()
	pkts := make([][]byte, MaxBatch)
	for {
		n, err := tun.ReadBatch(pkts)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range pkts[:n] {
			if p, _, ok := packet.ParseIPv6(b); ok && p.NextHeader() == packet.ProtoUDP {
				return append(packet.IPv6(nil), p...)
			}
		}
	}
}

// dial returns a UDP socket of this host's stack towards tunPeer.
func dial(t testing.TB) *net.UDPConn {
	t.Helper()
	c, err := net.DialUDP("udp6", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(tunPeer, 9)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// reply turns a UDP packet around: addresses and ports change places, which
// leaves the checksum right.
func reply(p packet.IPv6) {
	for i := range 16 {
		p[8+i], p[24+i] = p[24+i], p[8+i]
	}
	p[40], p[41], p[42], p[43] = p[42], p[43], p[40], p[41]
}

func TestTUNBothWays(t *testing.T) {
	tests := []struct {
		name       string
		forwarding bool
		hopLimit   byte // as read, sent with 64
	}{
		{"local traffic", false, 64},
		{"forwarded traffic gets its hop back", true, 65},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tun := openTUN(t, inNamespace(t), TUNConfig{Name: "t0", Forwarding: tt.forwarding})
			c := dial(t)
			if _, err := c.Write([]byte("to and fro")); err != nil {
				t.Fatal(err)
			}
			p := readUDP(t, tun)
			if p.HopLimit() != tt.hopLimit {
				t.Errorf("hop limit %d, want %d", p.HopLimit(), tt.hopLimit)
			}
			reply(p)
			if err := tun.WriteBatch([][]byte{p}); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 64)
			n, err := c.Read(buf)
			if err != nil || string(buf[:n]) != "to and fro" {
				t.Errorf("read %q, %v", buf[:n], err)
			}
			if s := tun.Stats(); s.WritePackets != 1 || s.ReadPackets == 0 || s.ReadTruncated != 0 {
				t.Errorf("counters: %+v", s)
			}
		})
	}
}

func TestTUNCountsRefusedPackets(t *testing.T) {
	h := inNamespace(t)
	tun := openTUN(t, h, TUNConfig{})
	if err := tun.WriteBatch([][]byte{{0x15, 1, 2, 3}, nil}); err != nil {
		t.Fatal(err)
	}
	if s := tun.Stats(); s.WriteFailed != 1 || s.WritePackets != 0 {
		t.Errorf("counters: %+v", s)
	}
}

func TestTUNCloseWakesReader(t *testing.T) {
	inNamespace(t)
	tun, err := OpenTUN(TUNConfig{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		for {
			if _, err := tun.ReadBatch(make([][]byte, 1)); err != nil {
				done <- err
				return
			}
		}
	}()
	tun.Close()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("reader got %v", err)
	}
	if _, err := net.InterfaceByName(tun.Name()); err == nil {
		t.Errorf("%s outlived its TUN", tun.Name())
	}
}

func TestTUNSendsNothingByItself(t *testing.T) {
	h := inNamespace(t)
	tun := openTUN(t, h, TUNConfig{Name: "t0"})
	i, err := net.InterfaceByName("t0")
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := i.Addrs()
	if err != nil {
		t.Fatal(err)
	}
	if len(addrs) != 1 || i.MTU != 1280 || i.Index != tun.Index() {
		t.Errorf("addresses %v, MTU %d, index %d; want one, 1280, %d", addrs, i.MTU, i.Index, tun.Index())
	}
}

func TestOpenTUNErrors(t *testing.T) {
	tests := []struct {
		name string
		cfg  TUNConfig
		want string
	}{
		{"name in use", TUNConfig{Name: "taken"}, "in use by another program"},
		{"name of another kind of link", TUNConfig{Name: "lo"}, "interface of another kind"},
		{"name too long", TUNConfig{Name: "a-very-long-device-name"}, "at most 15 characters"},
		{"MTU too small", TUNConfig{MTU: 1279}, "1280 to 65535"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			openTUN(t, inNamespace(t), TUNConfig{Name: "taken"})
			_, err := OpenTUN(tt.cfg)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestTUNAllocatesNothing(t *testing.T) {
	for _, cfg := range []TUNConfig{{Name: "plain"}, {Name: "offload", Offload: true}} {
		t.Run(cfg.Name, func(t *testing.T) {
			tun := openTUN(t, inNamespace(t), cfg)
			c := dial(t)
			payload := make([]byte, 100)
			pkts, out := make([][]byte, MaxBatch), make([][]byte, 1)
			buf := make([]byte, 200)
			if n := testing.AllocsPerRun(100, func() {
				if _, err := c.Write(payload); err != nil {
					t.Fatal(err)
				}
				n, err := tun.ReadBatch(pkts)
				if err != nil || n != 1 {
					t.Fatal(n, err)
				}
				reply(pkts[0])
				out[0] = pkts[0]
				if err := tun.WriteBatch(out); err != nil {
					t.Fatal(err)
				}
				if _, err := c.Read(buf); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%v allocations a run", n)
			}
		})
	}
}

// TestRaw6 sends a packet through the raw socket out of the TUN, unchanged.
func TestRaw6(t *testing.T) {
	h := inNamespace(t)
	tun := openTUN(t, h, TUNConfig{Name: "t0"})
	if err := h.AddRoute(Route{Dst: tunRoute, Link: "t0"}); err != nil {
		t.Fatal(err)
	}
	c := dial(t)
	if _, err := c.Write([]byte("raw")); err != nil {
		t.Fatal(err)
	}
	p := readUDP(t, tun)
	copy(p[8:24], netip.MustParseAddr("2001:db8:2::7").AsSlice()) // a foreign source
	copy(p[24:40], tunRoute.Addr().Next().AsSlice())
	p.SetHopLimit(1)
	r, err := OpenRaw6()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	noRoute := append(packet.IPv6(nil), p...)
	noRoute[24] = 0x3f
	if err := r.WriteBatch([][]byte{noRoute, p[:39], p}); err != nil {
		t.Fatal(err)
	}
	if got := readUDP(t, tun); string(got) != string(p) {
		t.Errorf("got %x, want %x", got, p)
	}
	if s := r.Stats(); s.WritePackets != 1 || s.WriteUnreachable != 1 || s.WriteFailed != 1 {
		t.Errorf("counters: %+v", s)
	}
}
