// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv6"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

// rig is a running relay between an IPv6 host and a hand-made Teredo client
// with its server:
//
//	host 2001:db8:1::2 -- 2001:db8:1::1 relay 192.0.2.3 -- 192.0.2.7 client
//	                                                       192.0.2.1 its server
//
// A host-specific relay is on the host itself.
type rig struct {
	relay          *Relay
	relayNS        *testutil.Netns
	hostNS         *testutil.Netns
	client, server *net.UDPConn
	foreign        *net.UDPConn     // the client as a symmetric NAT would show it
	host           *ipv6.PacketConn // UDP port 7000
	stop, leave    func() error
	change         []func(*Settings)
	stateFile      string
	log            *slog.Logger
}

var (
	relayAt       = netip.MustParseAddrPort("192.0.2.3:3545")
	relayServer   = netip.MustParseAddrPort("192.0.2.1:3544")
	relayClient   = netip.MustParseAddrPort("192.0.2.7:40000")
	relayForeign  = netip.MustParseAddrPort("192.0.2.7:50000")
	relayClientIP = teredo.Addr{Prefix: teredo.Prefix, Server: relayServer.Addr(), Mapped: relayClient}.IP()
	relayHost     = netip.MustParseAddrPort("[2001:db8:1::2]:7000")
)

const (
	bubbleInterval  = 2 * time.Second // RFC 4380, section 5.2.6
	relayClientPort = 9000            // of the client's IPv6 socket, which the test plays
)

func newRig(t *testing.T, mode Mode, change ...func(*Settings)) *rig {
	t.Helper()
	r := &rig{relayNS: testutil.NewNetns(t), change: change, log: slog.New(slog.DiscardHandler), stateFile: filepath.Join(t.TempDir(), "peers")}
	clientNS, hostNS := testutil.NewNetns(t), r.relayNS
	clientNS.Show(t) // old kernels tell nothing of a device whose far end is hidden
	teredotest.Link(t, r.relayNS, clientNS, "v4", []string{"192.0.2.3/24"}, "192.0.2.7/24")
	clientNS.Do(t, func() (err error) {
		if err := errors.Join(teredotest.SetUp("v4", "192.0.2.1/24"), testutil.ReceiveByNAPI("v4", true)); err != nil {
			return err
		}
		if r.client, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(relayClient)); err != nil {
			return err
		}
		if r.foreign, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(relayForeign)); err != nil {
			return err
		}
		r.server, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(relayServer))
		return err
	})
	t.Cleanup(func() { r.client.Close(); r.foreign.Close(); r.server.Close() })
	if mode == ModeRelay {
		hostNS = testutil.NewNetns(t)
		hostNS.Show(t)
		teredotest.Link(t, r.relayNS, hostNS, "v6", []string{"2001:db8:1::1/64"}, "2001:db8:1::2/64")
		r.relayNS.Do(t, func() error {
			return os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0)
		})
		hostNS.Do(t, func() error {
			if err := testutil.ReceiveByNAPI("v6", true); err != nil {
				return err
			}
			return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("2001:db8:1::1")})
		})
	} else {
		hostNS.Do(t, func() error {
			if err := teredotest.SetUp("lo", "2001:db8:1::2/128"); err != nil {
				return err
			}
			testutil.AwaitLocal(t, relayHost.Addr())
			return nil
		})
	}
	hostNS.Do(t, func() error {
		conn, err := net.ListenUDP("udp6", net.UDPAddrFromAddrPort(relayHost))
		if err != nil {
			return err
		}
		t.Cleanup(func() { conn.Close() })
		r.host = ipv6.NewPacketConn(conn)
		return r.host.SetControlMessage(ipv6.FlagHopLimit, true)
	})
	r.hostNS = hostNS
	r.start(t, mode)
	return r
}

func rigSettings(mode Mode) Settings {
	cfg := defaults()
	cfg.Mode, cfg.Interface, cfg.Workers = mode, "teredo", 2
	cfg.MaxPeers = 10000 // to clear a table for a million takes longer than most tests
	return cfg
}

