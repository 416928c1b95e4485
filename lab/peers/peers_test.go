// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fill makes dir look like a finished folder of peers with these programs.
func fill(t *testing.T, dir string, programs ...string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range append([]string{"../stamp"}, programs...) {
		if err := os.WriteFile(filepath.Join(dir, "bin", file), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFind(t *testing.T) {
	root := t.TempDir()
	peersDir := fill(t, filepath.Join(root, ".cache", "peers"))
	elsewhere := fill(t, filepath.Join(t.TempDir(), "peers"))
	deep := filepath.Join(root, "lab", "experiment")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, env, dir, want string
	}{
		{name: "in the working directory", dir: root, want: peersDir},
		{name: "above the working directory", dir: deep, want: peersDir},
		{name: "named by the environment", env: elsewhere, dir: root, want: elsewhere},
		{name: "environment names an unfinished folder", env: root, dir: root},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(Env, tt.env)
			t.Chdir(tt.dir)
			got, err := Find()
			if tt.want == "" {
				if !errors.Is(err, ErrMissing) {
					t.Fatalf("Find() = %v, %v, want ErrMissing", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Dir != tt.want {
				t.Errorf("Find() = %s, want %s", got.Dir, tt.want)
			}
		})
	}
}

func TestToolFallsBackToThePeers(t *testing.T) {
	dir := fill(t, t.TempDir(), "nft")
	t.Setenv(Env, dir)
	t.Setenv("PATH", t.TempDir())
	got, err := Tool("nft")
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(dir, "bin", "nft"); got != want {
		t.Errorf("Tool(nft) = %s, want %s", got, want)
	}
	if _, err := Tool("ip"); !errors.Is(err, ErrMissing) {
		t.Errorf("Tool(ip) without any ip: error %v, want ErrMissing", err)
	}
}

func TestMiredoConfigurations(t *testing.T) {
	p := &Peers{Dir: fill(t, t.TempDir(), "miredo", "miredo-server")}
	dir := t.TempDir()
	prefix := netip.MustParsePrefix("3fff:9::/32")
	tests := []struct {
		name    string
		command func() (*Command, error)
		program string
		config  []string
	}{
		{
			name: "server with both addresses",
			command: func() (*Command, error) {
				return p.MiredoServer(dir, MiredoServer{
					Name: "x", Address: netip.MustParseAddr("203.0.113.1"), Address2: netip.MustParseAddr("203.0.113.2"),
				})
			},
			program: "miredo-server",
			config:  []string{"ServerBindAddress 203.0.113.1", "ServerBindAddress2 203.0.113.2"},
		},
		{
			name: "server with a prefix of its own",
			command: func() (*Command, error) {
				return p.MiredoServer(dir, MiredoServer{Name: "x", Address: netip.MustParseAddr("203.0.113.1"), Prefix: prefix})
			},
			program: "miredo-server",
			config:  []string{"ServerBindAddress 203.0.113.1", "Prefix 3fff:9::"},
		},
		{
			name: "relay",
			command: func() (*Command, error) {
				return p.MiredoRelay(dir, MiredoRelay{Name: "x", Bind: netip.MustParseAddrPort("203.0.113.3:3545"), Prefix: prefix})
			},
			program: "miredo",
			config: []string{
				"RelayType relay", "InterfaceName teredo", "BindAddress 203.0.113.3", "BindPort 3545", "Prefix 3fff:9::",
			},
		},
		{
			name: "client on any port",
			command: func() (*Command, error) {
				return p.MiredoClient(dir, MiredoClient{Name: "x", Interface: "t0", Server: netip.MustParseAddr("203.0.113.1")})
			},
			program: "miredo",
			config:  []string{"RelayType client", "InterfaceName t0", "ServerAddress 203.0.113.1"},
		},
		{
			name: "client on a given port",
			command: func() (*Command, error) {
				return p.MiredoClient(dir, MiredoClient{Name: "x", Server: netip.MustParseAddr("203.0.113.1"), BindPort: 3551})
			},
			program: "miredo",
			config:  []string{"RelayType client", "InterfaceName teredo", "ServerAddress 203.0.113.1", "BindPort 3551"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.command()
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "x.conf")
			want := &Command{
				Path:       filepath.Join(p.Dir, "bin", tt.program),
				Args:       []string{"-f", "-c", file, "-p", filepath.Join(dir, "x.pid"), "-u", "nobody"},
				Config:     strings.Join(tt.config, "\n") + "\n",
				ConfigPath: file,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("command (-want +got):\n%s", diff)
			}
			written, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Config, string(written)); diff != "" {
				t.Errorf("file (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMiniupnpdConfiguration(t *testing.T) {
	p := &Peers{Dir: fill(t, t.TempDir(), "miniupnpd")}
	dir := t.TempDir()
	got, err := p.Miniupnpd(dir, Miniupnpd{Name: "x", Outside: "e4", Inside: "l1", External: netip.MustParseAddr("192.0.2.1")})
	if err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(filepath.Join(dir, "x.conf"))
	if err != nil || string(written) != got.Config {
		t.Errorf("file %q, %v", written, err)
	}
	want := []string{"-d", "-f", filepath.Join(dir, "x.conf"), "-P", filepath.Join(dir, "x.pid")}
	if diff := cmp.Diff(want, got.Args); diff != "" || got.Path != filepath.Join(p.Dir, "bin", "miniupnpd") {
		t.Errorf("%s, arguments (-want +got):\n%s", got.Path, diff)
	}
	for _, line := range []string{"ext_ifname=e4", "ext_ip=192.0.2.1", "listening_ip=l1", "secure_mode=yes"} {
		if !strings.Contains(got.Config, line+"\n") {
			t.Errorf("no line %s in\n%s", line, got.Config)
		}
	}
}

func TestOsmoGGSNConfiguration(t *testing.T) {
	p := &Peers{Dir: fill(t, t.TempDir(), "osmo-ggsn")}
	dir := t.TempDir()
	got, err := p.OsmoGGSN(dir, OsmoGGSN{Name: "x", Bind: netip.MustParseAddr("10.9.1.2"), APNs: []OsmoAPN{
		{Name: "internet", Device: "tun4", Pool: netip.MustParsePrefix("10.45.0.0/20"), DNS: netip.MustParseAddr("9.9.9.9")},
		{Name: "inet6", Device: "tun6", Pool: netip.MustParsePrefix("2001:db8:6:2000::/52"), DNS: netip.MustParseAddr("2001:db8::53")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`line vty
 no login
ggsn ggsn0
 gtp state-dir %s/x.state
 gtp bind-ip 10.9.1.2
 apn internet
  gtpu-mode tun
  tun-device tun4
  type-support v4
  ip prefix dynamic 10.45.0.0/20
  ip dns 0 9.9.9.9
  ip ifconfig 10.45.0.0/20
  no shutdown
 apn inet6
  gtpu-mode tun
  tun-device tun6
  type-support v6
  ipv6 prefix dynamic 2001:db8:6:2000::/52
  ipv6 dns 0 2001:db8::53
  ipv6 ifconfig 2001:db8:6:2000::/52
  no shutdown
 default-apn internet
 no shutdown ggsn
`, dir)
	if diff := cmp.Diff(want, got.Config); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(filepath.Join(dir, "x.state")); err != nil || !info.IsDir() {
		t.Errorf("no folder for the restart counter: %v", err)
	}
}

func TestMissingPeerIsNamed(t *testing.T) {
	p := &Peers{Dir: fill(t, t.TempDir())}
	_, err := p.Tshark("x.pcap", nil)
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "tshark") {
		t.Errorf("error %v does not name tshark and what to do", err)
	}
}
