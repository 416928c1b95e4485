// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"testing"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/config/key"
)

// TestRole holds the declaration to what every section has, and its errors to
// testdata.
func TestRole(t *testing.T) { configtest.Section(t, Role.Section) }

func defaults() (s Settings) {
	key.SetDefaults(s.keys())
	return s
}
