// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

// candidate is a path as the choice sees it.
type candidate struct {
	// addressed: it has a Teredo address. up: its interface has a carrier.
	// doubted: its server did not answer, or the carrier was gone and the address
	// has not been confirmed since. routed: the host's routes lead to it.
	addressed, up, doubted, routed bool
}

func (c candidate) usable() bool { return c.addressed && c.up && !c.doubted }

// choose returns the path to use: the one that the host's routes lead to, else
// the one in use, else the first, of those that work. Where none is known to
// work, the one in use stays while it has an address, since a doubt may be wrong
// and a change would not help. -1 is none.
func choose(list []candidate, active int) int {
	for i, c := range list {
		if c.routed && c.usable() {
			return i
		}
	}
	if active >= 0 && list[active].usable() {
		return active
	}
	for i, c := range list {
		if c.usable() {
			return i
		}
	}
	if active >= 0 && list[active].addressed {
		return active
	}
	for i, c := range list {
		if c.addressed {
			return i
		}
	}
	return active
}
