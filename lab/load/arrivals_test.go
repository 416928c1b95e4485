// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// Arrivals until a time are told to a few packets of a CPU, wherever among them the first one is.
func TestArrivedUntil(t *testing.T) {
	const apart = 100 // nanoseconds
	for _, c := range []struct {
		situation               string
		first, last, end, comes uint64 // the n-th arrives at apart*(n+1)
	}{
		{"none", 32, 32, 10_000_000, 0},
		{"all", 32, 1032, 10_000_000, 1000},
		{"all, fewer than are timed", 33, 47, 10_000_000, 14},
		{"half", 0, 1000, 500 * apart, 500},
		{"half, the first is not timed", 7, 1007, 507 * apart, 500},
		{"none in time", 32, 1032, 10, 0},
		{"around the end of the record", arrivalTimes*arrivalEach - 500, arrivalTimes*arrivalEach + 500, arrivalTimes * arrivalEach * apart, 500},
		{"more than are on record", 0, arrivalTimes*arrivalEach + 1, 10, arrivalTimes*arrivalEach + 1},
	} {
		t.Run(c.situation, func(t *testing.T) {
			times := make([]uint64, arrivalTimes)
			for n := uint64(0); n < c.last; n += arrivalEach {
				times[n/arrivalEach%arrivalTimes] = apart * (n + 1)
			}
			if got := arrivedUntil(times, c.first, c.last, c.end); got+1 < c.comes || got > c.comes+1 {
				t.Errorf("%d have come, want %d", got, c.comes)
			}
		})
	}
}

// What arrives behind a time is told apart: of two loads the second one is.
func TestArrivalsHaveTheirTime(t *testing.T) {
	testutil.NeedRoot(t)
	for _, hook := range []Hook{HookXDP, HookTC} {
		t.Run(string(hook), func(t *testing.T) {
			cable(t, func() error {
				if hook == HookTC {
					if err := gro("v2"); err != nil {
						return err
					}
				}
				m := arriving(t, hook)
				g := aimedGenerator(t, 1)
				g.Peers()[0] = Peer{Client: there.As16()}
				lane := Lane{Frame: Frame6(mac1, mac2, Packet(here, netip.AddrFrom16(there.As16()), 64)), ToClient: true, Count: 1}
				since, err := m.Arrived()
				if err != nil {
					return err
				}
				var sent [2]Sent
				for i := range sent {
					if sent[i], err = g.Run([]Lane{lane}, Pace{Rate: 100e3, Time: 20 * time.Millisecond}); err != nil {
						return err
					}
					if _, err := m.SettleAll(patience); err != nil {
						return err
					}
				}
				got, err := m.ArrivedUntil(since, sent[1].End-sent[1].Took)
				if err != nil {
					return err
				}
				if want := sent[0].All(); got+arrivalEach < want || got > want+arrivalEach {
					t.Errorf("until the second load %d have come, want %d", got, want)
				}
				return nil
			})
		})
	}
}
