// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// Whole lists something of the kernel's, again if it changed meanwhile.
func Whole[T any](list func() ([]T, error)) ([]T, error) {
	for {
		all, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
}
