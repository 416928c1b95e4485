// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/role"
)

// ExamineFastPaths says which fast path each instance would get on this machine,
// and what packets would then not meet. It changes nothing.
func ExamineFastPaths(roles role.List, c *config.Config) (found []Finding) {
	for _, i := range c.Instances {
		found = append(found, roles.FastPath(i)...)
	}
	return found
}

// Clean removes what processes that did not come back have left in this network namespace;
// with a configuration, also the files of its own that it names.
func Clean(roles role.List, c *config.Config) (all role.Cleaned, err error) {
	var configured []config.Instance
	if c != nil {
		configured = c.Instances
	}
	all, err = driver.Clean()
	more, roleErr := roles.Clean(configured)
	return role.Cleaned{Removed: append(all.Removed, more.Removed...), InUse: append(all.InUse, more.InUse...)}, errors.Join(err, roleErr)
}
