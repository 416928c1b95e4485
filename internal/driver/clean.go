// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"

	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
)

// serviceRoot is the part of the system's BPF file system that is the service's own
// (dist/tmpfiles.d).
const serviceRoot = "/sys/fs/bpf/isthmus-service"

// Clean removes what processes that did not come back have left in this network namespace, or
// in one that is gone: programs, tables and links of any instance, and TUN devices. What a
// living process uses stays, and what a successor in another namespace may still take over.
func Clean() (c role.Cleaned, err error) {
	err = errors.Join(cleanPins(&c), cleanDevices(&c))
	return c, err
}

func cleanPins(c *role.Cleaned) error {
	left, err := pinned.Leftovers()
	inService, serviceErr := pinned.LeftoversAt(serviceRoot)
	errs := []error{err, serviceErr}
	for _, l := range append(left, inService...) {
		what := fmt.Sprintf("fast path of %s in %s", l.Instance, l.Dir)
		if l.Held {
			c.InUse = append(c.InUse, fmt.Sprintf("%s, by process %d", what, l.PID))
			continue
		}
		if l.Elsewhere() {
			c.InUse = append(c.InUse, what+", of another network namespace: clean there")
			continue
		}
		if err := l.Remove(); err != nil {
			errs = append(errs, err)
			continue
		}
		c.Removed = append(c.Removed, what)
	}
	return errors.Join(errs...)
}

func cleanDevices(c *role.Cleaned) error {
	host, err := port.OpenHost()
	if err != nil {
		return err
	}
	defer host.Abandon()
	names, err := host.LeftTUNs()
	errs := []error{err}
	for _, name := range names {
		removed, err := host.RemoveTUN(name)
		errs = append(errs, err)
		if removed {
			c.Removed = append(c.Removed, "TUN device "+name+" with its routes")
		}
	}
	return errors.Join(errs...)
}
