// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/role"
)

// Words for what happened to a section.
const (
	changed = "changed"
	added   = "added"
	removed = "removed"
)

// Reload reads the configuration again. A faulty file changes nothing. What can
// be applied is applied without losing peers; the answer lists the rest.
func (d *Daemon) Reload() (control.Reloaded, error) {
	d.reload.Lock()
	defer d.reload.Unlock()
	if d.ready.Load() {
		d.notify(stateReloading)
		defer d.notify(stateReady)
	}
	reloaded, err := d.apply()
	if err != nil {
		d.Log.Error("reload failed", "error", err)
		return reloaded, err
	}
	d.Log.Info("reloaded", "file", d.Path)
	for _, pending := range reloaded.NeedsRestart {
		d.Log.Warn("needs a restart to take effect", "what", Describe(pending))
	}
	return reloaded, nil
}

func (d *Daemon) apply() (control.Reloaded, error) {
	none := control.Reloaded{NeedsRestart: []control.Pending{}}
	if d.Load == nil {
		return none, errors.New("this isthmus was started without a configuration file, so there is nothing to read again: restart it instead")
	}
	next, err := d.Load()
	if err != nil {
		return none, err
	}
	changes, err := d.prepare(next)
	if err != nil {
		return none, err
	}
	pending := none.NeedsRestart
	var failed []error
	for _, instance := range d.Instances {
		keys, there, err := d.reloadOne(instance, changes[instance], next)
		at := control.Pending{Section: instance.Role(), Instance: instance.Name(), Change: changed, Keys: keys}
		switch {
		case err != nil:
			failed = append(failed, fmt.Errorf("%s %s keeps its old settings: %w", instance.Role(), instance.Name(), err))
		case !there:
			at.Change = removed
			pending = append(pending, at)
		case len(keys) > 0:
			pending = append(pending, at)
		}
	}
	keys, err := d.reloadAnnounce(next)
	if err != nil {
		failed = append(failed, err)
	}
	if len(keys) > 0 {
		pending = append(pending, control.Pending{Section: "announce", Keys: keys, Change: changed})
	}
	pending = append(pending, d.newcomers(next)...)
	pending = append(pending, d.process(next)...)
	return control.Reloaded{NeedsRestart: pending}, errors.Join(failed...)
}

// prepare asks all instances whether they would refuse, before any changes. It returns
// the changes of those whose settings were declared.
func (d *Daemon) prepare(next *config.Config) (map[role.Instance]role.Change, error) {
	changes := map[role.Instance]role.Change{}
	var failed []error
	for _, instance := range d.Instances {
		var err error
		if made, settings, ok := d.declared(instance, next); ok {
			changes[instance], err = d.Roles.Prepare(instance, made, settings)
		} else if v, ok := instance.(role.Verifier); ok {
			err = v.Verify(next)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s %s: %w; nothing was changed", instance.Role(), instance.Name(), err))
		}
	}
	return changes, errors.Join(failed...)
}

// declared finds what an instance was made of, and the same in next.
func (d *Daemon) declared(instance role.Instance, next *config.Config) (made, settings config.Instance, ok bool) {
	made, known := d.running.Find(instance.Role(), instance.Name())
	settings, there := next.Find(instance.Role(), instance.Name())
	return made, settings, known && there
}

// reloadOne makes the change, or hands the configuration to an instance that can take
// it; of another it lists what changed since the start. There is false if the instance
// is no longer in the file.
func (d *Daemon) reloadOne(instance role.Instance, change role.Change, next *config.Config) (keys []string, there bool, err error) {
	if change != nil {
		keys, err = change()
		return keys, true, err
	}
	keys, there = differences(instance, &d.running, next)
	if !there {
		return nil, false, nil
	}
	reloader, ok := instance.(role.Reloader)
	if !ok {
		return keys, true, nil
	}
	keys, err = reloader.Reload(next)
	return keys, true, err
}

// differences lists the keys in which the sections of an instance differ.
func differences(instance role.Instance, running, next *config.Config) (keys []string, there bool) {
	name := instance.Name()
	switch instance.Role() {
	case config.RoleServer:
		return between(name, running.Server, next.Server)
	case config.RoleRelay:
		return between(name, running.Relay, next.Relay)
	case config.RoleClient:
		return between(name, running.Client, next.Client)
	case config.RoleNAT64:
		return between(name, running.NAT64, next.NAT64)
	case config.RoleSIIT:
		return between(name, running.SIIT, next.SIIT)
	}
	return nil, false
}

func between[T config.Server | config.Relay | config.Client | config.NAT64 | config.SIIT](name string, running, next func(string) (T, bool)) ([]string, bool) {
	before, _ := running(name)
	after, there := next(name)
	if !there {
		return nil, false
	}
	return config.Diff(before, after), true
}

// newcomers are instances of the file that are not running.
func (d *Daemon) newcomers(next *config.Config) []control.Pending {
	var pending []control.Pending
	look := func(section, name string) {
		known := slices.ContainsFunc(d.Instances, func(i role.Instance) bool {
			return i.Role() == section && i.Name() == name
		})
		if !known {
			pending = append(pending, control.Pending{Section: section, Instance: name, Change: added})
		}
	}
	for _, s := range next.Servers {
		look(config.RoleServer, s.Name)
	}
	for _, r := range next.Relays {
		look(config.RoleRelay, r.Name)
	}
	for _, c := range next.Clients {
		look(config.RoleClient, c.Name)
	}
	for _, n := range next.NAT64s {
		look(config.RoleNAT64, n.Name)
	}
	for _, s := range next.SIITs {
		look(config.RoleSIIT, s.Name)
	}
	for _, i := range next.Instances {
		look(i.Section.Name, i.Name)
	}
	return pending
}

// process applies the sections that belong to no instance.
func (d *Daemon) process(next *config.Config) []control.Pending {
	if d.Level != nil {
		d.Level.Set(next.Log.Level)
	}
	var pending []control.Pending
	look := func(section string, keys []string) {
		if len(keys) > 0 {
			pending = append(pending, control.Pending{Section: section, Keys: keys, Change: changed})
		}
	}
	_, keys := config.Reload(d.running.Control, next.Control)
	look("control", keys)
	_, keys = config.Reload(d.running.Metrics, next.Metrics)
	look("metrics", keys)
	_, keys = config.Reload(d.running.Log, next.Log)
	look("log", keys)
	return pending
}

// Describe says for people what waits for a restart.
func Describe(p control.Pending) string {
	name := strings.TrimSpace(p.Section + " " + p.Instance)
	if p.Change != changed {
		return name + " was " + p.Change
	}
	return name + ": " + strings.Join(p.Keys, ", ")
}
