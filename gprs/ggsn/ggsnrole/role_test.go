// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"testing"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
)

// TestRole holds the declarations to what every section has, and their errors to testdata.
func TestRole(t *testing.T) { configtest.Section(t, Role.Section) }
