// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

// Mode says where the operator wants the fast path to sit.
type Mode string

// Attach modes, in the words of the configuration.
const (
	ModeAuto Mode = "auto" // the best that every device can take
	ModeXDP  Mode = "xdp"  // native XDP, or a refusal
	ModeTC   Mode = "tc"   // tc, or a refusal
	ModeOff  Mode = "off"  // nothing is attached
)
