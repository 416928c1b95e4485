// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

//go:build !race

package state

const underRace = false
