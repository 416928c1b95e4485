// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"log/slog"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/teredo/run"
)

// Build makes the instances of a configuration, each with a logger that names
// it. Nothing of the machine is changed before they run.
func Build(c *config.Config, log *slog.Logger) ([]role.Instance, error) {
	var instances []role.Instance
	for _, s := range c.Servers {
		instance, err := run.NewServer(s, named(log, config.RoleServer, s.Name))
		if err != nil {
			return nil, unbuilt(config.RoleServer, s.Name, err)
		}
		instances = append(instances, instance)
	}
	for _, r := range c.Relays {
		instance, err := run.NewRelay(r, named(log, config.RoleRelay, r.Name))
		if err != nil {
			return nil, unbuilt(config.RoleRelay, r.Name, err)
		}
		instances = append(instances, instance)
	}
	return instances, nil
}

func named(log *slog.Logger, role, name string) *slog.Logger {
	return log.With("role", role, "instance", name)
}

func unbuilt(role, name string, err error) error {
	return fmt.Errorf("%s %s: %w", role, name, err)
}
