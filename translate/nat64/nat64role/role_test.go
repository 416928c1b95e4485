// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"testing"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/config/key"
)

// defaults is a stateful translator as it is where the file says nothing.
func defaults() (s Settings) {
	key.SetDefaults(s.keys())
	return s
}

// TestRole holds the declarations to what every section has, and their errors to testdata.
func TestRole(t *testing.T) {
	configtest.Section(t, Role.Section)
}
