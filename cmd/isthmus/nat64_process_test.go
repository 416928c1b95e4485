// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// gate is a NAT64 gateway between an IPv6 host and an IPv4 host.
type gate struct {
	gateway, sixNS, fourNS *testutil.Netns
	six, four              *net.UDPConn
}

var (
	gateSix   = netip.MustParseAddrPort("[2001:db8:1::2]:7000")
	gateFour  = netip.MustParseAddrPort("192.0.2.7:7000")
	gateFour6 = netip.MustParseAddrPort("[2001:db8:64::c000:207]:7000")
)

func newGate(t *testing.T) *gate {
	t.Helper()
	four, six := testutil.NewNetns(t), testutil.NewNetns(t)
	g := &gate{gateway: testutil.NewNetns(t), sixNS: six, fourNS: four}
	joined(t, g.gateway, four, "v4", "192.0.2.3/24", "192.0.2.7/24")
	joined(t, g.gateway, six, "v6", "2001:db8:1::1/64", "2001:db8:1::2/64")
	g.gateway.Do(t, func() error {
		return errors.Join(os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0),
			os.WriteFile("/proc/sys/net/ipv4/conf/all/forwarding", []byte("1"), 0))
	})
	six.Do(t, func() error {
		return errors.Join(finishChecksums("v6"), netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("2001:db8:1::1")}))
	})
	four.Do(t, func() error { return finishChecksums("v4") })
	listen := func(ns *testutil.Netns, at netip.AddrPort) (conn *net.UDPConn) {
		ns.Do(t, func() (err error) {
			conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
			return err
		})
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	g.six, g.four = listen(six, gateSix), listen(four, gateFour)
	return g
}

// passes sends a packet to four and back, and returns what four saw.
func (g *gate) passes(t *testing.T, p *process) netip.AddrPort {
	t.Helper()
	exchange := func(from, to *net.UDPConn, at netip.AddrPort) netip.AddrPort {
		if _, err := from.WriteToUDPAddrPort([]byte("hello"), at); err != nil {
			t.Fatal(err)
		}
		if err := to.SetReadDeadline(time.Now().Add(testutil.Patience)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 100)
		_, seen, err := to.ReadFromUDPAddrPort(buf)
		if err != nil {
			t.Fatalf("%v\n%s", err, p.log())
		}
		return netip.AddrPortFrom(seen.Addr().Unmap(), seen.Port())
	}
	seen := exchange(g.six, g.four, gateFour6)
	if from := exchange(g.four, g.six, seen); from != gateFour6 {
		t.Errorf("six saw %s, want %s", from, gateFour6)
	}
	return seen
}

// ends ends the program by a signal.
func ends(t *testing.T, service manager, p *process, how syscall.Signal) {
	t.Helper()
	p.signal(t, how)
	if how != syscall.SIGKILL {
		service.expect(t, "STOPPING=1", p)
	}
	if err := <-p.done; err != nil && how != syscall.SIGKILL {
		t.Errorf("after %v: %v\n%s", how, err, p.log())
	}
}

// TestNAT64Survives kills the program, and stops it: sessions go on where they were.
func TestNAT64Survives(t *testing.T) {
	for _, mode := range []string{"off", "tc"} {
		t.Run(mode, func(t *testing.T) {
			g := newGate(t)
			dir := t.TempDir()
			socket := filepath.Join(dir, "control.sock")
			path := writeFile(t, fmt.Sprintf(`
[[nat64]]
name = "gate.%s"
clients = ["2001:db8:1::/48"]
pool6 = ["2001:db8:64::/96"]
pool4 = ["192.0.2.64"]
fast_path = %q
state_file = %q
[control]
socket = %q
`, mode, mode, filepath.Join(dir, "state"), socket))
			service, notify := newManager(t)
			p := startProcess(t, g.gateway, notify, "run", "-c", path)
			service.expect(t, "READY=1", p)
			seen := g.passes(t, p)
			for _, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGUSR2} {
				ends(t, service, p, how)
				if mode == "tc" && how != syscall.SIGTERM {
					g.passes(t, p) // nobody is there but the programs
				}
				p = startProcess(t, g.gateway, notify, "run", "-c", path)
				service.expect(t, "READY=1", p)
				if again := g.passes(t, p); again != seen {
					t.Errorf("after %v four saw %s, before %s", how, again, seen)
				}
				if _, out, _ := call("status", "--socket", socket, "--json"); !strings.Contains(out, `"adopted": 1`) {
					t.Errorf("after %v nothing was taken over: %s\n%s", how, out, p.log())
				}
			}
			g.commands(t, socket, seen)
			p.signal(t, syscall.SIGTERM)
			<-p.done
		})
	}
}

