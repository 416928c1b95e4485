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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/role"
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
	}
	write(t, m.tun, "")
	m.set(t, "all/disable_ipv6", "0")
	m.set(t, "default/disable_ipv6", "0")
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

// needy are the settings of a role that needs something of the machine.
type needy struct {
	Name, Device string
	At           netip.AddrPort
	Raw          bool
}

var needyRoles = role.List{role.Of[needy]{
	Section: config.SectionOf[needy]{Name: "needy", Help: "A toy.",
		Keys: func(s *needy) []key.Key {
			address := key.Text("127.0.0.1:0", func(text string) (netip.AddrPort, *key.Fault) {
				at, err := netip.ParseAddrPort(text)
				if err != nil {
					return at, key.Wrong("write one", "%v", err)
				}
				return at, nil
			})
			return []key.Key{
				key.Of("name", &s.Name, "needy", key.InstanceName, key.Identity, "Its name."),
				key.Of("device", &s.Device, "", key.Optional(key.Interface), key.Restart, "Its device."),
				key.Of("at", &s.At, "", key.Optional(address), key.Restart, "Its socket."),
				key.Of("raw", &s.Raw, false, key.Bool, key.Restart, "Whether it needs a right."),
			}
		},
		Claims: func(s *needy) (claims []config.Claim) {
			if s.Device != "" {
				claims = append(claims, config.Device{Key: "device", Name: s.Device})
			}
			if s.Raw {
				claims = append(claims, config.Right{Capability: unix.CAP_NET_RAW, Name: "CAP_NET_RAW", Purpose: "send packets of others"})
			}
			return append(claims, config.Socket{Key: "at", Protocol: "UDP", At: s.At})
		},
	},
	Examine: func(s *needy) []Finding {
		if s.Name == "blocked" {
			return role.Problems(errors.Join(errors.New("one route"), errors.New("and another")))
		}
		return nil
	},
}.Role()}

// all has instances that need everything.
const all = "[[needy]]\nname = \"a\"\nraw = true\n[[needy]]\nname = \"b\"\nraw = true\n[[needy]]\ndevice = \"tun0\"\n"

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
	const noTUN = "[[needy]]\nraw = true\n"
	for _, tt := range []struct {
		name, text string
		bend       func(*machine)
		want       []string
	}{
		{"nothing is wrong", all, func(*machine) {}, nil},
		{"no root", all, func(m *machine) { m.caps, m.tun = func() (uint64, error) { return 0, nil }, "/dev/net/none" }, []string{
			"this user may not create network devices and routes: run isthmus as root (sudo), or give it the capability CAP_NET_ADMIN",
			"this user may not send packets of others: run isthmus as root (sudo), or give it the capability CAP_NET_RAW",
		}},
		{"no root, and no need of a raw socket", "[[needy]]\ndevice = \"tun0\"", func(m *machine) {
			m.caps = func() (uint64, error) { return 1 << unix.CAP_NET_ADMIN, nil }
		}, nil},
		{"capabilities unknown", noTUN, func(m *machine) {
			m.caps = func() (uint64, error) { return 0, errors.New("no such call") }
		}, []string{"cannot read the capabilities of this process: no such call"}},
		{"no TUN", all, func(m *machine) { m.tun = "/dev/net/none" },
			[]string{"there is no /dev/net/none on this machine: load the kernel module (modprobe tun), or hand the device to the container"}},
		{"no TUN, and no need of it", noTUN, func(m *machine) { m.tun = "/dev/net/none" }, nil},
		{"IPv6 switched off", all, func(m *machine) { m.set(t, "default/disable_ipv6", "1") },
			[]string{"IPv6 is switched off on this host: run sysctl -w net.ipv6.conf.default.disable_ipv6=0"}},
		{"kernel without IPv6", all, func(m *machine) { m.proc = "/nowhere" },
			[]string{"the kernel of this host has no IPv6: load the module (modprobe ipv6), or start it without ipv6.disable=1"}},
		{"interface of another kind", all, func(m *machine) {
			m.driver = func(name string) (string, bool) { return "veth", name == "tun0" }
		}, []string{`the interface tun0 exists already and is no TUN device: choose another interface = "…"`}},
		{"TUN device made beforehand", all, func(m *machine) {
			m.driver = func(name string) (string, bool) { return "tun", name == "tun0" }
		}, nil},
		{"TUN device of another program", all, func(m *machine) {
			m.driver = func(name string) (string, bool) { return "tun", name == "tun0" }
			m.active = func(string) bool { return true }
		}, []string{`the TUN device tun0 is in use by another program: stop it, or choose another interface = "…"`}},
		{"what a role finds", "[[needy]]\nname = \"blocked\"", func(*machine) {}, []string{"one route", "and another"}},
		{"control socket where a file is", all + "[control]\nsocket = \"/proc/version\"", func(*machine) {},
			[]string{"/proc/version is not a socket, so it is left alone: move it away, or set another [control] socket"}},
		{"UDP port in use", fmt.Sprintf("[[needy]]\nat = %q", taken), func(*machine) {}, []string{
			fmt.Sprintf("UDP port %d on 127.0.0.1 is in use by another program: stop it (ss -lnp -u shows it), or choose another port", taken.Port()),
		}},
		{"metrics port in use", all + fmt.Sprintf("[metrics]\nlisten = %q", takenTCP), func(*machine) {}, []string{
			fmt.Sprintf("TCP port %d on 127.0.0.1 is in use by another program: stop it (ss -lnp -t shows it), or choose another port", takenTCP.Port()),
		}},
		{"address of another host", "[[needy]]\nat = \"192.0.2.1:7\"", func(*machine) {},
			[]string{"192.0.2.1 is not an address of this host: write one that ip address shows, or add it to an interface"}},
		{"several ports of it", "[[needy]]\nat = \"192.0.2.1:7\"\n[[needy]]\nname = \"two\"\nat = \"192.0.2.1:8\"", func(*machine) {},
			[]string{"192.0.2.1 is not an address of this host: write one that ip address shows, or add it to an interface"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, text := good(t), tt.text
			tt.bend(&m)
			if !strings.Contains(text, "[control]") {
				text += "\n[control]\nsocket = \"\"\n"
			}
			c, err := needyRoles.Parse(strings.NewReader(text), "isthmus.toml")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, finding := range m.examine(needyRoles, c) {
				got = append(got, finding.Text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestThisMachine asks the kernel about what every machine has.
func TestThisMachine(t *testing.T) {
	if _, exists := deviceDriver("lo"); !exists {
		t.Error("there is no loopback interface")
	}
	if name, exists := deviceDriver("no-such-device"); exists {
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
