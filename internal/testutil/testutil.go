// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package testutil holds what tests of several packages need: the guard of
// tests that need root, and network namespaces for a test alone.
package testutil

import (
	"os"
	"testing"
)

// RequireRootEnv is the environment variable that, set to 1, turns a test
// skipped for want of root into a failure, so that the full test run never
// leaves one out silently.
const RequireRootEnv = "ISTHMUS_REQUIRE_ROOT"

// NeedRoot skips the test unless it runs as root. Under ISTHMUS_REQUIRE_ROOT=1
// it fails the test instead.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv(RequireRootEnv) == "1" {
		t.Fatal("needs root, and " + RequireRootEnv + "=1 forbids to skip")
	}
	t.Skip("needs root")
}
