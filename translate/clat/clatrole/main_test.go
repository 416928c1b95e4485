// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"os"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
)

// The NAT64 behind which a CLAT is tested looks for what others have left.
func TestMain(m *testing.M) {
	testutil.ParallelTests(8)
	os.Exit(program.Main(m))
}
