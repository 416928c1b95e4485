// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package driver

import (
	"slices"
	"strings"

	"github.com/isthmus-net/isthmus/fastpath/pinned"
)

// PinName makes the name of an instance one that a BPF file system takes, which
// reserves dots.
func PinName(instance string) string { return strings.ReplaceAll(instance, ".", "+") }

// Left reports whether a process before this one has left its tables, in this network
// namespace.
func (f *Driver) Left() bool {
	left, err := leftPins(f.role.Name)
	return left && err == nil
}

// leftPins reports whether an instance of this name has left something behind in this network
// namespace.
func leftPins(instance string) (bool, error) {
	left, err := pinned.Leftovers()
	return slices.ContainsFunc(left, func(l pinned.Leftover) bool {
		return l.Instance == PinName(instance) && !l.Elsewhere()
	}), err
}

// discardPins removes what an instance of this name has left behind in this network
// namespace, if anything.
func discardPins(instance string) error {
	left, err := leftPins(instance)
	if err != nil || !left {
		return err
	}
	pins, err := pinned.Open(PinName(instance))
	if err != nil {
		return err
	}
	return pins.Remove()
}
