// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package role

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/isthmus-net/isthmus/internal/config"
)

// Of is all that the program needs to know of a role whose settings are an S. A role
// exports one, made a [Role]. Functions that it does not need may be nil.
type Of[S any] struct {
	// Section is its section of the configuration.
	Section config.SectionOf[S]
	// Summary says in a few words what an instance will be.
	Summary func(*S) string
	// Headline is the key of the status that people read beside the state; empty: none.
	Headline string
	// Examine looks whether this machine can run an instance, and changes nothing.
	Examine func(*S) []Finding
	// Files looks at the files that keys name, be the instance running or not.
	Files func(*S) []Finding
	// Way looks whether packets pass through this machine to the instance and back, be it
	// running or not, and changes nothing. Links, routes and switches may come later.
	Way func(*S) []Finding
	// FastPath foretells the fast path that an instance would get beside those that have taken
	// their seats, takes its own, and changes nothing. Such an instance is ready when it has
	// taken them.
	FastPath func(*S, *Seats) []Finding
	// Clean removes what instances that did not come back have left in this network
	// namespace. It is told of those of a configuration, which may keep it elsewhere.
	Clean func(configured []*S) (Cleaned, error)
	// New makes an instance, and changes nothing on the machine either. The instance
	// may be a [Changer] of S.
	New func(S, *slog.Logger) (Instance, error)
	// Questions are what instances answer beyond their status, and orders that they follow.
	Questions []Question
	// Command asks them, or runs instances in the foreground, without a configuration file.
	Command Command
	// Tools are commands of other names, which need no instance.
	Tools []Command
}

// Command is the command line `isthmus NAME` of a role.
type Command struct {
	// Name is that of the role if it is empty.
	Name string
	Help string
	// Flags returns a pointer to a struct that describes the flags as kong does: with the
	// method Run(Foreground) error, or with an [Ask], [Order] or [Listing] for each question.
	// The context.Context that a Run may take ends by a signal. Nil: there is no such command.
	Flags func() any
}

// UsageError is an error that the command line has to be corrected for.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e UsageError) Unwrap() error { return e.Err }

// ErrReported ends a command that has failed, and whose output has said everything already.
var ErrReported = errors.New("the output says what has failed")

// Foreground runs the configuration of a text until a signal ends it.
type Foreground func(text string) error

// Changer is an Instance that can take other settings while it runs.
type Changer[S any] interface {
	Instance
	// Prepare returns what applies the settings, of which only live keys differ from
	// those in effect. It changes nothing itself, and refuses what could not be applied.
	Prepare(S) (Change, error)
}

// Change applies what was prepared. It returns the keys whose new values wait for a
// restart all the same. An error means that nothing was changed.
type Change func() (needsRestart []string, err error)

// Finding is something about this machine that stands in the way of a configuration.
type Finding struct {
	// Text is one sentence: what is wrong and what to do.
	Text string
	// Warning is a finding in spite of which isthmus starts.
	Warning bool
	// Note is no finding at all, but what the configuration means on this machine.
	Note bool
}

// Cleaned says in words what was removed, and what a living process uses.
type Cleaned struct{ Removed, InUse []string }

// Warnings are findings about the instance of a role and name.
func Warnings(role, name string, sentences []string) (found []Finding) {
	for _, s := range sentences {
		found = append(found, Finding{Warning: true, Text: fmt.Sprintf("%s %q: %s", role, name, s)})
	}
	return found
}

// Problems are findings of errors, each of those that were joined.
func Problems(err error) (found []Finding) {
	if err == nil {
		return nil
	}
	for text := range strings.SplitSeq(err.Error(), "\n") {
		found = append(found, Finding{Text: text})
	}
	return found
}

// Join lists values for people.
func Join[T fmt.Stringer](list []T) string {
	words := make([]string, len(list))
	for i, one := range list {
		words[i] = one.String()
	}
	return strings.Join(words, ", ")
}

// Role is an [Of] settings of any type.
type Role struct {
	config.Section
	Command  Command
	Tools    []Command
	Headline string

	questions []Question
	summary   func(settings any) string
	examine   func(settings any) []Finding
	files     func(settings any) []Finding
	way       func(settings any) []Finding
	fastPath  func(settings any, taken *Seats) []Finding // nil: it has none
	clean     func(configured []any) (Cleaned, error)
	make      func(settings any, log *slog.Logger) (Instance, error)
	prepare   func(i Instance, settings any) (Change, error)
}

