// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package testutil holds what tests of several packages need: the guard of
// tests that need root, and network namespaces for a test alone.
package testutil

import (
	"encoding/hex"
	"flag"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Environment variables that say what becomes of tests that need root; each
// acts when set to 1.
const (
	// RequireRootEnv makes a test fail that would be skipped for want of root,
	// or of a program that set-up fetches, so that the full test run never
	// leaves one out silently.
	RequireRootEnv = "ISTHMUS_REQUIRE_ROOT"
	// SkipRootEnv skips such tests even for root, so that the quick check is
	// the same for everybody.
	SkipRootEnv = "ISTHMUS_SKIP_ROOT"
)

// NeedRoot skips the test unless it runs as root. Under ISTHMUS_REQUIRE_ROOT=1
// it fails the test instead.
func NeedRoot(t testing.TB) {
	t.Helper()
	switch {
	case os.Getenv(SkipRootEnv) == "1":
		t.Skip("needs root, and " + SkipRootEnv + "=1 leaves such tests out")
	case os.Geteuid() == 0:
	case os.Getenv(RequireRootEnv) == "1":
		t.Fatal("needs root, and " + RequireRootEnv + "=1 forbids to skip")
	default:
		t.Skip("needs root")
	}
}

// Missing skips a test that lacks err's program, which set-up fetches. Under
// ISTHMUS_REQUIRE_ROOT=1, which only follows a set-up, it fails the test
// instead.
func Missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv(RequireRootEnv) == "1" {
		t.Fatalf("%v, and %s=1 forbids to skip", err, RequireRootEnv)
	} else {
		t.Skip(err)
	}
}

// ParallelTests has so many parallel tests of a package run at once, however few processors
// there are: for those that wait for the kernel and for peers more than they work. TestMain
// calls it.
func ParallelTests(n int) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}

// Unhex reads octets in hexadecimal digits; blanks between them are for the reader.
func Unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
