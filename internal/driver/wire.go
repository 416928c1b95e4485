// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"slices"

	"github.com/isthmus-net/isthmus/fastpath/attach"
	"github.com/isthmus-net/isthmus/internal/port"
)

// wires are kinds of device behind which there is a wire, before which packets are
// cut and get their checksums. Others end on this machine: in a program perhaps,
// which the kernel hands 64 KB of TCP in one datagram, without a checksum inside.
var wires = []string{"device", "bond", "team"}

// Finishes returns why what a host sends itself must not leave by a device through
// the fast path, unless its operator knows what is behind it.
func Finishes(name string, w port.Wire) error {
	if slices.Contains(wires, w.Kind) || attach.FinishesPackets(name) {
		return nil
	}
	return fmt.Errorf(`%s is a %s that leaves checksums to its far end, where a program could make nothing of them: set fast_path = "tc" if all peers and relays are in their kernels, or run ethtool -K %s tx off`, name, w.Kind, name)
}
