// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

// hairpin turns the packets round that were made since start: their destination is an
// address of the pool, so another IPv6 host is meant, or the same. Each is treated as if
// it came from the IPv4 side (RFC 6146 section 3.8), but takes no second hop.
//
// The packets stay in the batch's memory, and those that come out take their place.
func (e *Engine) hairpin(c *call, start int) Reason {
	second := *c
	second.turned = true
	end := len(c.out.IP)
	var first Reason
	for _, ip := range c.out.IP[start:end] {
		if r := e.from4(&second, ip); r != none {
			first = r
		} else {
			e.stats.Hairpinned++
		}
	}
	c.out.IP = append(c.out.IP[:start], c.out.IP[end:]...)
	return first
}
