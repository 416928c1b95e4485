// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"crypto/tls"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/config/key"
)

// TestRole holds the declaration to what every section has, and its errors to testdata.
func TestRole(t *testing.T) { configtest.Section(t, Role.Section) }

// TestSettings reads what a registrar is made of.
func TestSettings(t *testing.T) {
	const smallest = `
		[[registrar]]
		domains = ["Example.NET."]
		listen = ["2001:db8::5", "192.0.2.5:5070"]
		subscribers_file = "/etc/isthmus/subscribers.toml"
		`
	with := func(change func(*Settings)) *Settings {
		var s Settings
		key.SetDefaults(s.keys())
		s.Domains, s.SubscribersFile = []string{"example.net"}, "/etc/isthmus/subscribers.toml"
		s.Listen = []netip.AddrPort{netip.MustParseAddrPort("[2001:db8::5]:5060"), netip.MustParseAddrPort("192.0.2.5:5070")}
		change(&s)
		return &s
	}
	for _, tt := range []struct {
		name, text string
		want       *Settings
	}{
		{"smallest", smallest, with(func(*Settings) {})},
		{"a P-CSCF", "[[registrar]]\ndomains = [\"example.net\"]\nlisten = [\"2001:db8::5\", \"192.0.2.5:5070\"]\nnext_hop = \"sip:[2001:db8::6]\"",
			with(func(s *Settings) { s.SubscribersFile, s.NextHop = "", "sip:[2001:db8::6]" })},
		{"over Teredo", smallest + "mtu = 1280", with(func(s *Settings) { s.MTU = 1280 })},
	} {
		got := configtest.One(t, Role.Section, tt.text).(*Settings)
		if diff := cmp.Diff(tt.want, got, configtest.Same); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestExamine says what of the host is in the way, each thing in a sentence that says what to do.
func TestExamine(t *testing.T) {
	w := newWorld(t)
	w.listen("[2001:db8::5]:5060")
	w.file("nobody.toml", "[[subscriber]]\nimsi = \"001010123456789\"\n")
	w.file("open.toml", subscribers)
	if err := os.Chmod(w.path("open.toml"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, lines, want string }{
		{"a port in use", `listen = ["2001:db8::5"]`, "TCP port 5060 on 2001:db8::5 is in use by another program"},
		{"no address of the host", `listen = ["2001:db8::99"]`, "2001:db8::99 is not an address of this host"},
		{"no certificate", `certificate_file = "/nowhere.pem"`, "certificate_file cannot be read"},
		{"a certificate that is none", "certificate_file = \"" + w.path("subscribers.toml") + "\"", "are no certificate with its key"},
		{"roots that are none", "roots_file = \"" + w.path("subscribers.toml") + "\"", "there is no certificate in"},
		{"no file of subscribers", `subscribers_file = "/nowhere.toml"`, "there is no file /nowhere.toml"},
		{"a file that strangers may read", "subscribers_file = \"" + w.path("open.toml") + "\"", "holds secrets, but its permissions"},
		{"nobody who could register", "subscribers_file = \"" + w.path("nobody.toml") + "\"", "no one can register"},
	} {
		cfg := w.settings(tt.lines)
		w.ns.Do(t, func() error {
			found, times := append(examine(&cfg), examineFiles(&cfg)...), 0
			for _, f := range found {
				if strings.Contains(f.Text, tt.want) {
					times++
				}
			}
			if times != 1 {
				t.Errorf("%s is told %d times: %+v", tt.name, times, found)
			}
			return nil
		})
	}
}

// TestPaths names the default place of the state.
func TestPaths(t *testing.T) {
	help := ""
	for _, k := range Role.Keys() {
		if k.Name == "state_file" {
			help = k.Help
		}
	}
	if !strings.Contains(help, filepath.Join("/var/lib/isthmus", "NAME.registrar.state")) {
		t.Errorf("the help is %q", help)
	}
}

// TestWithoutCertificate refuses connections over TLS in place of ending the program.
func TestWithoutCertificate(t *testing.T) {
	here, there := net.Pipe()
	go func() { _ = tls.Client(there, &tls.Config{InsecureSkipVerify: true}).Handshake() }()
	if err := tls.Server(here, new(secure).forTerminals()).Handshake(); err == nil {
		t.Error("TLS without a certificate")
	}
	there.Close()
}
