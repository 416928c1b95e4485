// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/retry"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestHeard has the sessions of two neighbors come and go.
func TestHeard(t *testing.T) {
	s := &Speaker{log: slog.New(slog.DiscardHandler), troubles: map[netip.Addr]*retry.Trouble{}}
	if some, since := s.Heard(); some || !since.IsZero() {
		t.Errorf("at first %t since %v", some, since)
	}
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	start := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for at, step := range []struct {
		neighbor netip.Addr
		state    bgp.FSMState
		some     bool
		since    int // which step; -1: never
	}{
		{a, bgp.BGP_FSM_OPENSENT, false, -1},
		{a, bgp.BGP_FSM_ESTABLISHED, true, 1},
		{b, bgp.BGP_FSM_ESTABLISHED, true, 1},
		{a, bgp.BGP_FSM_IDLE, true, 1},
		{a, bgp.BGP_FSM_ACTIVE, true, 1},
		{b, bgp.BGP_FSM_IDLE, false, 5},
		{b, bgp.BGP_FSM_ACTIVE, false, 5},
		{b, bgp.BGP_FSM_ESTABLISHED, true, 7},
	} {
		event := &apiutil.WatchEventMessage_PeerEvent{Type: apiutil.PEER_EVENT_STATE}
		event.Peer.State.NeighborAddress, event.Peer.State.SessionState = step.neighbor, step.state
		s.changed(event, start.Add(time.Duration(at)*time.Second))
		some, since := s.Heard()
		want := time.Time{}
		if step.since >= 0 {
			want = start.Add(time.Duration(step.since) * time.Second)
		}
		if some != step.some || !since.Equal(want) {
			t.Errorf("step %d: %t since %v", at, some, since)
		}
	}
}

// TestHeardOfLibrary has a real session begin and end. It is not parallel: the library has a variable that all speakers of a
// process write.
func TestHeardOfLibrary(t *testing.T) {
	neighbor := listen(t, "127.0.0.2:0", func(int) error { return nil })
	cfg := settings()
	cfg.Neighbors = []config.Neighbor{{Address: netip.MustParseAddr("127.0.0.2"), AS: 64513, Port: uint16(neighbor.port())}}
	s, err := Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(false)
	began := time.Now()
	until := func(want bool) {
		t.Helper()
		for deadline := time.Now().Add(testutil.Patience); ; time.Sleep(time.Millisecond) {
			some, since := s.Heard()
			if some == want {
				if since.Before(began) {
					t.Errorf("%t since %v, before it began", some, since)
				}
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("it does not become %t", want)
			}
		}
	}
	if err := s.AddPeers(); err != nil {
		t.Fatal(err)
	}
	session := neighbor.call(t)
	answer(t, session, 64513)
	until(true)
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	until(false)
}
