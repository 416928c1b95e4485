// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package role

import "io"

// Screen is where a command in the foreground writes: results to Out, all else to Err.
type Screen struct {
	Out, Err io.Writer
	// Live says that a person watches Out, which is a terminal.
	Live bool
}
