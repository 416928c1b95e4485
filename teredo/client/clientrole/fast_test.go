// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/trace"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

// Where both ends are in their kernels TCP keeps its segmentation offload, no
// checksum is wrong, and the engines see only what opens the way.
func TestFastPathTCP(t *testing.T) {
	configtest.InEffect(t, "teredo_client", "fast_path")
	needWhole(t)
	p := newFastPair(t, onTC)
	p.open(t)
	const bytes = 64 << 20
	wrong := p.wrongChecksums(t)
	a, b := p.ca.Status().(Status).FastPath, p.cb.Status().(Status).FastPath
	_, engine := p.cb.snapshot()
	took := p.transfer(t, netip.AddrPortFrom(p.ab, 0), bytes)
	sent, received := p.cb.Status().(Status).FastPath.sent()-b.sent(), p.ca.Status().(Status).FastPath.received()-a.received()
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
	s := await(t, p.ca, "refused", func(s Status) bool { return s.FastPath.Why != "" && s.FastPath.Why != "starting" })
	if s.FastPath.Peers != 0 || s.FastPath.sent() != 0 || !strings.Contains(s.FastPath.Why, "ethtool -K a tx off") {
		t.Errorf("fast path %+v", s.FastPath)
	}
}

// A client loads its programs behind the first packets of those who waited for its address.
func TestFastPathPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := newFastPath(defaults(), slog.New(slog.DiscardHandler))
		began, ended := time.Now(), make(chan bool)
		go func() { ended <- f.pause(ctx) }()
		time.Sleep(time.Minute) // without an address
		f.address()
		if loads, waited := <-ended, time.Since(began); !loads || waited != time.Minute+fastPause {
			t.Errorf("loads %t, after %v", loads, waited)
		}
		go func() { ended <- f.pause(ctx) }()
		cancel()
		if <-ended {
			t.Error("it loads at its end")
		}
	})
}

// A client in its kernel and one in a program understand each other where packets
// leave finished.
func TestFastPathToEngine(t *testing.T) {
	for _, tt := range []struct {
		name string
		far  func(*Settings)
	}{
		{"both in the kernel", func(*Settings) {}},
		{"the sender in a program", func(c *Settings) { c.FastPath = fastpath.ModeOff }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			finish(t, r.a, "a")
			finish(t, r.b, "b")
			p := startFastPair(t, r, nil, []func(*Settings){tt.far})
			p.fetch(t, 8<<20)
			await(t, p.ca, "in touch by the fast path", func(s Status) bool { return s.FastPath.Peers == 1 })
			p.fetch(t, 8<<20)
			if s := p.ca.Status().(Status).FastPath; s.received() < 1000 || s.Why != "" {
				t.Errorf("fast path %+v", s)
			}
			if n := p.wrongChecksums(t); n != 0 {
				t.Errorf("%d wrong checksums", n)
			}
		})
	}
}

// finish has a veth send packets with their checksums.
func finish(t *testing.T, ns *testutil.Netns, name string) {
	t.Helper()
	ns.Do(t, func() error { return teredotest.FinishChecksums(name) })
}

// answer echoes what comes to a UDP port of end b.
func (r *rig) answer(t *testing.T, at netip.Addr) netip.AddrPort {
	t.Helper()
	var conn *net.UDPConn
	r.b.Do(t, func() (err error) {
		conn, err = net.ListenUDP("udp6", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 0)))
		return err
	})
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 100)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

// ping sends from end a by the address that is preferred now until an answer comes.
func (r *rig) ping(t *testing.T, to netip.AddrPort) {
	t.Helper()
	for deadline := time.Now().Add(testutil.Patience); time.Now().Before(deadline); {
		var conn net.Conn
		r.a.Do(t, func() (err error) {
			conn, err = net.Dial("udp6", to.String())
			return err
		})
		_, _ = conn.Write([]byte("ping"))
		_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		_, err := conn.Read(make([]byte, 100))
		conn.Close()
		if err == nil {
			return
		}
	}
	t.Fatalf("no answer from %s within %v", to, testutil.Patience)
}

