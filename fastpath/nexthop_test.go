// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestNeighboursInUse lists the next hop that was asked for lately, and none of a thousand that a
// scan has left.
func TestNeighboursInUse(t *testing.T) {
	testutil.NeedRoot(t)
	table, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.LRUHash, KeySize: 24, ValueSize: 8, MaxEntries: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	const now = time.Hour
	ask := func(host uint16, age time.Duration) {
		key := NeighbourRecord{Family: familyIPv4, Ifindex: 2, Address: [16]byte{198, 18, byte(host >> 8), byte(host)}}
		if err := table.Put(key, uint64(now-age)); err != nil {
			t.Fatal(err)
		}
	}
	for host := range uint16(1000) {
		ask(host, InUse+time.Second)
	}
	ask(2000, InUse/2)
	o := &Object{tables: map[string]*ebpf.Map{neighboursMap: table}}
	hops, err := o.neighboursAt(now)
	if want := netip.MustParseAddr("198.18.7.208"); err != nil || len(hops) != 1 || hops[0].Addr != want {
		t.Errorf("%d are in use, want %s alone: %v", len(hops), want, err)
	}
}
