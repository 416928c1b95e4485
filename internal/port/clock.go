// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"time"

	"golang.org/x/sys/unix"
)

// MonotonicEpoch returns the zero of CLOCK_MONOTONIC, by which programs in the kernel
// stamp what they see.
func MonotonicEpoch() time.Time {
	var now unix.Timespec
	// It cannot fail: the clock is always there, and the address is good.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Now().Add(-time.Duration(now.Nano()))
}
