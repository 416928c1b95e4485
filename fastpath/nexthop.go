// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
)

// NextHop is a neighbour that redirected packets are sent to.
type NextHop struct {
	// Family is 4 or 6.
	Family int
	// Ifindex is the link's index.
	Ifindex int
	// Addr is the neighbour's address on that link.
	Addr netip.Addr
}

// routes4Size is how many ranges of IPv4 destinations have a class.
const routes4Size = 65536

// NeighbourRecord is struct neighbour of bpf/base.h.
type NeighbourRecord struct {
	Family, Ifindex uint32
	Address         [16]byte // IPv4: the first four
}

const familyIPv4 = 2

// InUse is how long a next hop counts as in use after programs have asked for it. They ask again
// when their answers are void, which those must become more often.
const InUse = 10 * time.Minute

// Neighbours lists next hops in use. Others stay in their table until programs need the room:
// behind a scan these may be thousands.
func (o *Object) Neighbours() ([]NextHop, error) { return o.neighboursAt(Monotonic()) }

func (o *Object) neighboursAt(now time.Duration) ([]NextHop, error) {
	var list []NextHop
	var key NeighbourRecord
	var asked uint64
	all := o.tables[neighboursMap].Iterate()
	for all.Next(&key, &asked) {
		if now-time.Duration(asked) > InUse {
			continue
		}
		hop := NextHop{Family: 4, Ifindex: int(key.Ifindex), Addr: netip.AddrFrom4([4]byte(key.Address[:4]))}
		if key.Family != familyIPv4 {
			hop.Family, hop.Addr = 6, netip.AddrFrom16(key.Address)
		}
		list = append(list, hop)
	}
	// Programs may push entries out meanwhile, and more than once.
	if err := all.Err(); err != nil && err != ebpf.ErrIterationAborted {
		return list, fmt.Errorf("cannot read the next hops of the fast path: %w", err)
	}
	return list, nil
}
