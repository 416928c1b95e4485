// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"fmt"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/port"
)

// serviceRoot is the part of the system's BPF file system that is the service's own
// (dist/tmpfiles.d).
const serviceRoot = "/sys/fs/bpf/isthmus-service"

// Cleaned is what [Clean] has found, in words.
type Cleaned struct {
	// Removed were left by processes that are gone, InUse belong to living ones or to another
	// network namespace.
	Removed, InUse []string
}

// Clean removes what processes that did not come back have left in this network namespace, or
// in one that is gone: programs, tables and links of any instance, TUN devices, and files of
// peers, also those of their own that relays have. What a living process uses stays, and what
// a successor in another namespace may still take over.
func Clean(own ...string) (Cleaned, error) {
	var c Cleaned
	err := errors.Join(c.pins(), c.devices(), c.files(own))
	return c, err
}

func (c *Cleaned) files(own []string) error {
	namespace, _ := fastpath.NamespaceCookie() // 0 where the kernel does not say
	removed, inUse, err := kept.Clean("peers", config.RoleRelay, namespace, own...)
	c.Removed, c.InUse = append(c.Removed, removed...), append(c.InUse, inUse...)
	return err
}

func (c *Cleaned) pins() error {
	left, err := fastpath.Leftovers()
	inService, serviceErr := fastpath.LeftoversAt(serviceRoot)
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

func (c *Cleaned) devices() error {
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
