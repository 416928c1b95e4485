// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-net/isthmus/internal/config/key"
)

// SectionOf declares the sections [[Name]], of each of which an instance is made whose
// settings are a C. Functions that a role does not need may be nil.
type SectionOf[C any] struct {
	// Name is that of the section, and of the role in status and metrics.
	Name string
	// Help says what an instance is, for the reference.
	Help string
	// Keys are bound to the fields of C. One is "name".
	Keys func(*C) []key.Key
	// Check makes the checks that take more than one key.
	Check func(*C, *Checker)
	// Claims are what the instance has of the host alone.
	Claims func(*C) []Claim
	// Secret reports whether the section itself holds secrets, so that no one else may
	// read the file.
	Secret func(*C) bool
	// Offers are values for other instances, distinguished by their types.
	Offers func(*C) []any
	// Take is called with all that is offered, and with the [Claims] of all other instances,
	// when every section has been read; see [Offered].
	Take func(*C, []any)
}

// Section is a [SectionOf] settings of any type.
type Section struct {
	Name, Help string

	make   func() any
	copy   func(settings any) any
	keys   func(settings any) []key.Key
	check  func(settings any, c *Checker)
	claims func(settings any) []Claim
	secret func(settings any) bool
	offers func(settings any) []any
	take   func(settings any, offered []any)
}

// Section forgets the type of the settings.
func (s SectionOf[C]) Section() Section {
	return Section{
		Name: s.Name, Help: s.Help,
		make: func() any { return new(C) },
		copy: func(settings any) any { c := *settings.(*C); return &c },
		keys: func(settings any) []key.Key { return s.Keys(settings.(*C)) },
		check: func(settings any, c *Checker) {
			if s.Check != nil {
				s.Check(settings.(*C), c)
			}
		},
		claims: func(settings any) []Claim { return list(s.Claims, settings) },
		secret: func(settings any) bool { return s.Secret != nil && s.Secret(settings.(*C)) },
		offers: func(settings any) []any { return list(s.Offers, settings) },
		take: func(settings any, offered []any) {
			if s.Take != nil {
				s.Take(settings.(*C), offered)
			}
		},
	}
}

// list calls a function of settings that may be nil.
func list[C, E any](f func(*C) []E, settings any) []E {
	if f == nil {
		return nil
	}
	return f(settings.(*C))
}

// Offered are those of all offers that have the type T.
func Offered[T any](offers []any) (found []T) {
	for _, o := range offers {
		if one, ok := o.(T); ok {
			found = append(found, one)
		}
	}
	return found
}

// Instance is one section of the file, of which an instance is made.
type Instance struct {
	// Section is how it was declared.
	Section Section
	// Name is unique over all instances.
	Name string
	// Settings point to the type that the section was declared with.
	Settings any
	// NeedsRestart are the keys that wait for a restart; see [Config.Reload].
	NeedsRestart []string

	path string // of the section in the file
	own  any    // the settings before others have offered anything; nil: the same
}

// Claims are what the instance has of the host alone.
func (i Instance) Claims() []Claim { return i.Section.claims(i.Settings) }

// HasSecrets reports whether the file itself holds secrets, so that no one else may read
// it.
func (c *Config) HasSecrets() bool {
	return slices.ContainsFunc(c.Instances, func(i Instance) bool { return i.Section.secret(i.Settings) })
}

// Find returns the declared instance of that section and name.
func (c *Config) Find(section, name string) (Instance, bool) {
	return find(c.Instances, func(i Instance) bool { return i.Section.Name == section && i.Name == name })
}

// InstanceSections are the headers of sections of which instances are made.
func InstanceSections(declared []Section) []string {
	var headers []string
	for _, s := range declared {
		headers = append(headers, "[["+s.Name+"]]")
	}
	return headers
}

// Reference is the section in full with every default, commented.
func (s Section) Reference() string { return s.text(key.Reference) }

// Smallest is the least that the section needs.
func (s Section) Smallest() string { return s.text(key.Smallest) }

func (s Section) text(write func(string, []key.Key) string) string {
	settings := s.make()
	keys := s.keys(settings)
	key.SetDefaults(keys)
	return key.Comment(s.Help) + "[[" + s.Name + "]]\n" + write(s.Name, keys)
}

// Keys are the keys of the section, bound to settings of their own.
func (s Section) Keys() []key.Key { return s.keys(s.make()) }

