// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/role"
)

// TestRoles holds the declarations to what every section has, and their errors to testdata.
func TestRoles(t *testing.T) {
	roles := role.List{NAT64Role, SIITRole}
	for _, r := range roles {
		t.Run(r.Name, func(t *testing.T) { configtest.Section(t, r.Section, roles.Sections()...) })
	}
}

// defaultNAT64 is a stateful translator as it is where the file says nothing.
func defaultNAT64() (s NAT64Settings) {
	key.SetDefaults(s.keys())
	return s
}

// defaultSIIT does the same for a stateless one.
func defaultSIIT() (s SIITSettings) {
	key.SetDefaults(s.keys())
	return s
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
