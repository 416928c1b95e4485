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
	after := d.now.Reload(&d.made, next)
	changes, err := d.prepare(next, after)
	if err != nil {
		return none, err
	}
	pending := none.NeedsRestart
	var failed []error
	for n, instance := range d.Instances {
		at := control.Pending{Section: instance.Role(), Instance: instance.Name(), Change: changed}
		change, there := changes[instance]
		if !there {
			at.Change = removed
			pending = append(pending, at)
			continue
		}
		if at.Keys, err = change(); err != nil {
			after.Instances[n] = d.now.Instances[n]
			failed = append(failed, fmt.Errorf("%s %s keeps its old settings: %w", instance.Role(), instance.Name(), err))
		} else if len(at.Keys) > 0 {
			pending = append(pending, at)
		}
	}
	d.now = after
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

// prepare asks all instances of the file whether they would refuse, before any changes.
func (d *Daemon) prepare(next, after *config.Config) (map[role.Instance]role.Change, error) {
	changes := map[role.Instance]role.Change{}
	var failed []error
	for n, instance := range d.Instances {
		if _, there := next.Find(instance.Role(), instance.Name()); !there {
			continue
		}
		change, err := d.Roles.Prepare(instance, after.Instances[n])
		if err != nil {
			failed = append(failed, fmt.Errorf("%s %s: %w; nothing was changed", instance.Role(), instance.Name(), err))
		}
		changes[instance] = change
	}
	return changes, errors.Join(failed...)
}

// newcomers are instances of the file that are not running.
func (d *Daemon) newcomers(next *config.Config) (pending []control.Pending) {
	for _, i := range next.Instances {
		known := slices.ContainsFunc(d.Instances, func(running role.Instance) bool {
			return running.Role() == i.Section.Name && running.Name() == i.Name
		})
		if !known {
			pending = append(pending, control.Pending{Section: i.Section.Name, Instance: i.Name, Change: added})
		}
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
	_, keys := config.Reload(d.made.Control, next.Control)
	look("control", keys)
	_, keys = config.Reload(d.made.Metrics, next.Metrics)
	look("metrics", keys)
	_, keys = config.Reload(d.made.Log, next.Log)
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