// pingFast pings until it goes by the fast path.
func (r *rig) pingFast(t *testing.T, to netip.AddrPort, status func() FastPath) {
	t.Helper()
	for deadline := time.Now().Add(testutil.Patience); ; {
		before := status()
		r.ping(t, to)
		if now := status(); now.sent() > before.sent() && now.received() > before.received() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the fast path is not taken: %+v", status())
		}
	}
}

// When the host's IPv4 address changes the fast path lets go of the old one and
// takes the new one.
func TestFastPathFollowsAddressChange(t *testing.T) {
	r := newRig(t)
	finish(t, r.a, "a")
	finish(t, r.b, "b")
	p := startFastPair(t, r, nil, nil)
	to := r.answer(t, p.ab)
	status := func() FastPath { return p.ca.Status().(Status).FastPath }
	r.pingFast(t, to, status)
	r.a.Do(t, func() error {
		link, err := netlink.LinkByName("a")
		if err != nil {
			return err
		}
		gone, err := netlink.ParseAddr("198.51.100.2/24")
		if err != nil {
			return err
		}
		return errors.Join(netlink.AddrDel(link, gone), teredotest.SetUp("a", "198.51.100.9/24"), defaultRoute("198.51.100.1"))
	})
	s := await(t, p.ca, "at the new address", func(s Status) bool {
		return qualified(s) && s.Mapped.Addr() == netip.MustParseAddr("198.51.100.9")
	})
	awaitDevice(t, r.a, deviceWith(s.Address)...)
	r.pingFast(t, to, status)
	if n := p.wrongChecksums(t); n != 0 {
		t.Errorf("%d wrong checksums", n)
	}
}

// A client on two interfaces takes the fast path on each, and moves with its
// address; what the fast path sends counts as sent.
func TestFastPathHandover(t *testing.T) {
	r := newRig(t)
	r.secondLink(t)
	// The network of the second link is a part of that of end b.
	r.b.Do(t, func() error {
		_, half, _ := net.ParseCIDR("192.0.2.128/25")
		return netlink.RouteAdd(&netlink.Route{Dst: half, Gw: net.ParseIP("192.0.2.1")})
	})
	h, _ := newHandover(t, onTC)
	b, _ := newClient(t, onTC, inAll)
	roletest.Start(t, r.a, h)
	roletest.Start(t, r.b, b)
	ab := await(t, b, "qualified", qualified).Address
	awaitDevice(t, r.b, deviceWith(ab)...)
	awaitPaths(t, h, "a in_use", "w standing_by")
	to := r.answer(t, ab)
	status := func() FastPath { return h.Status().(Status).FastPath }
	r.pingFast(t, to, status)

	_, engine := h.clientOf(t, "a").snapshot()
	began := time.Now()
	for noted := false; !noted; {
		r.ping(t, to)
		h.peers.mu.Lock()
		noted = h.peers.list[0].addr == ab.As16() && h.peers.list[0].at.After(began)
		h.peers.mu.Unlock()
		if time.Since(began) > testutil.Patience {
			t.Fatal("what the fast path sends is not known as sent")
		}
	}
	if _, now := h.clientOf(t, "a").snapshot(); now.FromStack != engine.FromStack {
		t.Errorf("%d packets went by the engine", now.FromStack-engine.FromStack)
	}

	r.link(t, r.router, "a", netlink.LinkSetDown)
	awaitPaths(t, h, "a no_carrier", "w in_use")
	r.pingFast(t, to, status)
	r.link(t, r.router, "a", netlink.LinkSetUp)
	awaitPaths(t, h, "a in_use", "w standing_by")
	r.pingFast(t, to, status)
}

