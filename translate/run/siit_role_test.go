// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/config/key"
)

// defaultSIIT is a stateless translator as it is where the file says nothing.
func defaultSIIT() (s SIITSettings) {
	key.SetDefaults(s.keys())
	return s
}

// TestSIITRole holds the declarations to what every section has, and their errors to testdata.
func TestSIITRole(t *testing.T) {
	configtest.Section(t, SIITRole.Section, NAT64Role.Section, SIITRole.Section)
}
