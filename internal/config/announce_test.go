// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseAnnounce(t *testing.T) {
	got := parse(t, `
		[announce]
		method = "bgp"
		check = "2001:db8::53"
		fall = 2
		local_as = 4200000000
		router_id = "192.0.2.3"
		listen = ["::", "192.0.2.3"]
		next_hop6 = "2001:db8::3"
		med = 50
		communities = ["64512:100", "no-export"]
		graceful_restart = "20s"
		[[announce.neighbor]]
		address = "2001:db8::1"
		as = 64513
		passive = true
		password_file = "/etc/isthmus/bgp"
		ttl_security = true
		[[announce.neighbor]]
		address = "192.0.2.1"
		as = 64513
		multihop = 2
		[[network]]
		prefixes = "2001::/32"
		announce = true`).Announce
	want := DefaultAnnounce()
	want.Method, want.Fall, want.MED = AnnounceBGP, 2, 50
	want.Check = []netip.Addr{netip.MustParseAddr("2001:db8::53")}
	want.LocalAS, want.RouterID = 4200000000, netip.MustParseAddr("192.0.2.3")
	want.Listen = []netip.Addr{netip.IPv6Unspecified(), netip.MustParseAddr("192.0.2.3")}
	want.NextHop6 = netip.MustParseAddr("2001:db8::3")
	want.Communities = []Community{64512<<16 | 100, 0xffffff01}
	want.GracefulRestart = 20 * time.Second
	want.Neighbors = []Neighbor{
		{Address: netip.MustParseAddr("2001:db8::1"), AS: 64513, Port: 179, Passive: true, PasswordFile: "/etc/isthmus/bgp", TTLSecurity: true},
		{Address: netip.MustParseAddr("192.0.2.1"), AS: 64513, Port: 179, Multihop: 2},
	}
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Errorf("section differs (-want +got):\n%s", diff)
	}
}

// TestAnnounceNextHops parses pairs of a prefix and a session of another family.
func TestAnnounceNextHops(t *testing.T) {
	const speaker = "[announce]\nmethod = \"bgp\"\nlocal_as = 64512\nrouter_id = \"192.0.2.3\"\n"
	for _, tt := range []struct {
		name, text string
		ok         bool
	}{
		{"an IPv6 prefix by an IPv6 session", speaker + "[[announce.neighbor]]\naddress = \"2001:db8::1\"\nas = 1\n[[network]]\nprefixes = \"2001::/32\"\nannounce = true", true},
		{"an IPv6 prefix by an IPv4 session", speaker + "[[announce.neighbor]]\naddress = \"192.0.2.1\"\nas = 1\n[[network]]\nprefixes = \"2001::/32\"\nannounce = true", false},
		{"an IPv6 prefix by an IPv4 session with a next hop", speaker + "next_hop6 = \"2001:db8::3\"\n[[announce.neighbor]]\naddress = \"192.0.2.1\"\nas = 1\n[[network]]\nprefixes = \"2001::/32\"\nannounce = true", true},
		{"an IPv4 prefix by an IPv6 session", speaker + "[[announce.neighbor]]\naddress = \"2001:db8::1\"\nas = 1\n[[network]]\nprefixes = \"192.0.2.1/32\"\nannounce = true", false},
		{"an IPv4 prefix by an IPv4 session", speaker + "[[announce.neighbor]]\naddress = \"192.0.2.1\"\nas = 1\n[[network]]\nprefixes = \"192.0.2.1/32\"\nannounce = true", true},
		{"one that is not announced", speaker + "[[announce.neighbor]]\naddress = \"192.0.2.1\"\nas = 1\n[[network]]\nprefixes = \"2001::/32\"", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Parse(strings.NewReader(tt.text), "isthmus.toml", networkSection); (err == nil) != tt.ok {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestNeighborPassword(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		name, text string
		mode       os.FileMode
		want       Secret
		fault      string
	}{
		{"short, with a line end", "abc\n", 0o600, "abc", ""},
		{"blanks belong to it", " a b \r\n", 0o640, " a b ", ""},
		{"empty", "\n", 0o600, "", "is empty"},
		{"longer than the kernel takes", strings.Repeat("x", 81), 0o600, "", "longer than 80 bytes"},
		{"open to others", "abc", 0o644, "", "open it to others"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := Neighbor{PasswordFile: filepath.Join(dir, tt.name)}
			if err := os.WriteFile(n.PasswordFile, []byte(tt.text), tt.mode); err != nil {
				t.Fatal(err)
			}
			got, err := n.Password()
			if got != tt.want || (err == nil) != (tt.fault == "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("%q, %v", string(got), err)
			}
		})
	}
	if got, err := new(Neighbor).Password(); got != "" || err != nil {
		t.Errorf("without a file: %q, %v", string(got), err)
	}
}
