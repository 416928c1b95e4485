// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"os"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// The NAT64 behind which a CLAT is tested looks for what others have left.
func TestMain(m *testing.M) {
	testutil.ParallelTests(8)
	os.Exit(testutil.PrivateMounts(m))
}
