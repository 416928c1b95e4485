// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/port"
)

// Random ports open on the goroutine that serves them, a port in use is a failure
// and nothing worse, and all close at the end, those opened too late as well.
func TestRandomSockets(t *testing.T) {
	r := newRandomSockets()
	ctx, cancel := context.WithCancel(context.Background())
	go r.serve(ctx)
	loopback := netip.MustParseAddr("127.0.0.1")
	first := r.listen(netip.AddrPortFrom(loopback, 0))
	if first == nil {
		t.Fatal("no socket")
	}
	if again := r.listen(first.LocalAddr()); again != nil {
		t.Error("a port was opened twice")
	}
	second := r.listen(netip.AddrPortFrom(loopback, 0))
	r.keep(16, first)
	r.keep(17, second)
	r.drop(17)
	r.drop(18) // not there
	late := r.listen(netip.AddrPortFrom(loopback, 0))
	cancel()
	<-r.done
	if r.listen(netip.AddrPortFrom(loopback, 0)) != nil {
		t.Error("a socket was opened behind the end")
	}
	r.close()
	r.keep(18, late)
	for i, conn := range []*port.UDP{first, second, late} {
		if _, err := conn.ReadBatch(make([]port.Message, 1)); !errors.Is(err, port.ErrClosed) {
			t.Errorf("socket %d: %v", i, err)
		}
	}
}
