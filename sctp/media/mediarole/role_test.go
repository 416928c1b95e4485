// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"testing"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
)

// TestRole holds the declaration to what every section has, and its errors to testdata.
func TestRole(t *testing.T) { configtest.Section(t, Role.Section) }
