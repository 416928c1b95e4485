// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"os"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
)

func TestMain(m *testing.M) {
	testutil.ParallelTests(8)
	os.Exit(program.Main(m))
}
