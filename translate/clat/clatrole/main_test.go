// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"os"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
	"github.com/isthmus-net/isthmus/internal/testutil/service"
)

// The NAT64 behind which a CLAT is tested looks for what others have left.
func TestMain(m *testing.M) {
	service.Enter()
	testutil.ParallelTests(8)
	status := testutil.PrivateMounts(m)
	program.Remove()
	os.Exit(status)
}
