// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package driver

import (
	"strings"

	"github.com/isthmus-net/isthmus/fastpath"
)

// PinName makes the name of an instance one that a BPF file system takes, which
// reserves dots.
func PinName(instance string) string { return strings.ReplaceAll(instance, ".", "+") }

// discardPins removes what an instance of this name has left behind in this network
// namespace, if anything.
func discardPins(instance string) error {
	left, err := fastpath.Leftovers()
	if err != nil {
		return err
	}
	for _, l := range left {
		if l.Instance != PinName(instance) {
			continue
		}
		pins, err := fastpath.OpenPins(PinName(instance))
		if err != nil {
			return err
		}
		return pins.Remove()
	}
	return nil
}
