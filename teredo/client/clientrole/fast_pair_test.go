// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// onTC insists on the fast path: the far ends of the veths are known here.
func onTC(c *Settings) { c.FastPath = fastpath.ModeTC }

func inAll(c *Settings) { c.Unsolicited = UnsolicitedAllow }

// fastPair is a rig with a client at each end.
type fastPair struct {
	*rig
	ca, cb *Client
	aa, ab netip.Addr // Teredo addresses
}

func newFastPair(t *testing.T, change ...func(*Settings)) *fastPair {
	t.Helper()
	return startFastPair(t, newRig(t), change, change)
}

func startFastPair(t *testing.T, r *rig, changeA, changeB []func(*Settings)) *fastPair {
	t.Helper()
	p := &fastPair{rig: r}
	p.ca, _ = newClient(t, changeA...)
	p.cb, _ = newClient(t, append([]func(*Settings){inAll}, changeB...)...)
	roletest.Start(t, p.a, p.ca)
	roletest.Start(t, p.b, p.cb)
	p.aa, p.ab = await(t, p.ca, "qualified", qualified).Address, await(t, p.cb, "qualified", qualified).Address
	awaitDevice(t, p.a, deviceWith(p.aa)...)
	awaitDevice(t, p.b, deviceWith(p.ab)...)
	for _, c := range []*Client{p.ca, p.cb} {
		await(t, c, "at its fast path", func(s Status) bool { return s.FastPath.Why != "starting" })
	}
	return p
}

// fetch moves bytes by TCP from b to a, over Teredo.
func (p *fastPair) fetch(t *testing.T, bytes int64) {
	t.Helper()
	p.transfer(t, netip.AddrPortFrom(p.ab, 0), bytes)
}

func (p *fastPair) transfer(t *testing.T, at netip.AddrPort, bytes int64) time.Duration {
	t.Helper()
	var listener net.Listener
	p.b.Do(t, func() (err error) {
		// Multipath TCP, Go's default for listeners, says more in its headers.
		var cfg net.ListenConfig
		cfg.SetMultipathTCP(false)
		listener, err = cfg.Listen(context.Background(), "tcp", at.String())
		return err
	})
	defer listener.Close()
	sent := make(chan error, 1)
	go func() {
		c, err := listener.Accept()
		if err == nil {
			_, err = io.CopyN(c, zeros{}, bytes)
			c.Close()
		}
		sent <- err
	}()
	var conn net.Conn
	p.a.Do(t, func() (err error) {
		conn, err = net.DialTimeout("tcp", listener.Addr().String(), testutil.Patience)
		return err
	})
	defer conn.Close()
	began := time.Now()
	_ = conn.SetDeadline(began.Add(testutil.Patience))
	n, err := io.Copy(io.Discard, conn)
	if err != nil || n != bytes {
		t.Fatalf("%d of %d bytes came: %v", n, bytes, err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	return time.Since(began)
}

// zeros is a source without an end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// counter reads one of the kernel's counters in a namespace.
func counter(t *testing.T, ns *testutil.Netns, file, name string) (n uint64) {
	t.Helper()
	ns.Do(t, func() error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		lines := strings.Split(string(text), "\n")
		for i, line := range lines {
			f := strings.Fields(line)
			switch {
			case len(f) == 2 && f[0] == name: // snmp6
				n, err = strconv.ParseUint(f[1], 10, 64)
				return err
			case i+1 < len(lines) && len(f) > 0:
				values := strings.Fields(lines[i+1])
				for j, word := range f {
					if word == name && j < len(values) && values[0] == f[0] && f[0] == "Tcp:" {
						n, err = strconv.ParseUint(values[j], 10, 64)
						return err
					}
				}
			}
		}
		return fmt.Errorf("there is no counter %s in %s", name, file)
	})
	return n
}

// open sends both ways until both ends take the fast path.
func (p *fastPair) open(t *testing.T) {
	t.Helper()
	p.fetch(t, 1<<10)
	for _, c := range []*Client{p.ca, p.cb} {
		await(t, c, "in touch by the fast path", func(s Status) bool { return s.FastPath.Peers == 1 })
	}
}

// wrongChecksums counts what the hosts refused.
func (p *fastPair) wrongChecksums(t *testing.T) (n uint64) {
	t.Helper()
	for _, ns := range []*testutil.Netns{p.a, p.b} {
		n += counter(t, ns, "/proc/thread-self/net/snmp", "InCsumErrors")
		n += counter(t, ns, "/proc/thread-self/net/snmp6", "Udp6InCsumErrors")
	}
	return n
}
