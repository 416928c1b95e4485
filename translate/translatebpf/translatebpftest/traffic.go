// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translatebpftest

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

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// Listen opens a UDP socket in a namespace.
func Listen(t *testing.T, ns *testutil.Netns, network, addr string) *net.UDPConn {
	t.Helper()
	var c net.PacketConn
	ns.Do(t, func() (err error) {
		c, err = net.ListenPacket(network, addr)
		return err
	})
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(Timeout)); err != nil {
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

// CheckSums fails if a host has found a wrong checksum.
func (w *Net) CheckSums(t *testing.T) {
	t.Helper()
	for name, ns := range map[string]*testutil.Netns{"IPv6": w.Host6, "IPv4": w.Host4, "gateway": w.Gateway} {
		if n := checksumErrors(t, ns); n != 0 {
			t.Errorf("the %s host found %d wrong checksums", name, n)
		}
	}
}

// ICMP6 receives what ICMPv6 tells the IPv6 host, errors and echo replies.
func (w *Net) ICMP6(t *testing.T) net.PacketConn {
	t.Helper()
	var c net.PacketConn
	w.Host6.Do(t, func() (err error) {
		if c, err = net.ListenPacket("ip6:ipv6-icmp", Host6.String()); err != nil {
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
	if err := c.SetDeadline(time.Now().Add(Timeout)); err != nil {
		t.Fatal(err)
	}
	return c
}

// EchoMuch sends so many bytes by TCP to a server that sends them back.
func EchoMuch(t *testing.T, much int, near *testutil.Netns, to string, far *testutil.Netns, at string) error {
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
		c, err = net.DialTimeout("tcp", to, Timeout)
		return nil
	})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(Timeout)); err != nil {
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
	if err := c.SetDeadline(time.Now().Add(Timeout)); err != nil {
		return err
	}
	data, err := io.ReadAll(c)
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	_, err = c.Write(data)
	return err
}

// ICMP4 receives echo replies at the IPv4 host.
func (w *Net) ICMP4(t *testing.T) net.PacketConn {
	t.Helper()
	var c net.PacketConn
	w.Host4.Do(t, func() (err error) {
		if c, err = net.ListenPacket("ip4:icmp", Host4.String()); err != nil {
			return err
		}
		var f ipv4.ICMPFilter
		f.SetAll(true)
		f.Accept(ipv4.ICMPTypeEchoReply)
		return ipv4.NewPacketConn(c).SetICMPFilter(&f)
	})
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(Timeout)); err != nil {
		t.Fatal(err)
	}
	return c
}
