// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

//go:build !race

package testutil

// UnderRace reports whether the race detector makes everything ten times slower: what runs
// long in one thread alone has nothing to tell it.
const UnderRace = false
