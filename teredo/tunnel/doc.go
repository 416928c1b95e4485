// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package tunnel has what Teredo's roles share on the host: keys of the configuration,
// the check of an instance by a packet of its own, and what follows the network.
//
//house:shared
package tunnel
