// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package peerstest finds the peers for tests.
package peerstest

import (
	"errors"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// Find returns the folder of the peers. Without one the test is skipped, or fails where a set-up was
// to be before it.
func Find(t *testing.T) *peers.Peers {
	t.Helper()
	found, err := peers.Find()
	if err == nil {
		return found
	}
	if !errors.Is(err, peers.ErrMissing) {
		t.Fatal(err)
	}
	testutil.Missing(t, err)
	return nil
}
