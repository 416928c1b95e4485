// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

//go:build race

package state

// underRace tells that the race detector makes everything ten times slower.
const underRace = true
