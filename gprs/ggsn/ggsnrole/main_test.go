// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"os"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
	"github.com/isthmus-net/isthmus/internal/testutil/service"
)

func TestMain(m *testing.M) {
	service.Enter()
	status := testutil.PrivateMounts(m)
	program.Remove()
	os.Exit(status)
}
