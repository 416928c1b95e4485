// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// same compares checked values; addresses by their own equality.
var same = cmp.Options{
	cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{}),
	cmpopts.EquateEmpty(),
}

func parse(t *testing.T, text string) *Config {
	t.Helper()
	config, err := Parse(strings.NewReader(text), "isthmus.toml")
	if err != nil {
		t.Fatalf("Parse:\n%v", err)
	}
	return config
}

func TestParse(t *testing.T) {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	server := func(change func(*Server)) Config {
		c, s := Default(), DefaultServer()
		s.Address, s.Advertise = addr("192.0.2.1"), addr("192.0.2.1")
		change(&s)
		c.Servers = []Server{s}
		return c
	}
	client := func(change func(*Client)) Config {
		c, r := Default(), DefaultClient()
		r.Servers = []Host{{Addr: addr("192.0.2.1")}}
		change(&r)
		c.Clients = []Client{r}
		return c
	}
	for _, tt := range []struct {
		name, text string
		want       Config
	}{
		{"empty file", "", Default()},
		{"smallest server", "[[server]]\naddress = \"192.0.2.1\"\n", server(func(*Server) {})},
		{"server behind 1:1 NAT", `
			[[server]]
			address = "10.0.0.1"
			advertise = "192.0.2.1"
			secondary = "10.0.0.2"
			advertise_secondary = "192.0.2.2"`,
			server(func(s *Server) {
				s.Address, s.Secondary, s.AdvertiseSecondary = addr("10.0.0.1"), addr("10.0.0.2"), addr("192.0.2.2")
			})},
		{"server in a closed network", `
			[[server]]
			name = "inner"
			address = "10.0.0.1"
			allow_private = ["10.0.0.0/8", "192.168.0.0/16"]
			prefixes = ["2001::/32", "3fff:9::/32"]
			rate_total = 0`,
			server(func(s *Server) {
				s.Name, s.Address, s.Advertise, s.RateTotal = "inner", addr("10.0.0.1"), addr("10.0.0.1"), 0
				s.AllowPrivate = []netip.Prefix{prefix("10.0.0.0/8"), prefix("192.168.0.0/16")}
				s.Prefixes = []netip.Prefix{prefix("2001::/32"), prefix("3fff:9::/32")}
			})},
		{"inline array of tables", `server = [{ address = "192.0.2.1", port = 3545 }]`,
			server(func(s *Server) { s.Port = 3545 })},
		{"client with one server as text", "[[client]]\nserver = \"192.0.2.1\"", client(func(*Client) {})},
		{"client with everything", `
			[[client]]
			name = "wlan"
			server = ["teredo.example.net", "192.0.2.1"]
			secondary = "192.0.2.7"
			port = 3551
			bind = "192.168.1.2"
			refresh_interval = "20s"
			unsolicited = "allow"
			native = "ignore"
			random_ports = 0
			hairpin = false
			hairpin_allow = ["10.0.0.0/8"]
			load_reduction = false
			opening_ttl = 3`,
			client(func(r *Client) {
				r.RandomPorts, r.Hairpin, r.LoadReduction, r.OpeningTTL = 0, false, false, 3
				r.HairpinAllow = []netip.Prefix{prefix("10.0.0.0/8")}
				r.Name, r.Port, r.Bind = "wlan", 3551, addr("192.168.1.2")
				r.Servers = []Host{{Name: "teredo.example.net"}, {Addr: addr("192.0.2.1")}}
				r.Secondary = Secondary{SecondaryAddress, addr("192.0.2.7")}
				r.RefreshInterval, r.Unsolicited, r.Native = 20*time.Second, UnsolicitedAllow, NativeIgnore
			})},
		{"client that tells of changes", `
			[[client]]
			server = "192.0.2.1"
			interfaces = ["wlan0", "wwan0"]
			probe_after = "0s"
			on_change = ["/usr/local/bin/moved", "a b", ""]
			on_change_timeout = "2s"`,
			client(func(r *Client) {
				r.Interfaces, r.ProbeAfter = []string{"wlan0", "wwan0"}, 0
				r.OnChange, r.OnChangeTimeout = []string{"/usr/local/bin/moved", "a b", ""}, 2*time.Second
			})},
		{"fast path of a relay and of a client", `
			[[relay]]
			fast_path = "tc"
			fast_path_devices = ["eth0", "eth1"]
			fast_path_linger = "2m"
			[[client]]
			server = "192.0.2.1"
			fast_path = "off"`,
			func() Config {
				c, r := client(func(r *Client) { r.FastPath = FastPathOff }), DefaultRelay()
				r.FastPath, r.FastPathDevices, r.FastPathLinger = FastPathTC, []string{"eth0", "eth1"}, 2*time.Minute
				c.Relays = []Relay{r}
				return c
			}()},
		{"fast path of a stateless translator", `
			[[siit]]
			pool6 = ["2001:db8:64::/96"]
			fast_path = "xdp"
			fast_path_devices = ["eth0"]`,
			func() Config {
				c, s := Default(), DefaultSIIT()
				s.Pool6 = []netip.Prefix{netip.MustParsePrefix("2001:db8:64::/96")}
				s.FastPath, s.FastPathDevices = FastPathXDP, []string{"eth0"}
				c.SIITs = []SIIT{s}
				return c
			}()},
		{"process sections", `
			control = { socket = "" }
			[metrics]
			listen = "[::1]:9464"
			[log]
			level = "debug"
			format = "json"`,
			Config{
				Announce: DefaultAnnounce(),
				Control:  Control{Mode: 0o660},
				Metrics:  Metrics{Listen: netip.MustParseAddrPort("[::1]:9464")},
				Log:      Log{Level: slog.LevelDebug, Format: FormatJSON},
			}},
		{"control in octal", "[control]\nmode = 0o600\ngroup = \"isthmus\"", func() Config {
			c := Default()
			c.Control.Mode, c.Control.Group = fs.FileMode(0o600), "isthmus"
			return c
		}()},
		{"relay and server share an address", "[[server]]\naddress = \"192.0.2.1\"\n[[relay]]\nbind = \"192.0.2.1:3545\"",
			func() Config {
				c, r := server(func(*Server) {}), DefaultRelay()
				r.Bind = netip.MustParseAddrPort("192.0.2.1:3545")
				c.Relays = []Relay{r}
				return c
			}()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(&tt.want, parse(t, tt.text), same); diff != "" {
				t.Errorf("configuration differs (-want +got):\n%s", diff)
			}
		})
	}
}

