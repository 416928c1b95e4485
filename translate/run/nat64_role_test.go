// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/config/key"
)

// defaultNAT64 is a stateful translator as it is where the file says nothing.
func defaultNAT64() (s NAT64Settings) {
	key.SetDefaults(s.keys())
	return s
}

// TestRole holds the declarations to what every section has, and their errors to testdata.
func TestRole(t *testing.T) {
	configtest.Section(t, NAT64Role.Section, NAT64Role.Section, SIITRole.Section)
}
