// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestIsRestored removes what the translator has set up, and the host keeps its address in
// the network.
func TestIsRestored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startCLAT(t)
	before := w.await(t, "serving")
	works := func(t *testing.T) {
		if st := w.await(t, "serving"); st.Address6 != before.Address6 {
			t.Errorf("another address: %s, before %s", st.Address6, before.Address6)
		}
		w.transfer(t, 1<<10)
	}
	w.host.Removes(t, before.Interface, works)
	w.host.RemovesDevice(t, before.Interface, works)
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	if left := w.left(t); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestDeviceDown leaves a device that someone sets down to him, and says so.
func TestDeviceDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startCLAT(t)
	name := w.await(t, "serving").Interface
	set := func(f func(netlink.Link) error) {
		w.host.Do(t, func() error {
			l, err := netlink.LinkByName(name)
			return errors.Join(err, f(l))
		})
	}
	set(netlink.LinkSetDown)
	w.await(t, "device_down")
	set(netlink.LinkSetUp)
	w.await(t, "serving")
	w.transfer(t, 1<<10)
}
