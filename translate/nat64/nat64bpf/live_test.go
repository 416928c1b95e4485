// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf_test

import (
	"net"
	"testing"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate/translatebpf/translatebpftest"
)

// onHooks runs a test with programs at either hook, and looks for wrong checksums.
func onHooks(t *testing.T, test func(t *testing.T, w *liveWorld, at runtest.Hook)) {
	for _, at := range runtest.Hooks {
		t.Run(string(at), func(t *testing.T) {
			w := newLiveWorld(t, at)
			test(t, w, at)
			w.CheckSums(t)
		})
	}
}

// Datagrams of all sizes there and back; of their hop limits one is taken, and the last
// one is the gateway's own affair.
func TestNAT64LiveUDP(t *testing.T) {
	onHooks(t, func(t *testing.T, w *liveWorld, at runtest.Hook) {
		server := translatebpftest.Listen(t, w.Host4, "udp4", translatebpftest.Host4.String()+":5000")
		client := translatebpftest.Listen(t, w.Host6, "udp6", "["+translatebpftest.Host6.String()+"]:0")
		four := ipv4.NewPacketConn(server)
		if err := four.SetControlMessage(ipv4.FlagTTL, true); err != nil {
			t.Fatal(err)
		}
		six := ipv6.NewPacketConn(client)
		if err := six.SetControlMessage(ipv6.FlagHopLimit, true); err != nil {
			t.Fatal(err)
		}
		to := &net.UDPAddr{IP: translatebpftest.Host4In6.AsSlice(), Port: 5000}
		buf := make([]byte, 2000)
		for _, tt := range []struct{ hops, size int }{{64, 0}, {2, 1}, {255, 501}, {64, 1452}} {
			if err := six.SetHopLimit(tt.hops); err != nil {
				t.Fatal(err)
			}
			payload := make([]byte, tt.size)
			for i := range payload {
				payload[i] = byte(i * 3)
			}
			if _, err := six.WriteTo(payload, nil, to); err != nil {
				t.Fatal(err)
			}
			n, cm, from, err := four.ReadFrom(buf)
			if err != nil {
				t.Fatalf("%d bytes: %v; %v", tt.size, err, w.counted(t))
			}
			if cm.TTL != tt.hops-1 || string(buf[:n]) != string(payload) || !from.(*net.UDPAddr).IP.Equal(translatebpftest.PoolAddr.AsSlice()) {
				t.Errorf("%d bytes with %d hops: %d bytes with %d from %s", tt.size, tt.hops, n, cm.TTL, from)
			}
			if err := four.SetTTL(tt.hops); err != nil {
				t.Fatal(err)
			}
			if _, err := four.WriteTo(payload, nil, from); err != nil {
				t.Fatal(err)
			}
			n, cm6, back, err := six.ReadFrom(buf)
			if err != nil {
				t.Fatalf("%d bytes back: %v; %v", tt.size, err, w.counted(t))
			}
			if cm6.HopLimit != tt.hops-1 || string(buf[:n]) != string(payload) || back.String() != to.String() {
				t.Errorf("back came %d bytes with %d hops from %s, want %d with %d", n, cm6.HopLimit, back, tt.size, tt.hops-1)
			}
		}
		counts := w.counted(t)
		if counts["to4_forwarded"].Packets != 4 || counts["to6_forwarded"].Packets != 4 {
			t.Errorf("the programs counted %v", counts)
		}

		// One hop: the gateway answers, and nothing goes on.
		errs := w.ICMP6(t)
		if err := six.SetHopLimit(1); err != nil {
			t.Fatal(err)
		}
		if _, err := six.WriteTo([]byte("last"), nil, to); err != nil {
			t.Fatal(err)
		}
		n, _, err := errs.ReadFrom(buf)
		if err != nil || n == 0 || buf[0] != packet.ICMPv6TimeExceeded {
			t.Fatalf("%d bytes, type %d, %v; want Time Exceeded", n, buf[0], err)
		}
		if got := w.counted(t)["hop_limit_exceeded"].Packets; got != 1 {
			t.Errorf("%d packets were left for their hop limit, want 1", got)
		}
	})
}

// A ping is answered, and a port where no one listens says so.
func TestNAT64LiveICMP(t *testing.T) {
	onHooks(t, func(t *testing.T, w *liveWorld, at runtest.Hook) {
		c := w.ICMP6(t)
		to := &net.IPAddr{IP: translatebpftest.Host4In6.AsSlice()}
		buf := make([]byte, 2000)
		for _, size := range []int{0, 1, 56, 1200} {
			m := append([]byte{packet.ICMPv6EchoRequest, 0, 0, 0, 0x12, 0x34, 0, byte(size)}, make([]byte, size)...)
			if _, err := c.WriteTo(m, to); err != nil {
				t.Fatal(err)
			}
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				t.Fatalf("ping of %d bytes: %v; %v", size, err, w.counted(t))
			}
			m[0] = packet.ICMPv6EchoReply
			m[2], m[3] = buf[2], buf[3]
			if string(buf[:n]) != string(m) || from.String() != to.String() {
				t.Errorf("ping of %d bytes: %x from %s", size, buf[:n], from)
			}
		}
		w.counted(t)
		client := translatebpftest.Listen(t, w.Host6, "udp6", "["+translatebpftest.Host6.String()+"]:0")
		if _, err := client.WriteToUDP([]byte("nobody"), &net.UDPAddr{IP: translatebpftest.Host4In6.AsSlice(), Port: 9}); err != nil {
			t.Fatal(err)
		}
		n, from, err := c.ReadFrom(buf)
		if err != nil || n < 2 || buf[0] != packet.ICMPv6Unreachable || buf[1] != 4 || from.String() != to.String() {
			t.Fatalf("%d bytes of type %d code %d from %v, %v; %v", n, buf[0], buf[1], from, err, w.counted(t))
		}
		if q := packet.IPv6(buf[8:n]); q.Src() != translatebpftest.Host6 || q.Dst() != translatebpftest.Host4In6 {
			t.Errorf("the error is about %s to %s", q.Src(), q.Dst())
		}
		if got := w.counted(t); got["to6_forwarded"].Packets != 1 {
			t.Errorf("the programs counted %v", got)
		}
	})
}

// TCP carries much both ways; at tc its segments stay together.
func TestNAT64LiveTCP(t *testing.T) {
	onHooks(t, func(t *testing.T, w *liveWorld, at runtest.Hook) {
		const much = 4 << 20
		err := translatebpftest.EchoMuch(t, much, w.Host6, "["+translatebpftest.Host4In6.String()+"]:5001", w.Host4, translatebpftest.Host4.String()+":5001")
		if err != nil {
			t.Fatalf("%v; the programs counted %v", err, w.counted(t))
		}
		counts := w.counted(t)
		for _, way := range []string{"to4_forwarded", "to6_forwarded"} {
			x := counts[way]
			t.Logf("%s: %d bytes in %d packets", way, x.Bytes, x.Packets)
			if x.Bytes < much {
				t.Errorf("%s: %d bytes only", way, x.Bytes)
			}
			if at == runtest.InTC && x.Bytes/x.Packets < 4000 {
				t.Errorf("%s: segments did not stay together: %d bytes in %d packets", way, x.Bytes, x.Packets)
			}
		}
		delete(counts, "to4_forwarded")
		delete(counts, "to6_forwarded")
		if len(counts) != 0 {
			t.Errorf("the programs left packets: %v", counts)
		}
	})
}
