// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnbpf

import (
	"github.com/cilium/ebpf"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
)

// index is how programs find records by the keys of a packet.
type index struct{ byTEID, byAddress, byPrefix *ebpf.Map }

var _ ggsn.SharedIndex = (*index)(nil)

// entry is a key in the table that it is of.
type entry struct {
	table *ebpf.Map
	key   any
}

// entries are those of a record.
func (x *index) entries(c *ggsn.SharedContext) []entry {
	list := []entry{{x.byTEID, c.TEID}}
	if c.Flags&ggsn.SharedIPv4 != 0 {
		list = append(list, entry{x.byAddress, c.Address})
	}
	if c.Flags&ggsn.SharedIPv6 != 0 {
		list = append(list, entry{x.byPrefix, c.Prefix})
	}
	return list
}

// Enter enters a record by its number; false: there is no room, and nothing was entered.
func (x *index) Enter(number uint32, c *ggsn.SharedContext) bool {
	for _, e := range x.entries(c) {
		if e.table.Put(e.key, number) != nil {
			x.Leave(number, c)
			return false
		}
	}
	return true
}

// Leave takes out what is entered by a number. What cannot be asked for is not there.
func (x *index) Leave(number uint32, c *ggsn.SharedContext) {
	for _, e := range x.entries(c) {
		var at uint32
		if e.table.Lookup(e.key, &at) == nil && at == number {
			_ = e.table.Delete(e.key)
		}
	}
}
