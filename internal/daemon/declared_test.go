// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/role"
)

// toy are the settings of a role that the daemon has never heard of.
type toy struct {
	Name, Word string
	Port       int
	Heard      string // the words of all
}

// toyInstance takes another word while it runs, if it likes it.
type toyInstance struct {
	*fake
	settings toy
}

func (i *toyInstance) Prepare(s toy) (role.Change, error) {
	if s.Word == "bad" {
		return nil, errors.New("the word is bad: choose another")
	}
	return func() ([]string, error) {
		if s.Word == "late" {
			return nil, errBroken
		}
		i.settings = s
		return nil, nil
	}, nil
}

var toys = role.List{role.Of[toy]{
	Section: config.SectionOf[toy]{Name: "toy", Help: "A toy.", Keys: func(s *toy) []key.Key {
		return []key.Key{
			key.Of("name", &s.Name, "toy", key.InstanceName, key.Identity, "Its name."),
			key.Of("word", &s.Word, "one", key.InstanceName, key.Live, "What it says."),
			key.Of("port", &s.Port, 7, key.Count(1), key.Restart, "Where it says it."),
		}
	},
		Offers: func(s *toy) []any { return []any{s.Word} },
		Take:   func(s *toy, offered []any) { s.Heard = strings.Join(config.Offered[string](offered), " ") },
	},
	Summary: func(s *toy) string { return "says " + s.Word },
	Examine: func(s *toy) []role.Finding { return role.Problems(errors.Join(errors.New("a"), errors.New("b"))) },
	New: func(s toy, _ *slog.Logger) (role.Instance, error) {
		if s.Word == "bad" {
			return nil, errors.New("the word is bad: choose another")
		}
		return &toyInstance{newFake("toy", s.Name), s}, nil
	},
}.Role()}

func parseToys(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := toys.Parse(strings.NewReader(text), "isthmus.toml")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestDeclaredRole brings a role from its declaration to a running instance.
func TestDeclaredRole(t *testing.T) {
	c := parseToys(t, "[[toy]]\nword = \"two\"")
	instances, err := Build(toys, c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if got := instances[0].(*toyInstance).settings; got != (toy{"toy", "two", 7, "two"}) {
		t.Errorf("made of %+v", got)
	}
	if _, err := Build(toys, parseToys(t, "[[toy]]\nword = \"bad\""), slog.New(slog.DiscardHandler)); err == nil || err.Error() != "toy toy: the word is bad: choose another" {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff([]Finding{{Text: "a"}, {Text: "b"}}, toys.Examine(c.Instances[0])); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
	if got := toys.Summary(c.Instances[0]); got != "says two" {
		t.Errorf("summary %q", got)
	}
}

// TestDeclaredReload changes live keys of instances, all or none of them.
func TestDeclaredReload(t *testing.T) {
	start := "[[toy]]\n[[toy]]\nname = \"second\"\n"
	for _, tt := range []struct {
		name, text   string
		words        [2]string
		heard        string
		needsRestart []control.Pending
		err          string
	}{
		{"nothing", start, [2]string{"one", "one"}, "one one", nil, ""},
		{"a live key and one that waits", "[[toy]]\nword = \"two\"\nport = 8\n[[toy]]\nname = \"second\"", [2]string{"two", "one"}, "two one",
			[]control.Pending{{Section: "toy", Instance: "toy", Keys: []string{"port"}, Change: changed}}, ""},
		{"one that refuses, so that none changes", "[[toy]]\nword = \"two\"\n[[toy]]\nname = \"second\"\nword = \"bad\"", [2]string{"one", "one"}, "one one",
			nil, "toy second: the word is bad: choose another; nothing was changed"},
		{"one that went, and one that came and is not heard yet", "[[toy]]\nword = \"two\"\n[[toy]]\nname = \"third\"\nword = \"three\"", [2]string{"two", "one"}, "two one", []control.Pending{
			{Section: "toy", Instance: "second", Change: removed}, {Section: "toy", Instance: "third", Change: added}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := parseToys(t, start)
			instances, err := Build(toys, c, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			d := New(Options{Roles: toys, Config: c, Instances: instances, Log: slog.New(slog.DiscardHandler),
				Load: func() (*config.Config, error) { return parseToys(t, tt.text), nil }})
			reloaded, err := d.Reload()
			if errorText(err) != tt.err {
				t.Errorf("error %v, want %s", err, tt.err)
			}
			if diff := cmp.Diff(append([]control.Pending{}, tt.needsRestart...), reloaded.NeedsRestart); diff != "" {
				t.Errorf("needs a restart (-want +got):\n%s", diff)
			}
			if got := instances[0].(*toyInstance).settings.Heard; got != tt.heard {
				t.Errorf("the first heard %q, want %q", got, tt.heard)
			}
			for i, want := range tt.words {
				if got := instances[i].(*toyInstance).settings; got.Word != want || got.Port != 7 {
					t.Errorf("instance %d has %+v, want the word %s", i, got, want)
				}
			}
		})
	}
}
