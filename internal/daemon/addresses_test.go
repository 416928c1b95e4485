// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/event"
	"github.com/isthmus-net/isthmus/internal/role"
)

// A reader is told what is, and then each change; one that is too slow is told no more.
func TestAddresses(t *testing.T) {
	a, b := &mover{}, &mover{}
	d := &Daemon{}
	d.addresses.follow([]role.Instance{a, b})
	change := func(instance string, last byte) event.AddressChange {
		e := event.AddressChange{Instance: instance, Time: time.Unix(int64(last), 0)}
		if last > 0 {
			e.New = netip.AddrFrom16([16]byte{0x20, 1, 15: last})
		}
		return e
	}
	a.tell(change("a", 1))
	a.tell(change("a", 2))
	b.tell(change("b", 3))
	b.tell(change("b", 0))
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan event.AddressChange)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.Addresses(ctx, func(e event.AddressChange) { told <- e })
	}()
	var got []event.AddressChange
	got = append(got, <-told)
	b.tell(change("b", 4))
	got = append(got, <-told)
	if diff := cmp.Diff([]event.AddressChange{change("a", 2), change("b", 4)}, got, cmp.Comparer(func(x, y netip.Addr) bool { return x == y })); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	for i := range byte(2 * maxUnread) { // nobody reads
		a.tell(change("a", i+1))
	}
	for n := 0; ; n++ {
		select {
		case <-told:
			continue
		case <-ended:
		}
		if n > maxUnread+1 {
			t.Errorf("%d changes waited", n)
		}
		break
	}
	cancel()
	if len(d.addresses.readers) != 0 {
		t.Error("a reader that has gone is still told")
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	d.Addresses(gone, func(event.AddressChange) {})
	if len(d.addresses.readers) != 0 {
		t.Error("a reader that has gone is still told")
	}
}
