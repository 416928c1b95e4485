// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"crypto/sha256"
	"net/netip"
	"os"
	"strings"
)

// madePrefix makes a private /64 (RFC 4193) of this machine and the name of an
// instance, which stays the same over restarts. It leaves the machine in no packet.
func madePrefix(name string) netip.Prefix {
	// Without a machine id, that of the name alone serves: no one else sees it.
	id, _ := os.ReadFile("/etc/machine-id")
	sum := sha256.Sum256([]byte("isthmus ftp " + strings.TrimSpace(string(id)) + " " + name))
	raw := [16]byte{0: 0xfd}
	copy(raw[1:8], sum[:])
	return netip.PrefixFrom(netip.AddrFrom16(raw), 64)
}