// TestNAT64LeavesOverRestarts changes both pools before each end of the program: a flow of the
// first ones goes on.
func TestNAT64LeavesOverRestarts(t *testing.T) {
	for _, mode := range []string{"off", "tc"} {
		t.Run(mode, func(t *testing.T) {
			g, dir := newGate(t), t.TempDir()
			path := filepath.Join(dir, "isthmus.toml")
			pools := func(n int) {
				text := fmt.Sprintf(`
[[nat64]]
name = "leaves.%s"
clients = ["2001:db8:1::/48"]
pool6 = ["2001:db8:%d::/96"]
pool4 = ["192.0.2.%d"]
fast_path = %q
state_file = %q
[control]
socket = %q
`, mode, n, n, mode, filepath.Join(dir, "state"), filepath.Join(dir, "control.sock"))
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			pools(64)
			service, notify := newManager(t)
			p := startProcess(t, g.gateway, notify, "run", "-c", path)
			service.expect(t, "READY=1", p)
			seen := g.passes(t, p)
			for i, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGUSR2, syscall.SIGKILL} {
				pools(65 + i)
				ends(t, service, p, how)
				p = startProcess(t, g.gateway, notify, "run", "-c", path)
				service.expect(t, "READY=1", p)
				for range 3 {
					if again := g.passes(t, p); again != seen {
						t.Errorf("after %v four saw %s, before %s", how, again, seen)
					}
				}
				if _, out, _ := call("status", "--socket", filepath.Join(dir, "control.sock")); !strings.Contains(out, "192.0.2.64, 2001:db8:64::/96") {
					t.Errorf("after %v the status does not say what is leaving: %s", how, out)
				}
			}
			p.signal(t, syscall.SIGTERM)
			<-p.done
		})
	}
}

// TestNAT64KilledAnswersNoMore kills the program and starts it with another pool: the host
// answers for that one alone.
func TestNAT64KilledAnswersNoMore(t *testing.T) {
	g := newGate(t)
	service, notify := newManager(t)
	for _, pool := range []string{"192.0.2.64", "192.0.2.65"} {
		path := writeFile(t, fmt.Sprintf(`
[[nat64]]
name = "answers"
clients = ["2001:db8:1::/48"]
pool6 = ["2001:db8:64::/96"]
pool4 = [%q]
keep_state = false
fast_path = "off"
[control]
socket = %q
`, pool, filepath.Join(t.TempDir(), "control.sock")))
		p := startProcess(t, g.gateway, notify, "run", "-c", path)
		service.expect(t, "READY=1", p)
		g.gateway.Do(t, func() error {
			list, err := netlink.NeighProxyList(0, netlink.FAMILY_ALL)
			if len(list) != 1 || list[0].IP.String() != pool {
				t.Errorf("with pool %s it answers for %v", pool, list)
			}
			return err
		})
		p.signal(t, syscall.SIGKILL)
		<-p.done
	}
}

// commands asks the running gateway by every command.
func (g *gate) commands(t *testing.T, socket string, seen netip.AddrPort) {
	t.Helper()
	for _, tt := range []struct {
		args   string
		status int
		want   string
	}{
		{"nat64 sessions", 0, "192.0.2.7:7000"},
		{"nat64 sessions --transport tcp --json", 0, `"sessions":[]`},
		{"nat64 sessions --inside 2001:db8:1::2 --limit 1", 0, seen.String()},
		{"nat64 sessions --inside nonsense", 1, "neither an address nor a prefix"},
		{"nat64 bindings --outside " + seen.String(), 0, "[2001:db8:1::2]:7000"},
		{"nat64 blocks", 0, "2001:db8:1::/64"},
		{"nat64 where " + seen.String(), 0, "2001:db8:1::/64"},
		{"nat64 where 2001:db8:1::2", 0, "192.0.2.64"},
		{"nat64 where 192.0.2.64:1", 1, "nobody has"},
		{"nat64 where somewhere", 2, "neither an address"},
		{"nat64 static add tcp [2001:db8:1::2]:80 192.0.2.64:80", 1, "not in pool4"},
		{"nat64 static add tcp [2001:db8:1::2]:80 192.0.2.64:8080", 0, "bound tcp"},
		{"nat64 static add tcp [2001:db8:2::2]:80 192.0.2.64:8081", 1, "in no network of clients"},
		{"nat64 bindings --transport tcp", 0, "static"},
		{"nat64 static remove tcp [2001:db8:1::2]:80 192.0.2.64:8080", 0, "ended tcp"},
		{"nat64 static add tcp nowhere 192.0.2.64:8080", 2, "not an IPv6 address with a port"},
		{"nat64 stats", 0, "sessions"},
		{"siit map list", 1, "no siit is running"},
		{"status", 0, "nat64 gate."},
	} {
		status, out, errs := call(append(strings.Fields(tt.args), "--socket", socket)...)
		if status != tt.status || !strings.Contains(out+errs, tt.want) {
			t.Errorf("isthmus %s: %d, want %d and %q\n%s%s", tt.args, status, tt.status, tt.want, out, errs)
		}
	}
}
