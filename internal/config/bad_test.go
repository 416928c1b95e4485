// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"testing"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
)

// TestBad compares the errors of wrong files with what people read.
func TestBad(t *testing.T) { configtest.Errors(t, "testdata/bad/*.toml") }
