// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gatewaytest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// XDPThatCarriesNothing has XDP demanded on veths whose far ends lose what is redirected
// into them: from the start, later, and no more. Packets pass all the time, and status and
// check say by what.
func (w *World) XDPThatCarriesNothing(t *testing.T, i role.Instance, fast *driver.Driver, plan func() driver.Forecast, passes func()) {
	t.Helper()
	napi := func(t *testing.T, ns *testutil.Netns, name string, on bool) {
		t.Helper()
		ns.Do(t, func() error { return testutil.ReceiveByNAPI(name, on) })
	}
	await := func(what string, ok func(driver.Status) bool) {
		t.Helper()
		for end := time.Now().Add(testutil.Patience); !ok(fast.Status()); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", what, fast.Status())
			}
		}
	}
	slow := func(s driver.Status, device string) bool {
		return slices.ContainsFunc(s.Devices, func(d driver.Device) bool {
			return d.Device == device && !d.Target && strings.Contains(strings.Join(d.Warnings, ""), "NAPI")
		})
	}
	napi(t, w.Six, "v6", false)
	napi(t, w.Four, "v4", false)
	w.Gateway.Do(t, func() error {
		if p := plan(); !slices.ContainsFunc(p.Warnings, func(s string) bool { return strings.Contains(s, "none of the devices sends") }) {
			t.Errorf("check says %+v", p)
		}
		return nil
	})
	w.Start(t, i)
	await("nothing can be redirected", func(s driver.Status) bool {
		return s.Path == driver.EnginePath && slow(s, "v4") && slow(s, "v6") && strings.Contains(s.Why, "none of the devices sends") && !s.Survives
	})
	passes()
	if s := fast.Status(); s.Packets["forward"] != nil {
		t.Errorf("the programs have forwarded %v", s.Packets)
	}

	napi(t, w.Six, "v6", true)
	napi(t, w.Four, "v4", true)
	await("all can be redirected", func(s driver.Status) bool {
		return s.Path == "xdp" && !slow(s, "v4") && !slow(s, "v6") && s.Survives == fast.Keeps()
	})
	passes()
	if s := fast.Status(); s.Packets["forward"] == nil {
		t.Errorf("the programs have forwarded nothing: %v", s.Packets)
	}

	napi(t, w.Four, "v4", false)
	await("what leaves by v4 is lost", func(s driver.Status) bool { return slow(s, "v4") && s.Path == "xdp" && !s.Survives })
	passes()
	napi(t, w.Six, "v6", false)
	await("all is lost", func(s driver.Status) bool { return s.Path == driver.EnginePath })
	passes()
}
