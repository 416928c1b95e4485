// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package nat64role is the NAT64 that runs: its section of the configuration, a TUN device
// and loops around the engine of package nat64, state that outlives the process, the fast
// path, an FTP gateway and the announcement of its prefixes to hosts.
package nat64role
