// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitbpf_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/siit/siitbpf"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
	"github.com/isthmus-net/isthmus/translate/translatebpf/translatebpftest"
)

// Addresses of the IPv6 host in a live world: by a mapping, and made by the prefix.
var (
	liveMapped  = netip.MustParseAddr("192.0.2.130")
	liveMade    = netip.MustParseAddr("192.0.2.179")
	liveMadeIn6 = netip.MustParseAddr("2001:db8:64::192.0.2.179")
)

// liveSIIT is a live world of a stateless translator.
type liveSIIT struct {
	translatebpftest.Net
	fast *siitbpf.Path
}

func newLiveSIIT(t *testing.T, at runtest.Hook) *liveSIIT {
	t.Helper()
	w := &liveSIIT{Net: translatebpftest.NewNet(t)}
	own := netip.PrefixFrom(liveMadeIn6, 128)
	w.Host6.Do(t, func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr(own.String())
		if err != nil {
			return err
		}
		addr.Flags = 0x02 // IFA_F_NODAD
		return netlink.AddrAdd(l, addr)
	})
	w.Gateway.Do(t, func() error {
		to, err := netlink.ParseIPNet(own.String())
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Dst: to, Gw: translatebpftest.Host6.AsSlice(), LinkIndex: w.Six})
	})
	var err error
	if w.fast, err = siitbpf.Load(siitbpf.Config{Name: "live"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.fast.Close() })
	err = w.fast.Set(siitbpf.Settings{
		Tunnel: w.TUN, Pool6: []translatebpf.Prefix{{Prefix: translatebpftest.Pool6[0]}}, Pool4: []netip.Prefix{siitPool4},
		Mappings: []translate.Mapping{{IPv4: netip.PrefixFrom(liveMapped, 32), IPv6: netip.PrefixFrom(translatebpftest.Host6, 128)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Serve(t, w.fast.SetDevice)
	w.fast.Beat(time.Hour)
	w.counted(t)
	w.Attach(t, at, w.fast.Programs())
	return w
}

// counted returns the reasons that were counted since the last call.
func (w *liveSIIT) counted(t *testing.T) map[string]fastpath.Counter {
	t.Helper()
	return w.Counted(t, w.fast)
}

// liveHosts are the IPv6 host's addresses, and what IPv4 knows them by.
var liveHosts = []struct {
	name      string
	six, four netip.Addr
}{{"mapping", translatebpftest.Host6, liveMapped}, {"prefix", liveMadeIn6, liveMade}}

// onLiveSIIT runs a test with programs at either hook, for an address of each kind. All that
// it sends the programs must carry.
func onLiveSIIT(t *testing.T, test func(t *testing.T, w *liveSIIT, at runtest.Hook, six, four netip.Addr)) {
	for _, at := range runtest.Hooks {
		for _, host := range liveHosts {
			t.Run(string(at)+"/"+host.name, func(t *testing.T) {
				w := newLiveSIIT(t, at)
				test(t, w, at, host.six, host.four)
				counts := w.counted(t)
				for _, way := range []string{"to4_forwarded", "to6_forwarded"} {
					if counts[way].Packets == 0 {
						t.Errorf("%s: none was carried", way)
					}
					delete(counts, way)
				}
				if len(counts) != 0 {
					t.Errorf("the programs left packets: %v", counts)
				}
				w.CheckSums(t)
			})
		}
	}
}

// Datagrams of all sizes there and back, of whoever begins.
func TestSIITLiveUDP(t *testing.T) {
	onLiveSIIT(t, func(t *testing.T, w *liveSIIT, _ runtest.Hook, six, four netip.Addr) {
		host6 := translatebpftest.Listen(t, w.Host6, "udp6", netip.AddrPortFrom(six, 5000).String())
		host4 := translatebpftest.Listen(t, w.Host4, "udp4", netip.AddrPortFrom(translatebpftest.Host4, 6000).String())
		buf := make([]byte, 2000)
		for _, size := range []int{0, 1, 501, 1452} {
			payload := make([]byte, size)
			for i := range payload {
				payload[i] = byte(i * 3)
			}
			for _, one := range []struct {
				name     string
				from, at *net.UDPConn
				to, seen netip.AddrPort
			}{
				{"to IPv4", host6, host4, netip.AddrPortFrom(translatebpftest.Host4In6, 6000), netip.AddrPortFrom(four, 5000)},
				{"to IPv6", host4, host6, netip.AddrPortFrom(four, 5000), netip.AddrPortFrom(translatebpftest.Host4In6, 6000)},
			} {
				if _, err := one.from.WriteToUDPAddrPort(payload, one.to); err != nil {
					t.Fatal(err)
				}
				n, from, err := one.at.ReadFromUDPAddrPort(buf)
				if err != nil {
					t.Fatalf("%s, %d bytes: %v; %v", one.name, size, err, w.counted(t))
				}
				if string(buf[:n]) != string(payload) || netip.AddrPortFrom(from.Addr().Unmap(), from.Port()) != one.seen {
					t.Errorf("%s, %d bytes: %d from %s, want %s", one.name, size, n, from, one.seen)
				}
			}
		}
	})
}

// A ping is answered, of whoever sends it.
func TestSIITLivePing(t *testing.T) {
	onLiveSIIT(t, func(t *testing.T, w *liveSIIT, _ runtest.Hook, six, four netip.Addr) {
		var at6 net.PacketConn
		w.Host6.Do(t, func() (err error) {
			at6, err = net.ListenPacket("ip6:ipv6-icmp", six.String())
			return err
		})
		defer at6.Close()
		if err := at6.SetDeadline(time.Now().Add(translatebpftest.Timeout)); err != nil {
			t.Fatal(err)
		}
		at4 := w.ICMP4(t)
		for _, size := range []int{0, 1, 56, 1200} {
			ping(t, at6, translatebpftest.Host4In6, packet.ICMPv6EchoRequest, packet.ICMPv6EchoReply, size)
			ping(t, at4, four, 8, 0, size)
		}
	})
}

// ping sends an echo request and waits for its reply.
func ping(t *testing.T, c net.PacketConn, to netip.Addr, request, reply byte, size int) {
	t.Helper()
	m := append([]byte{request, 0, 0, 0, 0x12, 0x34, 0, byte(size)}, make([]byte, size)...)
	if request == 8 { // of ICMPv6 the kernel makes the checksum
		sum := ^packet.Fold(packet.Sum(0, m))
		m[2], m[3] = byte(sum>>8), byte(sum)
	}
	if _, err := c.WriteTo(m, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2000)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			t.Fatalf("ping of %d bytes to %s: %v", size, to, err)
		}
		if buf[0] != reply {
			continue // the requests of the other side
		}
		m[0], m[2], m[3] = reply, buf[2], buf[3]
		if string(buf[:n]) != string(m) || from.String() != to.String() {
			t.Errorf("ping of %d bytes to %s: %x from %s", size, to, buf[:n], from)
		}
		return
	}
}

// TCP carries much both ways, of whoever connects; at tc its segments stay together.
func TestSIITLiveTCP(t *testing.T) {
	onLiveSIIT(t, func(t *testing.T, w *liveSIIT, at runtest.Hook, six, four netip.Addr) {
		const much = 1 << 20
		before := w.Counts
		for _, one := range []struct {
			name      string
			near, far *testutil.Netns
			to, at    netip.Addr
		}{
			{"to IPv4", w.Host6, w.Host4, translatebpftest.Host4In6, translatebpftest.Host4},
			{"to IPv6", w.Host4, w.Host6, four, six},
		} {
			err := translatebpftest.EchoMuch(t, much, one.near, netip.AddrPortFrom(one.to, 5001).String(), one.far, netip.AddrPortFrom(one.at, 5001).String())
			if err != nil {
				t.Fatalf("%s: %v; the programs counted %v", one.name, err, w.counted(t))
			}
		}
		counts := w.counted(t)
		w.Counts = before // for those who look at the end
		for _, way := range []string{"to4_forwarded", "to6_forwarded"} {
			x := counts[way]
			t.Logf("%s: %d bytes in %d packets", way, x.Bytes, x.Packets)
			if x.Bytes < 2*much {
				t.Errorf("%s: %d bytes only", way, x.Bytes)
			}
			if at == runtest.InTC && x.Bytes/x.Packets < 4000 {
				t.Errorf("%s: segments did not stay together: %d bytes in %d packets", way, x.Bytes, x.Packets)
			}
		}
	})
}
