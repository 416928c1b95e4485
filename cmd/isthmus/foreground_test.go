// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"testing"

	"github.com/isthmus-net/isthmus/internal/role"
)

// TestForegroundFaults: what a role's flags make of a configuration is checked as a file
// is, and reported as of the command line.
func TestForegroundFaults(t *testing.T) {
	withToy(t)
	for name, text := range map[string]string{
		"a value":   "[[echo]]\nlisten = \"here\"",
		"a key":     "[[echo]]\nhear = \"here\"",
		"a section": "[[ekho]]",
	} {
		if _, err := parseFlags(text); !errors.As(err, new(role.UsageError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if settings, err := parseFlags("[[echo]]"); err != nil || settings.Count() != 1 {
		t.Errorf("%v", err)
	}
}
