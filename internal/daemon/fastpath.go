// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-net/isthmus/internal/announce"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/role"
)

// ExamineFastPaths says which fast path each instance would get on this machine, in the order in
// which they start, and what packets would then not meet. It changes nothing.
func ExamineFastPaths(roles role.List, c *config.Config) (found []Finding) {
	var taken role.Seats
	for _, i := range c.Instances {
		before := len(taken.Taken())
		own := roles.FastPath(i, &taken)
		if others := tunnels(c, i.Name); len(taken.Taken()) > before && len(others) > 0 {
			own = append(own, Finding{Note: true, Text: fmt.Sprintf(
				"%s %q: packets that come or leave by devices of other instances, %s, would take the engine", i.Section.Name, i.Name, strings.Join(others, ", "))})
		}
		found = append(found, own...)
	}
	return found
}

// tunnels are the devices of all instances but the one of that name: they carry no frames that a
// program could take.
func tunnels(c *config.Config, name string) (list []string) {
	for _, i := range c.Instances {
		for _, claim := range i.Claims() {
			if device, ok := claim.(config.Device); ok && i.Name != name && !slices.Contains(list, device.Name) {
				list = append(list, device.Name)
			}
		}
	}
	return list
}

// Clean removes what processes that did not come back have left in this network namespace;
// with a configuration, also the files of its own that it names.
func Clean(roles role.List, c *config.Config) (all role.Cleaned, err error) {
	var configured []config.Instance
	socket := config.Default().Control.Socket
	if c != nil {
		configured, socket = c.Instances, c.Control.Socket
	}
	all, err = driver.Clean()
	more, roleErr := roles.Clean(configured)
	routes, routeErr := announce.Clean()
	all.Removed = append(append(all.Removed, more.Removed...), routes.Removed...)
	all.InUse = append(append(all.InUse, more.InUse...), routes.InUse...)
	left, socketErr := control.RemoveStale(socket)
	if left {
		all.Removed = append(all.Removed, "the control socket "+socket)
	}
	return all, errors.Join(err, roleErr, routeErr, socketErr)
}
