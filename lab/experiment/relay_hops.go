// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// manyHops adds the row with many destinations over several next hops.
func manyHops(ctx context.Context, e *lab.Env, rep *report.Report, rounds int) error { return nil }
