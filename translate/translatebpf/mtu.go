// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translatebpf

// MTU4 and MTU6 put the size that a network takes into the programs' form: at least what each
// network of the family takes, and for 0 whatever the routes say.
func MTU4(mtu int) uint32 { return bound(mtu, 68) }

// MTU6 does it for IPv6.
func MTU6(mtu int) uint32 { return bound(mtu, 1280) }

func bound(mtu, least int) uint32 {
	if mtu == 0 {
		return ^uint32(0)
	}
	return uint32(max(mtu, least))
}
