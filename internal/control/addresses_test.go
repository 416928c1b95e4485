// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/event"
)

// changes are what a source tells: an address that came, stands by, and went.
var changes = []event.AddressChange{
	{Instance: "live", New: netip.MustParseAddr("2001:db8::1"), Interface: "teredo", Via: "eth0", Cause: event.Qualified, Time: time.Unix(3, 4).UTC()},
	{Instance: "live", Old: netip.MustParseAddr("2001:db8::1"), New: netip.MustParseAddr("2001:db8::1"), Standby: true, Interface: "teredo", Cause: event.NativeIPv6, Time: time.Unix(4, 0).UTC()},
	{Instance: "live", Old: netip.MustParseAddr("2001:db8::1"), Interface: "teredo", Cause: event.ServerSilent, Time: time.Unix(5, 0).UTC()},
}

// Addresses tells of all changes, and no more until the reader goes.
func (s *source) Addresses(ctx context.Context, emit func(event.AddressChange)) {
	for _, e := range changes {
		emit(e)
	}
	<-ctx.Done()
}

func TestAddresses(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []event.AddressChange
	err := start(t, &source{}).Addresses(ctx, func(e event.AddressChange) {
		if got = append(got, e); len(got) == len(changes) {
			cancel()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i] != changes[i] {
			t.Errorf("change %d: %+v, want %+v", i, got[i], changes[i])
		}
	}
}

// The end of the daemon ends the stream, and the reader is told.
func TestAddressesEnd(t *testing.T) {
	client, server := startOf(t, &source{})
	begun, ended := make(chan struct{}, len(changes)), make(chan error)
	go func() {
		ended <- client.Addresses(t.Context(), func(event.AddressChange) { begun <- struct{}{} })
	}()
	<-begun
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("the reader was not told that the daemon had stopped")
	}
}