// Some editors put a byte-order mark in front; places are counted without it.
func TestParseByteOrderMark(t *testing.T) {
	if c := parse(t, "\ufeff[log]\nlevel = \"warn\"\n"); c.Log.Level != slog.LevelWarn {
		t.Errorf("level %v", c.Log.Level)
	}
	_, err := Parse(strings.NewReader("\ufeff[logs]\n"), "isthmus.toml")
	var one *Error
	if !errors.As(err, &one) || one.Line != 1 || one.Column != 2 {
		t.Errorf("error %v", err)
	}
}

func TestParseTooLarge(t *testing.T) {
	_, err := Parse(strings.NewReader(strings.Repeat("#", maxSize+1)), "dev.img")
	if err == nil || !strings.Contains(err.Error(), "dev.img is larger than 4 MiB") {
		t.Errorf("got %v", err)
	}
}

// TestKeysMatch keeps the written and the checked form of each section alike:
// Diff would otherwise name keys that do not exist.
func TestKeysMatch(t *testing.T) {
	checked := reflect.TypeFor[Config]()
	for i := range checked.NumField() {
		field := checked.Field(i)
		section := field.Tag.Get("key")
		if section == "" {
			continue // it is declared by keys
		}
		typ := field.Type
		if typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		keys := checkedKeys(typ)
		order := cmpopts.SortSlices(func(a, b string) bool { return a < b })
		if diff := cmp.Diff(keys, Keys(section), order); diff != "" {
			t.Errorf("[%s] (-checked +written):\n%s", section, diff)
		}
	}
}

// checkedKeys are the keys of a section, those of what is embedded included.
func checkedKeys(typ reflect.Type) (keys []string) {
	for i := range typ.NumField() {
		if f := typ.Field(i); f.Anonymous {
			keys = append(keys, checkedKeys(f.Type)...)
		} else {
			keys = append(keys, f.Tag.Get("key"))
		}
	}
	return keys
}

func TestDiff(t *testing.T) {
	old := DefaultRelay()
	next := old
	next.Serve = []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}
	next.ICMPRate++
	if diff := cmp.Diff([]string{"serve", "icmp_rate"}, Diff(old, next)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if keys := Diff(old, DefaultRelay()); len(keys) > 0 {
		t.Errorf("equal sections differ in %v", keys)
	}
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/bad/*.toml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("[[server]]\r\naddress = \"192.0.2.1\"\r\n")
	f.Add("a.b.c = 1\n[a]\nb = [[1], {x = 2}]")
	f.Fuzz(func(t *testing.T, text string) {
		config, err := Parse(strings.NewReader(text), "isthmus.toml")
		if (config == nil) == (err == nil) {
			t.Fatalf("config %v with error %v", config, err)
		}
		var list Errors
		if errors.As(err, &list) && list.Error() == "" {
			t.Error("errors without text")
		}
	})
}
