// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/role"
)

// Build makes the instances of a configuration that the roles have parsed, each with a
// logger that names it. Nothing of the machine is changed before they run.
func Build(roles role.List, c *config.Config, log *slog.Logger) ([]role.Instance, error) {
	var built []role.Instance
	var failed []error
	for _, i := range c.Instances {
		made, err := roles.New(i, log.With("role", i.Section.Name, "instance", i.Name))
		if err != nil {
			failed = append(failed, fmt.Errorf("%s %s: %w", i.Section.Name, i.Name, err))
			continue
		}
		built = append(built, made)
	}
	connect(built)
	return built, errors.Join(failed...)
}

// connect tells those who follow the host's address of its changes.
func connect(instances []role.Instance) {
	for _, from := range instances {
		source, ok := from.(role.AddressSource)
		if !ok {
			continue
		}
		for _, to := range instances {
			if follower, ok := to.(role.AddressFollower); ok {
				source.OnAddressChange(follower.AddressChanged)
			}
		}
	}
}
