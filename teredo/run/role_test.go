// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/role"
)

var roles = role.List{ServerRole, RelayRole, ClientRole}

// TestRoles holds the declarations to what every section has, and their errors to testdata.
func TestRoles(t *testing.T) {
	for _, r := range roles {
		t.Run(r.Name, func(t *testing.T) { configtest.Section(t, r.Section, roles.Sections()...) })
	}
}

// defaultServer is a server as it is where the file says nothing.
func defaultServer() (s ServerSettings) {
	key.SetDefaults(s.keys())
	return s
}

func defaultRelay() (s RelaySettings) {
	key.SetDefaults(s.keys())
	return s
}

func defaultClient() (s ClientSettings) {
	key.SetDefaults(s.keys())
	return s
}

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := roles.Parse(strings.NewReader(text), "isthmus.toml")
	if err != nil {
		t.Fatalf("\n%v", err)
	}
	return c
}

// reload has an instance that runs with some settings take others as a reload does. It
// returns the keys that wait for a restart.
func reload[S any](of role.Role, i role.Instance, running, next S) ([]string, error) {
	at := func(settings S) config.Instance { return config.Instance{Section: of.Section, Settings: &settings} }
	change, err := role.List{of}.Prepare(i, at(running), at(next))
	if err != nil {
		return nil, err
	}
	return change()
}
