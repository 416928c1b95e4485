// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"testing"

	"github.com/isthmus-net/isthmus/internal/config"
)

// TestClatFlags reads the flags as keys of a file.
func TestClatFlags(t *testing.T) {
	c := ClatCmd{Uplink: "eth0", Prefix: []string{"2001:db8:64::/96"}, Interface: "v4", Socket: "/run/clat.sock", Always: true}
	settings, err := c.settings()
	if err != nil {
		t.Fatal(err)
	}
	if len(settings.CLATs) != 1 || settings.Control.Socket != "/run/clat.sock" {
		t.Fatalf("read %+v", settings)
	}
	if s := settings.CLATs[0]; s.Uplink != "eth0" || s.Interface != "v4" || s.Native != config.NativeIgnore || len(s.Prefixes) != 1 {
		t.Errorf("read %+v", s)
	}
	for name, bad := range map[string]ClatCmd{
		"prefix of 95 bits": {Interface: "clat", Prefix: []string{"2001:db8:64::/95"}},
		"slash in a name":   {Interface: "a/b"},
		"no resolver":       {Interface: "clat", Resolver: []string{"dns.example"}},
	} {
		if _, err := bad.settings(); !errors.As(err, new(usageError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