// Checker reports what is wrong with the keys of one section.
type Checker struct {
	c    *checker
	path string
}

// Fail reports a fault of a key, or, with an index behind it as in "upstreams[2]", of
// one element. Without a key it is one of the section.
func (c *Checker) Fail(key, problem, remedy string) { c.c.fail(c.at(key), problem, remedy) }

// OK reports whether the keys, and those of tables below them, have had no fault so far.
func (c *Checker) OK(keys ...string) bool {
	return len(c.c.failed) == 0 || !slices.ContainsFunc(keys, func(key string) bool { return c.Failed(key) || c.c.above[c.at(key)] })
}

// Failed reports whether a key, or an element of it as in "key[2]", had a fault itself.
func (c *Checker) Failed(key string) bool { return c.c.failed[c.at(key)] }

func (c *Checker) at(key string) string {
	switch "" {
	case key:
		return c.path
	case c.path:
		return key
	}
	return c.path + "." + key
}

// single reads the sections of which there is one.
func (c *checker) single(file map[string]any) {
	for _, s := range c.singles {
		table, _ := file[s.name].(map[string]any)
		key.Decode(s.keys, table, key.At(s.name, faults{c}))
		s.check(&Checker{c, s.name})
	}
}

// instances reads the sections of which instances are made.
func (c *checker) instances(file map[string]any) (instances []Instance) {
	for _, section := range c.sections {
		c.eachSection(section.Name, file, func(n int, table map[string]any) {
			instances = append(instances, c.instance(section, fmt.Sprintf("%s[%d]", section.Name, n), table))
		})
	}
	return instances
}

// eachSection calls a function with all sections of a name.
func (c *checker) eachSection(name string, file map[string]any, call func(n int, table map[string]any)) {
	tables, _ := file[name].([]any)
	c.headless(name, file[name])
	for n, raw := range tables {
		table, ok := raw.(map[string]any)
		if !ok {
			c.fail(fmt.Sprintf("%s[%d]", name, n), fmt.Sprintf("this is %s where a section is wanted", kindOf(raw)), "write [["+name+"]] on a line of its own and its keys below")
			continue
		}
		call(n, table)
	}
}

// headless finds what belongs to a section, such as one of its own, where none has begun.
func (c *checker) headless(section string, raw any) {
	table, _ := raw.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(table)) {
		path := section + "." + name
		if _, many := table[name].([]any); many {
			path += "[0]"
		}
		c.fail(path, "this belongs to a section that has not begun", "write [["+section+"]] with its keys above it")
	}
}

func (c *checker) instance(section Section, path string, table map[string]any) Instance {
	i := Instance{Section: section, Settings: section.make(), path: path}
	keys := section.keys(i.Settings)
	key.Decode(keys, table, key.At(path, faults{c}))
	for _, k := range keys {
		if k.Name == "name" {
			i.Name, _ = k.Value().(string)
		}
	}
	section.check(i.Settings, &Checker{c, path})
	return i
}

// share hands what instances offer to those that take it.
func (c *Config) share() {
	var offers []any
	for _, i := range c.Instances {
		offers = append(offers, i.Section.offers(i.Settings)...)
	}
	for at := range c.Instances {
		i := &c.Instances[at]
		i.own = i.Settings
		i.Settings = i.Section.copy(i.own)
		i.Section.take(i.Settings, append(slices.Clone(offers), c.beside(i.Name)))
	}
}

// faults is a checker as a [key.Reporter].
type faults struct{ c *checker }

// Wrong implements [key.Reporter].
func (f faults) Wrong(path string, one *key.Fault) { f.c.wrong(path, one) }

// Unknown implements [key.Reporter].
func (f faults) Unknown(path string, known []string) {
	name := path[strings.LastIndexByte(path, '.')+1:]
	remedy := "isthmus init reference lists the keys of this section"
	at, ok := f.c.doc.locate().keys[path]
	if nested := strings.Count(display(path), ".") > 1; nested {
		ok, remedy = false, "known ones are "+strings.Join(known, ", ")
	}
	if near := nearest(name, known); near != "" {
		remedy = fmt.Sprintf("did you mean %s?", near)
	}
	if !ok {
		at = f.c.doc.find(path)
	}
	f.c.mark(path)
	f.c.report(display(path), at, "there is no such key", remedy)
}