// Role forgets the type of the settings.
func (r Of[S]) Role() Role {
	return Role{
		Section: r.Section.Section(), Command: r.Command, Tools: r.Tools, Headline: r.Headline, questions: r.Questions,
		summary: func(settings any) string { return r.Summary(settings.(*S)) },
		examine: findings(r.Examine), files: findings(r.Files), way: findings(r.Way), fastPath: r.seated(),
		clean: func(configured []any) (Cleaned, error) {
			if r.Clean == nil {
				return Cleaned{}, nil
			}
			typed := make([]*S, len(configured))
			for i, settings := range configured {
				typed[i] = settings.(*S)
			}
			return r.Clean(typed)
		},
		make: func(settings any, log *slog.Logger) (Instance, error) { return r.New(*settings.(*S), log) },
		prepare: func(i Instance, settings any) (Change, error) {
			changer, ok := i.(Changer[S])
			if !ok { // it has no live keys
				return func() ([]string, error) { return nil, nil }, nil
			}
			return changer.Prepare(*settings.(*S))
		},
	}
}

// findings forgets the type of the settings; look may be nil.
func findings[S any](look func(*S) []Finding) func(any) []Finding {
	return func(settings any) []Finding {
		if look == nil {
			return nil
		}
		return look(settings.(*S))
	}
}

// seated forgets the type of the settings of FastPath.
func (r Of[S]) seated() func(any, *Seats) []Finding {
	if r.FastPath == nil {
		return nil
	}
	return func(settings any, taken *Seats) []Finding { return r.FastPath(settings.(*S), taken) }
}

// List are roles that a program has.
type List []Role

// Parse reads a configuration with their sections; see [config.Parse].
func (l List) Parse(r io.Reader, name string) (*config.Config, error) {
	return config.Parse(r, name, l.Sections()...)
}

// Names are those of the roles.
func (l List) Names() []string {
	names := make([]string, len(l))
	for i, role := range l {
		names[i] = role.Name
	}
	return names
}

// Sections are those of the roles.
func (l List) Sections() []config.Section {
	sections := make([]config.Section, len(l))
	for i, role := range l {
		sections[i] = role.Section
	}
	return sections
}

// of is the role of an instance that Parse has read.
func (l List) of(i config.Instance) Role {
	for _, role := range l {
		if role.Name == i.Section.Name {
			return role
		}
	}
	panic("no role declares the section " + i.Section.Name)
}

// Headline is the key of the status that people read beside the state of instances of a
// role; empty: none.
func (l List) Headline(role string) string {
	for _, one := range l {
		if one.Name == role {
			return one.Headline
		}
	}
	return ""
}

// Summary says in a few words what an instance will be.
func (l List) Summary(i config.Instance) string { return l.of(i).summary(i.Settings) }

// Examine looks whether this machine can run an instance.
func (l List) Examine(i config.Instance) []Finding { return l.of(i).examine(i.Settings) }

// Files looks at the files that the keys of an instance name.
func (l List) Files(i config.Instance) []Finding { return l.of(i).files(i.Settings) }

// Way looks whether packets pass through this machine to an instance and back.
func (l List) Way(i config.Instance) []Finding { return l.of(i).way(i.Settings) }

// FastPath foretells the fast path that an instance would get beside those of others.
func (l List) FastPath(i config.Instance, taken *Seats) []Finding {
	if foretell := l.of(i).fastPath; foretell != nil {
		return foretell(i.Settings, taken)
	}
	return nil
}

// TakesSeats reports whether instances of a role may have a fast path.
func (l List) TakesSeats(name string) bool {
	return slices.ContainsFunc(l, func(one Role) bool { return one.Name == name && one.fastPath != nil })
}

// Clean removes what instances that did not come back have left in this network
// namespace; those configured may have left it in places of their own.
func (l List) Clean(configured []config.Instance) (all Cleaned, err error) {
	for _, role := range l {
		var own []any
		for _, i := range configured {
			if i.Section.Name == role.Name {
				own = append(own, i.Settings)
			}
		}
		one, failed := role.clean(own)
		all.Removed, all.InUse = append(all.Removed, one.Removed...), append(all.InUse, one.InUse...)
		err = errors.Join(err, failed)
	}
	return all, err
}

// New makes an instance.
func (l List) New(i config.Instance, log *slog.Logger) (Instance, error) {
	return l.of(i).make(i.Settings, log)
}

// Prepare prepares a running instance for a reload to what [config.Config.Reload] makes of it. What it
// returns names the keys that wait for a restart.
func (l List) Prepare(i Instance, to config.Instance) (Change, error) {
	change, err := l.of(to).prepare(i, to.Settings)
	if err != nil {
		return nil, err
	}
	return func() ([]string, error) {
		more, err := change()
		return append(slices.Clone(to.NeedsRestart), more...), err
	}, nil
}
