// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"fmt"
	"os"
	"path/filepath"
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
[[subscriber.apn]]
name = "ims"
types = ["ipv6", "ipv4v6"]
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
	want := map[gtp.IMSI]ggsn.Subscription{
		imsi("240010000000001"): {},
		imsi("240010000000002"): {APNs: map[string]ggsn.Types{"internet": 0, "ims": ggsn.TypeIPv6 | ggsn.TypeIPv4v6}},
	}
	if fmt.Sprint(all) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", all, want)
	}
}

// TestSubscribersMissing tells of a file that cannot be read at the check, and of one that lets nobody in.
func TestSubscribersMissing(t *testing.T) {
	cfg := written(t, `subscribers_file = "/nowhere.toml"`, "")
	if _, err := engineSettings(&cfg, nil, 0); err == nil || !strings.Contains(err.Error(), "/nowhere.toml") {
		t.Errorf("without a file: %v", err)
	}
	for text, warnings := range map[string]int{
		"[[subscriber]]\nprivate_id = \"bob\"\npassword = \"x\"\n": 1, "[[subscriber]]\nimsi = \"240010000000001\"\n": 0,
	} {
		cfg.SubscribersFile = writeSubscribers(t, text)
		if found := unsubscribed(&cfg); len(found) != warnings {
			t.Errorf("of %q it is said: %v", text, found)
		}
	}
}
