// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config"
	translator "github.com/isthmus-net/isthmus/translate/run"
)

// good is a machine on which everything is there, in a folder of the test.
func good(t *testing.T) machine {
	t.Helper()
	dir := t.TempDir()
	m := machine{
		tun: filepath.Join(dir, "tun"), proc: filepath.Join(dir, "proc"),
		caps:   func() (uint64, error) { return 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_RAW, nil },
		driver: func(string) (string, bool) { return "", false },
		active: func(string) bool { return false },
		relay:  func(config.Relay) error { return nil },
		client: func(config.Client) error { return nil },
		siit:   func(config.SIIT) error { return nil },
		nat64:  func(config.NAT64) error { return nil },

		passageSIIT:  func(config.SIIT) translator.Passage { return translator.Passage{} },
		passageNAT64: func(config.NAT64) translator.Passage { return translator.Passage{} },
	}
	write(t, m.tun, "")
	m.set(t, "all/disable_ipv6", "0")
	m.set(t, "default/disable_ipv6", "0")
	m.set(t, "all/forwarding", "1")
	return m
}

func (m machine) set(t *testing.T, name, value string) {
	t.Helper()
	write(t, filepath.Join(m.proc, "net/ipv6/conf", name), value+"\n")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// all has one instance of each role, on loopback.
func all() *config.Config {
	loopback := netip.MustParseAddr("127.0.0.1")
	c := config.Default()
	c.Control.Socket = ""
	server, relay, client := config.DefaultServer(), config.DefaultRelay(), config.DefaultClient()
	server.Address, server.Port = loopback, 0
	relay.Bind = netip.AddrPortFrom(loopback, 0)
	c.Servers, c.Relays, c.Clients = []config.Server{server}, []config.Relay{relay}, []config.Client{client}
	return &c
}

func TestExamine(t *testing.T) {
	busy, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	taken := busy.LocalAddr().(*net.UDPAddr).AddrPort()
	busyTCP, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busyTCP.Close()
	takenTCP := busyTCP.Addr().(*net.TCPAddr).AddrPort()
	for _, tt := range []struct {
		name   string
		change func(*testing.T, *machine, *config.Config)
		want   []string
	}{
		{"nothing is wrong", func(*testing.T, *machine, *config.Config) {}, nil},
		{"no root", func(_ *testing.T, m *machine, _ *config.Config) {
			m.caps, m.tun = func() (uint64, error) { return 0, nil }, "/dev/net/none"
		}, []string{
			"this user may not create network devices and routes: run isthmus as root (sudo), or give it the capability CAP_NET_ADMIN",
			"this user may not send IPv6 packets of others, as a server must: run isthmus as root (sudo), or give it the capability CAP_NET_RAW",
		}},
		{"no root, but a client needs no raw socket", func(_ *testing.T, m *machine, c *config.Config) {
			m.caps = func() (uint64, error) { return 1 << unix.CAP_NET_ADMIN, nil }
			c.Servers = nil
		}, nil},
		{"capabilities unknown", func(_ *testing.T, m *machine, c *config.Config) {
			m.caps = func() (uint64, error) { return 0, errors.New("no such call") }
			c.Servers = nil
		}, []string{"cannot read the capabilities of this process: no such call"}},
		{"no TUN", func(t *testing.T, m *machine, _ *config.Config) {
			m.tun = "/dev/net/none"
		}, []string{"there is no /dev/net/none on this machine: load the kernel module (modprobe tun), or hand the device to the container"}},
		{"a server alone needs no TUN", func(t *testing.T, m *machine, c *config.Config) {
			m.tun, c.Relays, c.Clients = "/dev/net/none", nil, nil
		}, nil},
		{"IPv6 switched off", func(t *testing.T, m *machine, _ *config.Config) {
			m.set(t, "default/disable_ipv6", "1")
		}, []string{"IPv6 is switched off on this host: run sysctl -w net.ipv6.conf.default.disable_ipv6=0"}},
		{"kernel without IPv6", func(t *testing.T, m *machine, c *config.Config) {
			m.proc, c.Relays = "/nowhere", nil
		}, []string{"the kernel of this host has no IPv6: load the module (modprobe ipv6), or start it without ipv6.disable=1"}},
		{"no forwarding", func(t *testing.T, m *machine, _ *config.Config) {
			m.set(t, "all/forwarding", "0")
		}, []string{`warning: the relay "relay" cannot serve other hosts, because this one forwards no IPv6: run sysctl -w net.ipv6.conf.all.forwarding=1, or set mode = "host"`}},
		{"a host-specific relay forwards nothing", func(t *testing.T, m *machine, c *config.Config) {
			m.set(t, "all/forwarding", "0")
			c.Relays[0].Mode = config.ModeHost
		}, nil},
		{"interface of another kind", func(t *testing.T, m *machine, c *config.Config) {
			m.driver = func(name string) (string, bool) { return "veth", name == "teredo" }
		}, []string{`the interface teredo exists already and is no TUN device: choose another interface = "…"`}},
		{"TUN device made beforehand", func(t *testing.T, m *machine, c *config.Config) {
			m.driver = func(name string) (string, bool) { return "tun", name == "teredo" }
		}, nil},
		{"TUN device of another program", func(t *testing.T, m *machine, c *config.Config) {
			m.driver = func(name string) (string, bool) { return "tun", name == "teredo" }
			m.active = func(string) bool { return true }
		}, []string{`the TUN device teredo is in use by another program: stop it, or choose another interface = "…"`}},
		{"routes of others in the way", func(t *testing.T, m *machine, c *config.Config) {
			m.relay = func(config.Relay) error { return errors.Join(errors.New("one route"), errors.New("and another")) }
			m.client = func(config.Client) error { return errors.New("a default route") }
		}, []string{"one route", "and another", "a default route"}},
		{"control socket where a file is", func(t *testing.T, m *machine, c *config.Config) {
			c.Control.Socket = "/proc/version"
		}, []string{"/proc/version is not a socket, so it is left alone: move it away, or set another [control] socket"}},
		{"UDP port in use", func(_ *testing.T, _ *machine, c *config.Config) {
			c.Relays[0].Bind = taken
			c.Clients[0].Port = taken.Port()
		}, []string{
			fmt.Sprintf("UDP port %d on 127.0.0.1 is in use by another program: stop it (ss -lnp -u shows it), or choose another port", taken.Port()),
			fmt.Sprintf("UDP port %d on 0.0.0.0 is in use by another program: stop it (ss -lnp -u shows it), or choose another port", taken.Port()),
		}},
		{"metrics port in use", func(_ *testing.T, _ *machine, c *config.Config) {
			c.Metrics.Listen = takenTCP
		}, []string{
			fmt.Sprintf("TCP port %d on 127.0.0.1 is in use by another program: stop it (ss -lnp -t shows it), or choose another port", takenTCP.Port()),
		}},
		{"address of another host", func(_ *testing.T, _ *machine, c *config.Config) {
			c.Servers[0].Secondary = netip.MustParseAddr("192.0.2.1")
		}, []string{"192.0.2.1 is not an address of this host: write one that ip address shows, or add it to an interface"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, c := good(t), all()
			tt.change(t, &m, c)
			var got []string
			for _, finding := range m.examine(nil, c) {
				text := finding.Text
				if finding.Warning {
					text = "warning: " + text
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestThisMachine asks the kernel about what every machine has.
func TestThisMachine(t *testing.T) {
	if _, exists := driver("lo"); !exists {
		t.Error("there is no loopback interface")
	}
	if name, exists := driver("no-such-device"); exists {
		t.Errorf("no-such-device is driven by %q", name)
	}
	caps, err := capabilities()
	if err != nil {
		t.Fatal(err)
	}
	if status, err := os.ReadFile("/proc/self/status"); err == nil && !bytes.Contains(status, fmt.Appendf(nil, "CapEff:\t%016x\n", caps)) {
		t.Errorf("capabilities %x are not those of /proc/self/status", caps)
	}
}
