// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/driver"
)

// Counts are counters in the driver's form. Without an answer nothing is shown, rather
// than something wrong.
func Counts(counters []fastpath.Counter, _ error) []driver.Count {
	list := make([]driver.Count, len(counters))
	for i, c := range counters {
		list[i] = driver.Count{Verdict: c.Verdict, Reason: c.Reason.String(), Packets: c.Packets, Bytes: c.Bytes}
	}
	return list
}
