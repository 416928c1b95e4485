// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath_test

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// listen opens a UDP socket in a namespace.
func listen(t *testing.T, ns *testutil.Netns, network, addr string) *net.UDPConn {
	t.Helper()
	var c net.PacketConn
	ns.Do(t, func() (err error) {
		c, err = net.ListenPacket(network, addr)
		return err
	})
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(liveTimeout)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.UDPConn)
}

// checksumErrors counts what the stack of a host found wrong.
func checksumErrors(t *testing.T, ns *testutil.Netns) (n int) {
	t.Helper()
	ns.Do(t, func() error {
		for _, name := range []string{"snmp", "snmp6"} {
			f, err := os.Open("/proc/thread-self/net/" + name)
			if err != nil {
				return err
			}
			defer f.Close()
			var names []string
			for s := bufio.NewScanner(f); s.Scan(); {
				fields := strings.Fields(s.Text())
				if strings.HasSuffix(fields[0], "InCsumErrors") {
					v, err := strconv.Atoi(fields[1])
					if err != nil {
						return err
					}
					n += v
				}
				for i, field := range fields {
					if i < len(names) && names[i] == "InCsumErrors" && field != names[i] {
						v, err := strconv.Atoi(field)
						if err != nil {
							return err
						}
						n += v
					}
				}
				names = fields
			}
		}
		return nil
	})
	return n
}

// onHooks runs a test with programs at either hook, and looks for wrong checksums.
func onHooks(t *testing.T, test func(t *testing.T, w *liveWorld, at hook)) {
	for _, at := range hooks {
		t.Run(string(at), func(t *testing.T) {
			w := newLiveWorld(t, at)
			test(t, w, at)
			w.checkSums(t)
		})
	}
}

// checkSums fails if a host has found a wrong checksum.
func (w *liveNet) checkSums(t *testing.T) {
	t.Helper()
	for name, ns := range map[string]*testutil.Netns{"IPv6": w.host6, "IPv4": w.host4, "gateway": w.gateway} {
		if n := checksumErrors(t, ns); n != 0 {
			t.Errorf("the %s host found %d wrong checksums", name, n)
		}
	}
}

// Datagrams of all sizes there and back; of their hop limits one is taken, and the last
// one is the gateway's own affair.
func TestNAT64LiveUDP(t *testing.T) {
	onHooks(t, func(t *testing.T, w *liveWorld, at hook) {
		server := listen(t, w.host4, "udp4", live4.String()+":5000")
		client := listen(t, w.host6, "udp6", "["+live6.String()+"]:0")
		four := ipv4.NewPacketConn(server)
		if err := four.SetControlMessage(ipv4.FlagTTL, true); err != nil {
			t.Fatal(err)
		}
		six := ipv6.NewPacketConn(client)
		if err := six.SetControlMessage(ipv6.FlagHopLimit, true); err != nil {
			t.Fatal(err)
		}
		to := &net.UDPAddr{IP: live4in6.AsSlice(), Port: 5000}
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
			if cm.TTL != tt.hops-1 || string(buf[:n]) != string(payload) || !from.(*net.UDPAddr).IP.Equal(poolAddr.AsSlice()) {
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
		errs := w.icmp6(t)
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

// icmp6 receives what ICMPv6 tells the IPv6 host, errors and echo replies.
func (w *liveNet) icmp6(t *testing.T) net.PacketConn {
	t.Helper()
	var c net.PacketConn
	w.host6.Do(t, func() (err error) {
		if c, err = net.ListenPacket("ip6:ipv6-icmp", live6.String()); err != nil {
			return err
		}
		var f ipv6.ICMPFilter
		f.SetAll(true)
		for _, typ := range []ipv6.ICMPType{ipv6.ICMPTypeDestinationUnreachable, ipv6.ICMPTypeTimeExceeded, ipv6.ICMPTypeEchoReply} {
			f.Accept(typ)
		}
		return ipv6.NewPacketConn(c).SetICMPFilter(&f)
	})
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(liveTimeout)); err != nil {
		t.Fatal(err)
	}
	return c
}

// A ping is answered, and a port where nobody listens says so.
func TestNAT64LiveICMP(t *testing.T) {
	onHooks(t, func(t *testing.T, w *liveWorld, at hook) {
		c := w.icmp6(t)
		to := &net.IPAddr{IP: live4in6.AsSlice()}
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
		client := listen(t, w.host6, "udp6", "["+live6.String()+"]:0")
		if _, err := client.WriteToUDP([]byte("nobody"), &net.UDPAddr{IP: live4in6.AsSlice(), Port: 9}); err != nil {
			t.Fatal(err)
		}
		n, from, err := c.ReadFrom(buf)
		if err != nil || n < 2 || buf[0] != packet.ICMPv6Unreachable || buf[1] != 4 || from.String() != to.String() {
			t.Fatalf("%d bytes of type %d code %d from %v, %v; %v", n, buf[0], buf[1], from, err, w.counted(t))
		}
		if q := packet.IPv6(buf[8:n]); q.Src() != live6 || q.Dst() != live4in6 {
			t.Errorf("the error is about %s to %s", q.Src(), q.Dst())
		}
		if got := w.counted(t); got["to6_forwarded"].Packets != 1 {
			t.Errorf("the programs counted %v", got)
		}
	})
}

// TCP carries much both ways; at tc its segments stay together.
func TestNAT64LiveTCP(t *testing.T) {
	onHooks(t, func(t *testing.T, w *liveWorld, at hook) {
		const much = 4 << 20
		err := echoMuch(t, much, w.host6, "["+live4in6.String()+"]:5001", w.host4, live4.String()+":5001")
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
			if at == inTC && x.Bytes/x.Packets < 4000 {
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

// echoMuch sends so many bytes by TCP to a server that sends them back.
func echoMuch(t *testing.T, much int, near *testutil.Netns, to string, far *testutil.Netns, at string) error {
	t.Helper()
	data := make([]byte, much)
	r := rand.NewChaCha8([32]byte{1})
	if _, err := r.Read(data); err != nil {
		t.Fatal(err)
	}
	want := sha256.Sum256(data)
	var l net.Listener
	far.Do(t, func() (err error) {
		l, err = net.Listen("tcp", at)
		return err
	})
	defer l.Close()
	echoed := make(chan error, 1)
	go func() { echoed <- echoAll(l) }()
	var c net.Conn
	var err error
	near.Do(t, func() error {
		c, err = net.DialTimeout("tcp", to, liveTimeout)
		return nil
	})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(liveTimeout)); err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(data)
		sent <- errors.Join(err, c.(*net.TCPConn).CloseWrite())
	}()
	h := sha256.New()
	n, err := io.Copy(h, c)
	if err := errors.Join(err, <-sent, <-echoed); err != nil {
		return err
	}
	if n != int64(much) || [32]byte(h.Sum(nil)) != want {
		return fmt.Errorf("%d of %d bytes came back", n, much)
	}
	return nil
}

// echoAll sends all that one connection brings back.
func echoAll(l net.Listener) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(liveTimeout)); err != nil {
		return err
	}
	data, err := io.ReadAll(c)
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	_, err = c.Write(data)
	return err
}
