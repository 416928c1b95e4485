// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
)

// Devices of which something is to be said are not spoken of again whenever one of them
// goes down and up.
func TestDevicesAreToldOnce(t *testing.T) {
	s := newSpan(t)
	service, notify := program.NewManager(t)
	p := program.Start(t, s.relay, notify, "run", "-c", program.File(t, "[[teredo_relay]]\nmode = \"host\"\n[control]\nsocket = \"\"\n"))
	service.Expect(t, "READY=1", p)
	const told, changed = "packets that leave by a device go to the engine", "the devices of the fast path have changed"
	p.AwaitLog(t, "the fast path is attached")
	if !strings.Contains(p.Log(), told) {
		t.Fatalf("nothing to tell of:\n%s", p.Log())
	}
	before := strings.Count(p.Log(), told)
	for n, set := range []func(netlink.Link) error{netlink.LinkSetDown, netlink.LinkSetUp, netlink.LinkSetDown, netlink.LinkSetUp} {
		s.relay.Do(t, func() error {
			link, err := netlink.LinkByName("v6")
			if err != nil {
				return err
			}
			return set(link)
		})
		for end := time.Now().Add(testutil.Patience); strings.Count(p.Log(), changed) <= n; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("change %d is not noticed:\n%s", n, p.Log())
			}
		}
	}
	if after := strings.Count(p.Log(), told); after != before {
		t.Errorf("told %d times, then %d:\n%s", before, after, p.Log())
	}
}
