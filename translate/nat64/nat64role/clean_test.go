// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"errors"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate/gateway"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
)

// TestLeftAnswers ends the answers for a pool whose translator was killed, at the next
// start with another pool and by a cleaning, which leaves those of the living.
func TestLeftAnswers(t *testing.T) {
	w := gatewaytest.NewWorld(t)
	w.LeaveAnswer(t, "192.0.2.70")
	n := start(t, w, testSettings(t))
	if got := w.Answers(t); !slices.Equal(got, []string{poolAddr.String()}) {
		t.Errorf("after a start it answers for %v", got)
	}
	w.LeaveAnswer(t, "192.0.2.71")
	var cleaned role.Cleaned
	w.Gateway.Do(t, func() (err error) {
		cleaned, err = gateway.CleanProxies()
		return err
	})
	if !slices.Equal(cleaned.Removed, []string{"answers for 192.0.2.71 on v4"}) {
		t.Errorf("removed %v", cleaned.Removed)
	}
	if got := w.Answers(t); !slices.Equal(got, []string{poolAddr.String()}) {
		t.Errorf("after a cleaning it answers for %v", got)
	}
	// A device that is down has no routes, and takes up again what was cleaned meanwhile.
	change := func(f func(netlink.Link) error) {
		t.Helper()
		w.Gateway.Do(t, func() error {
			tun, err := netlink.LinkByName(n.device.Name())
			return errors.Join(err, f(tun))
		})
	}
	change(netlink.LinkSetDown)
	gatewaytest.Await(t, n, "device_down")
	w.Gateway.Do(t, func() error {
		_, err := gateway.CleanProxies()
		return err
	})
	change(netlink.LinkSetUp)
	gatewaytest.Await(t, n, "serving")
	if got := w.Answers(t); !slices.Equal(got, []string{poolAddr.String()}) {
		t.Errorf("after a device that was down it answers for %v", got)
	}
}
