// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import "github.com/isthmus-net/isthmus/internal/config/key"

// Reload returns what runs once a reload from c to next is done. These are the instances of made, which are
// as they were begun, in their order: with the live keys of next, or, if that has them no more, as they are
// in c, for they run until the restart. What is new in next does not run yet. So instances get only what
// is offered, and claimed, by those that run.
func (c *Config) Reload(made, next *Config) *Config {
	after := &Config{Announce: c.Announce, Control: c.Control, Metrics: c.Metrics, Log: c.Log}
	for n, was := range made.Instances {
		i := c.Instances[n]
		if to, there := next.Find(was.Section.Name, was.Name); there {
			i = i.reload(was, to)
		}
		i.Settings = i.read()
		after.Instances = append(after.Instances, i)
	}
	after.share()
	return after
}

// reload returns an instance that was begun as made with the live keys of next. If these do not fit what waits
// for the restart, such as a part that must not be more than the whole, all of them wait.
func (i Instance) reload(made, next Instance) Instance {
	now := i.read()
	i.Settings, i.own, i.path = i.Section.make(), nil, next.path
	i.NeedsRestart = key.Merge(i.Section.keys(i.Settings), i.Section.keys(made.read()), i.Section.keys(next.read()))
	c := newChecker("", nil, nil)
	if i.Section.check(i.Settings, &Checker{c, i.path}); len(i.NeedsRestart) > 0 && len(c.errs) > 0 {
		i.Settings, i.NeedsRestart = now, key.Changed(i.Section.keys(made.read()), i.Section.keys(next.read()))
	}
	return i
}

// read are the settings without what others have offered.
func (i Instance) read() any {
	if i.own != nil {
		return i.own
	}
	return i.Settings
}
