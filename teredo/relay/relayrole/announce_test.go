// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

func TestRelayChecksItself(t *testing.T) {
	r := newRig(t, ModeRelay)
	if err := roletest.CheckSelf(t, r.relayNS, r.relay, testutil.Patience); err != nil {
		t.Fatal(err)
	}
	r.relay.Collect(func(m role.Metric) {
		if m.Name == role.DroppedName && m.Value > 0 || m.Name == "peers" && m.Value > 0 {
			t.Errorf("the check left a trace: %s %s %v", m.Name, m.Reason, m.Value)
		}
	})

	hold, let := make(chan struct{}), make(chan struct{})
	go r.relay.loop.Do(func(time.Time, *packet.Batch) { close(hold); <-let })
	<-hold
	roletest.WantProblem(t, roletest.CheckSelf(t, r.relayNS, r.relay, teredotest.Vain), "did not come out of UDP")
	close(let)
	if err := roletest.CheckSelf(t, r.relayNS, r.relay, testutil.Patience); err != nil {
		t.Errorf("the engine goes on: %v", err)
	}

	r.relayNS.Do(t, func() error {
		link, err := netlink.LinkByName("teredo")
		if err != nil {
			return err
		}
		return netlink.RouteDel(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: &net.IPNet{IP: teredo.Prefix.Addr().AsSlice(), Mask: net.CIDRMask(32, 128)}})
	})
	if err := roletest.CheckSelf(t, r.relayNS, r.relay, teredotest.Vain); err == nil {
		t.Error("the route to the device is gone, and the check finds nothing")
	}
}

// TestRelayChecksItsDevice sets the device down, and up again.
func TestRelayChecksItsDevice(t *testing.T) {
	r := newRig(t, ModeRelay)
	set := func(change func(netlink.Link) error) {
		r.relayNS.Do(t, func() error {
			link, err := netlink.LinkByName("teredo")
			if err != nil {
				return err
			}
			return change(link)
		})
	}
	set(netlink.LinkSetDown)
	if err := roletest.CheckSelf(t, r.relayNS, r.relay, teredotest.Vain); err == nil {
		t.Error("the device is down, and the check finds nothing")
	}
	set(netlink.LinkSetUp)
	for deadline := time.Now().Add(testutil.Patience); ; {
		err := roletest.CheckSelf(t, r.relayNS, r.relay, teredotest.Vain)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
