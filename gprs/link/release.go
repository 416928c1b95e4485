// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"iter"
	"net/netip"
)

// release has the prefix of an association given back, if that names it: what a client does not name it goes on to
// use (RFC 8415 sections 18.2.7 and 18.3.7). ok is false if nothing is bound to it, and if the client leaves out of a
// prefix what it was not told to (RFC 6603 section 6.2): that it keeps.
func (a *association) release(from Delegations, of Association) (ok bool) {
	has, ok := from.Delegate(Look, of)
	if !ok {
		return false
	}
	its := false
	for code, v := range allOptions(a.options) {
		if code != OptionPrefix {
			continue
		}
		p := netip.PrefixFrom(netip.AddrFrom16([16]byte(v[9:])), int(v[8])).Masked()
		its = its || p == has.Prefix
		for code, v := range allOptions(v[25:]) {
			if excluded, ok := ParseExcluded(p, v); code == OptionExclude && ok && excluded != has.Excluded {
				return false
			}
		}
	}
	if its {
		from.Delegate(Release, of)
	}
	return true
}

// allOptions are those of a list that [wholeOptions] has checked, with their codes.
func allOptions(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) > 0 {
			end := 4 + int(binary.BigEndian.Uint16(b[2:]))
			if !yield(binary.BigEndian.Uint16(b), b[4:end]) {
				return
			}
			b = b[end:]
		}
	}
}