// config is that of the rig's relay.
func (r *rig) config(mode Mode) Settings {
	cfg := rigSettings(mode)
	cfg.StateFile = r.stateFile
	for _, f := range r.change {
		f(&cfg)
	}
	return cfg
}

// start runs the relay in its namespace and waits until it serves.
func (r *rig) start(t *testing.T, mode Mode) {
	t.Helper()
	var err error
	if r.relay, err = New(r.config(mode), r.log); err != nil {
		t.Fatal(err)
	}
	r.relay.lastRestore = testutil.LastRestore
	running := roletest.Start(t, r.relayNS, r.relay)
	r.stop, r.leave = running.Stop, running.Leave
}

// hostSends sends from the host to the client with hop limit 64.
func (r *rig) hostSends(t *testing.T, text string) {
	t.Helper()
	to := &net.UDPAddr{IP: relayClientIP.AsSlice(), Port: relayClientPort}
	if _, err := r.host.WriteTo([]byte(text), &ipv6.ControlMessage{HopLimit: 64}, to); err != nil {
		t.Fatal(err)
	}
}

// hostReceives returns what the host receives next, and its hop limit.
func (r *rig) hostReceives(t *testing.T) string {
	t.Helper()
	if err := r.host.SetReadDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2048)
	n, cm, from, err := r.host.ReadFrom(buf)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s from %s hop %d", buf[:n], from, cm.HopLimit)
}

// clientReceives returns the payload of what the client receives next, and its
// hop limit.
func clientReceives(t *testing.T, client *net.UDPConn) string {
	t.Helper()
	p, from := teredotest.Receive(t, client)
	if from != relayAt {
		t.Errorf("the client got a packet from %s", from)
	}
	return fmt.Sprintf("%s hop %d", p.IPv6.Payload()[8:], p.IPv6.HopLimit())
}

// bubbleArrives returns the bubble that the server receives.
func (r *rig) bubbleArrives(t *testing.T) packet.IPv6 {
	t.Helper()
	p, from := teredotest.Receive(t, r.server)
	if !teredo.IsBubble(p.IPv6) || from != relayAt || p.IPv6.Dst() != relayClientIP || !p.IPv6.Src().IsLinkLocalUnicast() {
		t.Fatalf("the server got %x from %s", []byte(p.IPv6), from)
	}
	return p.IPv6
}

// clientUDP is an IPv6 packet of the client to the host with hop limit 64.
func clientUDP(text string) []byte {
	n := packet.UDPHeaderLen + len(text)
	b := packet.AppendIPv6Header(nil, packet.ProtoUDP, 64, n, relayClientIP, relayHost.Addr())
	b = append(b, relayClientPort>>8, relayClientPort&0xff, byte(relayHost.Port()>>8), byte(relayHost.Port()&0xff), 0, byte(n), 0, 0)
	b = append(b, text...)
	p := packet.IPv6(b)
	sum := packet.Checksum(p.SrcBytes(), p.DstBytes(), packet.ProtoUDP, p.Payload())
	b[46], b[47] = byte(sum>>8), byte(sum)
	return b
}

func send(t *testing.T, conn *net.UDPConn, b []byte, to netip.AddrPort) {
	t.Helper()
	if _, err := conn.WriteToUDPAddrPort(b, to); err != nil {
		t.Fatal(err)
	}
}

func wantText(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// fewBubbles checks that one bubble was sent, and another for each time that a
// machine which stood still let pass without an answer to it.
func (r *rig) fewBubbles(t *testing.T, waited time.Duration) {
	t.Helper()
	most := 1 + int(waited/bubbleInterval)
	if n := r.bubblesSent(); n < 1 || n > float64(most) {
		t.Errorf("%v bubbles were sent in %v, want 1 to %d", n, waited, most)
	}
}

func (r *rig) bubblesSent() (n float64) {
	r.relay.Collect(func(m role.Metric) {
		if m.Name == "bubbles_sent_total" {
			n = m.Value
		}
	})
	return n
}

// byEngine has the engine carry all packets.
func byEngine(c *Settings) { c.FastPath = fastpath.ModeOff }