// clientOf is the client of one interface.
func (h *Handover) clientOf(t *testing.T, name string) *Client {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.paths {
		if p.iface == name && p.client != nil {
			return p.client
		}
	}
	t.Fatalf("there is no client on %s", name)
	return nil
}

// sent and received are packets that took the fast path.
func (s FastPath) sent() uint64     { return s.Packets["forward"]["host_encap_forwarded"] }
func (s FastPath) received() uint64 { return s.Packets["forward"]["host_decap_forwarded"] }

// A trace of a client shows both paths, each packet as it came.
func TestClientTraceShowsFastPath(t *testing.T) {
	p := newFastPair(t, onTC)
	p.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	hooks := map[string]int{}
	ended := make(chan error, 1)
	go func() {
		ended <- p.ca.Trace(ctx, trace.Sampling{Every: 1}, func(s *trace.Sample) {
			mu.Lock()
			defer mu.Unlock()
			// An Ethernet header ends in its type; its first byte is anything.
			whole := s.Data[0]>>4 == 6
			if s.Link != trace.IP {
				whole = bytes.Equal(s.Data[12:14], []byte{0x08, 0x00})
			}
			if s.Path == trace.Fast && !whole {
				t.Errorf("a sample of link %s begins with %x", s.Link, s.Data[:14])
			}
			hooks[fmt.Sprintf("%s %s %s %s", s.Path, s.Device, s.Verdict, s.Reason)]++
		})
	}()
	both := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return hooks["fast teredo forward host_encap_forwarded"] > 0 && hooks["fast a forward host_decap_forwarded"] > 0
	}
	for deadline := time.Now().Add(testutil.Patience); !both(); {
		if time.Now().After(deadline) {
			t.Fatalf("samples %v", hooks)
		}
		p.fetch(t, 1<<10)
	}
	if err := p.ca.Trace(ctx, trace.Sampling{Every: 1}, func(*trace.Sample) {}); !errors.Is(err, trace.ErrBusy) {
		t.Errorf("a second trace: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// By itself a client leaves everything to its engine where a firewall looks at its
// datagrams, and comes back when the firewall goes.
func TestFastPathOfClientNeverSkipsAFirewall(t *testing.T) {
	r := newRig(t)
	finish(t, r.a, "a")
	finish(t, r.b, "b")
	p := startFastPair(t, r, nil, nil)
	to := r.answer(t, p.ab)
	status := func() FastPath { return p.ca.Status().(Status).FastPath }
	r.pingFast(t, to, status)
	nft := func(ruleset string) {
		t.Helper()
		r.a.Do(t, func() error {
			cmd := exec.Command("nft", "-f", "-")
			cmd.Stdin = strings.NewReader(ruleset)
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("nft: %w: %s", err, out)
			}
			return nil
		})
	}
	nft(`table inet guard { chain input { type filter hook input priority 0; udp sport 9 drop; }; }`)
	s := await(t, p.ca, "off the fast path", func(s Status) bool { return s.FastPath.Path == driver.EnginePath })
	if len(s.FastPath.Bypassed) == 0 || !strings.Contains(s.FastPath.Why, s.FastPath.Bypassed[0].What) {
		t.Errorf("fast path %+v", s.FastPath)
	}
	r.ping(t, to)
	nft("delete table inet guard")
	await(t, p.ca, "back on the fast path", func(s Status) bool { return s.FastPath.Path == "tc" })
	r.pingFast(t, to, status)
	// The engine hears what passes there: a peer that seems silent would be withdrawn.
	heard := func() (last time.Time) {
		peers, _ := p.ca.Peers(10)
		for _, one := range peers {
			if one.Address == p.ab {
				last = one.LastReceived
			}
		}
		return last
	}
	before, end := heard(), time.Now().Add(20*time.Second) // it is withdrawn after 30
	for ; !heard().After(before); r.ping(t, to) {
		if time.Now().After(end) {
			t.Fatal("the engine has heard nothing of what the fast path carries")
		}
	}
}
