// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestPlaceOfTerminal is that of one that leaves until it has gone: what still comes from it, and
// its station, are not another's.
func TestPlaceOfTerminal(t *testing.T) {
	s, err := New(Settings{Local: []netip.Addr{ours}}, slog.New(slog.DiscardHandler))
	mustDo(t, err)
	key := func(n byte) gtp.TID { return gtp.TID{n} }
	place := func(n byte) *terminal {
		t.Helper()
		got, err := s.occupy(&want{tun: noDevice}, key(n))
		mustDo(t, err)
		return got
	}
	first := place(1)
	closing, reading := make(chan struct{}), make(chan struct{})
	first.cancel, first.read = func() { close(closing) }, reading
	gone := make(chan error)
	go func() { gone <- s.vacate(first, key(1)) }()
	<-closing
	if second := place(2); second.link == first.link || s.terminal(first.link) != nil {
		t.Errorf("the place %d is another's, while the first reads on", second.link)
	}
	mustDo(t, s.vacate(first, key(1))) // of which the second has nothing to do
	close(reading)
	mustDo(t, <-gone)
	if third := place(3); third.link != first.link {
		t.Errorf("the place %d is free, %d is taken", first.link, third.link)
	}
}
