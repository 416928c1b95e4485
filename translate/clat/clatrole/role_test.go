// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
)

// TestRole holds the declaration to what every section has, and its errors to
// testdata.
func TestRole(t *testing.T) { configtest.Section(t, Role.Section) }

// TestInterface: the device has the name of the instance unless the file says otherwise.
func TestInterface(t *testing.T) {
	for text, want := range map[string]string{
		"[[clat]]":                "clat",
		"[[clat]]\nname = \"v4\"": "v4",
		"[[clat]]\nname = \"v4\"\ninterface=\"d\"": "d",
	} {
		if got := configtest.One(t, Role.Section, text).(*Settings).Interface; got != want {
			t.Errorf("%q makes the device %s, want %s", text, got, want)
		}
	}
}

// TestCommand reads the flags as keys of a file.
func TestCommand(t *testing.T) {
	c := Command{Uplink: "eth0", Prefix: []string{"2001:db8:64::/96"}, Interface: "v4", Socket: "/run/clat.sock", Always: true}
	settings, err := config.Parse(strings.NewReader(c.configuration()), "flags", Role.Section)
	if err != nil {
		t.Fatal(err)
	}
	if len(settings.Instances) != 1 || settings.Control.Socket != "/run/clat.sock" {
		t.Fatalf("read %+v", settings)
	}
	if s := settings.Instances[0].Settings.(*Settings); s.Uplink != "eth0" || s.Interface != "v4" || s.Native != NativeIgnore || len(s.Prefixes) != 1 {
		t.Errorf("read %+v", s)
	}
}
