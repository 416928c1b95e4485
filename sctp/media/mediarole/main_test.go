// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"os"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil/program"
)

func TestMain(m *testing.M) { os.Exit(program.Main(m)) }
