// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"os"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

func TestMain(m *testing.M) {
	testutil.ParallelTests(12)
	os.Exit(m.Run())
}
