// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package siitrole is the stateless translator that runs: its section of the configuration,
// a TUN device and loops around the engine of package siit, and the fast path.
package siitrole
