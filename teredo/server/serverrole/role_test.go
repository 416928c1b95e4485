// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package serverrole

import (
	"testing"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/config/key"
)

// TestRole holds the declaration to what every section has, and its errors to
// testdata.
func TestRole(t *testing.T) { configtest.Section(t, Role.Section) }

// defaults is a server as it is where the file says nothing.
func defaults() (s Settings) {
	key.SetDefaults(s.keys())
	return s
}
