// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// writeSubscribers writes a file of them.
func writeSubscribers(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "subscribers.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestReadSubscribers reads those with an IMSI, and what each may use.
func TestReadSubscribers(t *testing.T) {
	all, err := readSubscribers(writeSubscribers(t, `[[subscriber]]
imsi = "240010000000001"
[[subscriber]]
imsi = "240010000000002"
[[subscriber.apn]]
name = "Internet"
address4 = "10.47.0.9"
prefix6 = "2001:db8:7100:9::/64"
[[subscriber.apn]]
name = "ims"
types = ["ipv6", "ipv4v6"]
max_up = 512
max_down = 2048
[[subscriber]]
private_id = "bob"
password = "x"
`))
	if err != nil {
		t.Fatal(err)
	}
	imsi := func(digits string) gtp.IMSI {
		m, err := gtp.ParseIMSI(digits)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	want := []ggsn.Subscriber{
		{IMSI: imsi("240010000000001")},
		{IMSI: imsi("240010000000002"), Subscription: ggsn.Subscription{APNs: []ggsn.Service{
			{APN: "internet", Address4: netip.MustParseAddr("10.47.0.9"), Prefix6: netip.MustParsePrefix("2001:db8:7100:9::/64")},
			{APN: "ims", Types: ggsn.TypeIPv6 | ggsn.TypeIPv4v6, Rates: ggsn.Rates{Up: 512, Down: 2048}},
		}}},
	}
	if !reflect.DeepEqual(all.All(), want) {
		t.Errorf("%v, want %v", all.All(), want)
	}
}

// TestSubscribersMissing tells of a file that cannot be read at the check, and of one that lets nobody in.
func TestSubscribersMissing(t *testing.T) {
	cfg := written(t, `subscribers_file = "/nowhere.toml"`, "")
	if found := examineSubscribers(&cfg); len(found) != 1 || found[0].Warning || !strings.Contains(found[0].Text, "/nowhere.toml") {
		t.Errorf("without a file: %v", found)
	}
	const one = "[[subscriber]]\nimsi = \"240010000000001\"\n"
	for text, want := range map[string][]string{
		"[[subscriber]]\nprivate_id = \"bob\"\npassword = \"x\"\n": {"no terminal will get a context"},
		one: nil,
		one + "[[subscriber.apn]]\nname = \"internet\"\naddress4 = \"10.99.0.1\"\n": {"subscriber 240010000000001: 10.99.0.1/32 is none of the static addresses of access point internet"},
		one + "[[subscriber.apn]]\nname = \"inernet\"\n":                            {"no access point inernet, which subscribers may use: 1 in"},
	} {
		cfg.SubscribersFile = writeSubscribers(t, text)
		found := examineSubscribers(&cfg)
		if len(found) != len(want) || len(want) > 0 && !strings.Contains(found[0].Text, want[0]) {
			t.Errorf("of %q it is said: %v", text, found)
		}
	}
}

// TestStaticElsewhere: neither a start nor a reload takes an address that the access point has not.
func TestStaticElsewhere(t *testing.T) {
	cfg := written(t, "", "")
	g, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	cfg.SubscribersFile = writeSubscribers(t, "[[subscriber]]\nimsi = \"240010000000001\"\n[[subscriber.apn]]\nname = \"internet\"\naddress4 = \"10.99.0.1\"\n")
	const want = "none of the static addresses of access point internet"
	if _, err := New(cfg, g.log); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("at the start: %v", err)
	}
	if _, err := g.Prepare(cfg); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("by a reload: %v", err)
	}
}

// TestNobodyIsLogged has a node begin with a file that lets nobody in.
func TestNobodyIsLogged(t *testing.T) {
	cfg := written(t, "", "")
	cfg.SubscribersFile = writeSubscribers(t, "")
	var log strings.Builder
	if _, err := New(cfg, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "no terminal will get a context") {
		t.Errorf("the log is %q", log.String())
	}
}
