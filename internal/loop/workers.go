// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package loop

import "runtime"

// mostWorkers is how many workers an instance has at most unless told otherwise:
// beyond that the kernel, and not the engine, has the most to do.
const mostWorkers = 4

// Workers returns how many workers serve an instance that is configured so. Each
// has a loop for each direction and so keeps two CPUs busy: on a machine with two
// a second worker changed nothing that could be told from noise, and four lost.
func Workers(configured int) int {
	if configured > 0 {
		return configured
	}
	return min(max(runtime.NumCPU()/2, 1), mostWorkers)
}
