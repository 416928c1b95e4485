// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/role"
)

// TestPick: a question goes to the instance of its name, or to the only one of its role.
func TestPick(t *testing.T) {
	d := &Daemon{Options: Options{Instances: []role.Instance{&fake{name: "a", role: "one"}, &fake{name: "b", role: "two"}, &fake{name: "c", role: "two"}}}}
	for _, tt := range []struct{ role, instance, picked, err string }{
		{role: "one", picked: "a"},
		{role: "two", instance: "c", picked: "c"},
		{role: "two", err: "there are several of the role two"},
		{role: "two", instance: "a", err: `no two is named "a"`},
		{role: "three", err: "no three is running"},
	} {
		i, err := d.pick(control.Question{Role: tt.role, Instance: tt.instance})
		switch {
		case tt.err == "" && (err != nil || i.Name() != tt.picked):
			t.Errorf("%+v: %v", tt, err)
		case tt.err != "" && (!errors.Is(err, control.ErrNoInstance) || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%+v: error %v", tt, err)
		}
	}
}

// TestOrderLogged: the log has an order with its arguments, and none of its secrets.
func TestOrderLogged(t *testing.T) {
	type arguments struct {
		User     string `json:"user"`
		Password string `json:"password" secret:""`
	}
	var log bytes.Buffer
	got := ""
	doors := role.Of[struct{}]{
		Section: config.SectionOf[struct{}]{Name: "door"},
		Questions: []role.Question{role.Follow("enter", func(_ *fake, a arguments) (struct{}, error) {
			got = a.Password
			return struct{}{}, nil
		})},
	}.Role()
	d := &Daemon{Options: Options{
		Log: slog.New(slog.NewTextHandler(&log, nil)), Roles: role.List{doors}, Instances: []role.Instance{&fake{name: "a", role: "door"}},
	}}
	q := control.Question{Role: "door", What: "enter", Arguments: json.RawMessage(`{"user":"mig","password":"open"}`)}
	if _, err := d.Order(q); err != nil || got != "open" {
		t.Errorf("the order has the password %q, %v", got, err)
	}
	if text := log.String(); !strings.Contains(text, "mig") || strings.Contains(text, "open") {
		t.Errorf("the log has %s", text)
	}
}

// none is an answer that holds nothing.
type none struct{}

func (none) Nothing() string { return "there is no such door" }

// TestOrderOfNothing: an order that has found nothing to change does not stand in the log.
func TestOrderOfNothing(t *testing.T) {
	var log bytes.Buffer
	doors := role.Of[struct{}]{
		Section:   config.SectionOf[struct{}]{Name: "door"},
		Questions: []role.Question{role.Follow("shut", func(*fake, struct{}) (none, error) { return none{}, nil })},
	}.Role()
	d := &Daemon{Options: Options{
		Log: slog.New(slog.NewTextHandler(&log, nil)), Roles: role.List{doors}, Instances: []role.Instance{&fake{name: "a", role: "door"}},
	}}
	if _, err := d.Order(control.Question{Role: "door", What: "shut", Arguments: json.RawMessage(`{}`)}); err != nil || log.Len() > 0 {
		t.Errorf("%v, the log has %s", err, log.String())
	}
}
