// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath/pinned"
)

// explain puts into words why the kernel did not attach a program.
func explain(s pinned.Spot, d *device, err error) error {
	for _, c := range refusals {
		if errors.Is(err, c.err) && (c.place == "" || c.place == s.Place) {
			return fmt.Errorf("%s: %w", c.words(d), err)
		}
	}
	return fmt.Errorf("cannot attach the fast path to %s: %w", d.name, err)
}

var refusals = []struct {
	err   error
	place string // every, if empty
	words func(*device) string
}{
	{unix.EPERM, "", func(d *device) string {
		return fmt.Sprintf("this process may not attach programs to %s: give it CAP_NET_ADMIN and CAP_BPF", d.name)
	}},
	{unix.ENODEV, "", func(d *device) string {
		return fmt.Sprintf("the device %s is gone", d.name)
	}},
	{unix.ENOENT, pinned.PlaceIngress, noClassic},
	{unix.ENOENT, pinned.PlaceEgress, noClassic},
	{unix.EBUSY, pinned.PlaceXDP, func(d *device) string {
		if d.xdp != nil {
			return d.refusesXDP().Error()
		}
		return fmt.Sprintf("%s has another XDP program: detach that one first, or set fast_path to tc", d.name)
	}},
	{unix.EOPNOTSUPP, pinned.PlaceXDP, func(d *device) string {
		return fmt.Sprintf("%s cannot run native XDP, because %s has none: set fast_path to auto or tc", d.name, d.driverInWords())
	}},
	{unix.ERANGE, pinned.PlaceXDP, mtuInWords},
	{unix.E2BIG, pinned.PlaceXDP, mtuInWords},
	{unix.ENOSPC, pinned.PlaceXDP, func(d *device) string {
		return fmt.Sprintf("%s %s", d.name, d.tooFewQueues())
	}},
	{unix.ENOTCONN, pinned.PlaceXDP, func(d *device) string {
		return fmt.Sprintf("the far end of %s is gone: make the pair again", d.name)
	}},
	{unix.EINVAL, pinned.PlaceXDP, func(d *device) string {
		if d.mtu > maxNativeMTU {
			return mtuInWords(d)
		}
		return fmt.Sprintf("the driver of %s refuses the XDP program in its present settings: see what the kernel logged, or set fast_path to tc", d.name)
	}},
}

func noClassic(*device) string {
	return "the kernel has neither links for tc programs nor clsact with its filters: load the modules sch_ingress and cls_bpf, or set fast_path to xdp"
}

func mtuInWords(d *device) string {
	if d.far != nil && d.far.known && d.far.mtu > maxNativeMTU {
		return fmt.Sprintf("%s takes no XDP program while the MTU of %s is %d: lower it to %d or less, or set fast_path to tc",
			d.name, d.far, d.far.mtu, maxNativeMTU)
	}
	if d.mtu > maxNativeMTU {
		return fmt.Sprintf("%s takes no XDP program with an MTU of %d: lower it to %d or less, on a veth on both ends, or set fast_path to tc",
			d.name, d.mtu, maxNativeMTU)
	}
	return fmt.Sprintf("%s takes no XDP program with its MTU, or that of its far end: lower it, or set fast_path to tc", d.name)
}
