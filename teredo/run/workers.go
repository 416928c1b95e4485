// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import "runtime"

// mostWorkers is how many workers an instance has at most unless told otherwise:
// beyond that the kernel, and not the engine, has the most to do.
const mostWorkers = 4

// workers returns how many cores serve an instance that is configured so.
func workers(configured int) int {
	if configured > 0 {
		return configured
	}
	return min(runtime.NumCPU(), mostWorkers)
}
