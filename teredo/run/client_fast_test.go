// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

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
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// onTC insists on the fast path: the far ends of the veths are known here.
func onTC(c *config.Client) { c.FastPath = config.FastPathTC }

func inAll(c *config.Client) { c.Unsolicited = config.UnsolicitedAllow }

// fastPair is a rig with a client at each end.
type fastPair struct {
	*clientRig
	ca, cb *Client
	aa, ab netip.Addr // Teredo addresses
}

func newFastPair(t *testing.T, change ...func(*config.Client)) *fastPair {
	t.Helper()
	return startFastPair(t, newClientRig(t), change, change)
}

func startFastPair(t *testing.T, r *clientRig, changeA, changeB []func(*config.Client)) *fastPair {
	t.Helper()
	p := &fastPair{clientRig: r}
	p.ca, _ = newClient(t, changeA...)
	p.cb, _ = newClient(t, append([]func(*config.Client){inAll}, changeB...)...)
	startIn(t, p.a, p.ca)
	startIn(t, p.b, p.cb)
	p.aa, p.ab = await(t, p.ca, "qualified", qualified).Address, await(t, p.cb, "qualified", qualified).Address
	awaitDevice(t, p.a, deviceWith(p.aa)...)
	awaitDevice(t, p.b, deviceWith(p.ab)...)
	for _, c := range []*Client{p.ca, p.cb} {
		await(t, c, "at its fast path", func(s ClientStatus) bool { return s.FastPath.Why != "starting" })
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
		conn, err = net.DialTimeout("tcp", listener.Addr().String(), clientTimeout)
		return err
	})
	defer conn.Close()
	began := time.Now()
	_ = conn.SetDeadline(began.Add(clientTimeout))
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
		await(t, c, "in touch by the fast path", func(s ClientStatus) bool { return s.FastPath.Peers == 1 })
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

// Where both ends are in their kernels TCP keeps its segmentation offload, no
// checksum is wrong, and the engines see only what opens the way.
func TestFastPathTCP(t *testing.T) {
	p := newFastPair(t, onTC)
	p.open(t)
	const bytes = 64 << 20
	wrong := p.wrongChecksums(t)
	a, b := p.ca.Status().(ClientStatus).FastPath, p.cb.Status().(ClientStatus).FastPath
	_, engine := p.cb.snapshot()
	took := p.transfer(t, netip.AddrPortFrom(p.ab, 0), bytes)
	sent, received := p.cb.Status().(ClientStatus).FastPath.Sent-b.Sent, p.ca.Status().(ClientStatus).FastPath.Received-a.Received
	// At least 8 KB in each packet means that TCP was not cut to 1220 bytes.
	if most := uint64(bytes / 8000); sent == 0 || sent > most || received == 0 || received > most {
		t.Errorf("%d packets sent and %d received for %d bytes: TCP was cut early, or took another way", sent, received, bytes)
	}
	if _, now := p.cb.snapshot(); now.FromStack-engine.FromStack > 10 {
		t.Errorf("the engine of the sender had %d packets", now.FromStack-engine.FromStack)
	}
	if n := p.wrongChecksums(t); n != wrong {
		t.Errorf("%d wrong checksums", n-wrong)
	}
	t.Logf("%.1f Gbit/s", float64(bytes)*8/took.Seconds()/1e9)
}

// By itself a client keeps to its engine on a veth that leaves checksums to its far
// end, and says why.
func TestFastPathRefusesVeth(t *testing.T) {
	p := newFastPair(t)
	p.fetch(t, 1<<20)
	s := await(t, p.ca, "refused", func(s ClientStatus) bool { return s.FastPath.Why != "" })
	if s.FastPath.Peers != 0 || s.FastPath.Sent != 0 || !strings.Contains(s.FastPath.Why, "ethtool -K a tx off") {
		t.Errorf("fast path %+v", s.FastPath)
	}
}

// A client in its kernel and one in a program understand each other where packets
// leave finished.
func TestFastPathToEngine(t *testing.T) {
	for _, tt := range []struct {
		name string
		far  func(*config.Client)
	}{
		{"both in the kernel", func(*config.Client) {}},
		{"the sender in a program", func(c *config.Client) { c.FastPath = config.FastPathOff }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newClientRig(t)
			finish(t, r.a, "a")
			finish(t, r.b, "b")
			p := startFastPair(t, r, nil, []func(*config.Client){tt.far})
			p.fetch(t, 8<<20)
			await(t, p.ca, "in touch by the fast path", func(s ClientStatus) bool { return s.FastPath.Peers == 1 })
			p.fetch(t, 8<<20)
			if s := p.ca.Status().(ClientStatus).FastPath; s.Received < 1000 || s.Why != "" {
				t.Errorf("fast path %+v", s)
			}
			if n := p.wrongChecksums(t); n != 0 {
				t.Errorf("%d wrong checksums", n)
			}
		})
	}
}

// finish has a veth send packets with their checksums, as ethtool -K tx off does.
func finish(t *testing.T, ns *testutil.Netns, name string) {
	t.Helper()
	ns.Do(t, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		value := [2]uint32{unix.ETHTOOL_STXCSUM, 0}
		request := struct {
			name  [unix.IFNAMSIZ]byte
			value *[2]uint32
			_     [16]byte
		}{value: &value}
		copy(request.name[:], name)
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
			return errno
		}
		return nil
	})
}
