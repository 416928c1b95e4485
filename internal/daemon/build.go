// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/teredo/run"
	translator "github.com/isthmus-net/isthmus/translate/run"
)

// Build makes the instances of a configuration that the roles have parsed, each with a
// logger that names it. Nothing of the machine is changed before they run.
func Build(roles role.List, c *config.Config, log *slog.Logger) ([]role.Instance, error) {
	b := builder{log: log}
	for _, s := range c.Servers {
		add(&b, config.RoleServer, s.Name, s, run.NewServer)
	}
	for _, r := range c.Relays {
		add(&b, config.RoleRelay, r.Name, r, run.NewRelay)
	}
	for _, r := range c.Clients {
		if len(r.Interfaces) > 0 {
			add(&b, config.RoleClient, r.Name, r, run.NewHandover)
		} else {
			add(&b, config.RoleClient, r.Name, r, run.NewClient)
		}
	}
	for _, n := range c.NAT64s {
		add(&b, config.RoleNAT64, n.Name, n, func(n config.NAT64, log *slog.Logger) (*translator.NAT64, error) {
			return translator.NewNAT64Beside(n, c.Beside(n.Name), log)
		})
	}
	for _, s := range c.SIITs {
		add(&b, config.RoleSIIT, s.Name, s, translator.NewSIIT)
	}
	for _, i := range c.Instances {
		add(&b, i.Section.Name, i.Name, i, roles.New)
	}
	connect(b.built)
	return b.built, errors.Join(b.failed...)
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

// builder collects instances, and the errors of those that could not be made.
type builder struct {
	log    *slog.Logger
	built  []role.Instance
	failed []error
}

// add makes one instance of a section by its constructor.
func add[Section any, Made role.Instance](b *builder, role, name string, section Section, construct func(Section, *slog.Logger) (Made, error)) {
	made, err := construct(section, b.log.With("role", role, "instance", name))
	if err != nil {
		b.failed = append(b.failed, fmt.Errorf("%s %s: %w", role, name, err))
		return
	}
	b.built = append(b.built, made)
}
