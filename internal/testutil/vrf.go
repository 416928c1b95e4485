// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// AddVRF makes a VRF that is up, and puts links into it. Where the kernel has no VRFs the test is
// skipped: lab/vm has one that does.
func (n *Netns) AddVRF(t testing.TB, name string, table uint32, links ...string) {
	t.Helper()
	missing := false
	n.Do(t, func() error {
		vrf := &netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Name: name}, Table: table}
		if err := netlink.LinkAdd(vrf); errors.Is(err, unix.EOPNOTSUPP) {
			missing = true
			return nil
		} else if err != nil {
			return err
		}
		for _, one := range links {
			l, err := netlink.LinkByName(one)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetMaster(l, vrf); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(vrf)
	})
	if missing {
		t.Skip("this kernel has no VRF")
	}
}
