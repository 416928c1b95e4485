// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
)

// having is a daemon with one instance of a role.
type having struct {
	told
	role string
}

func (h having) Status() control.Status {
	return control.Status{Instances: []control.Instance{{Name: "one", Role: h.role}}}
}

// TestBesideAnother: a role in the foreground is taken for none of another isthmus, listens on
// a socket of its own beside that one's, and is found there.
func TestBesideAnother(t *testing.T) {
	const usual, own = "control.sock", "sgsn.sock"
	for _, tt := range []struct {
		name    string
		there   map[string]string // the role behind a socket
		named   string
		listen  string // where one of the foreground would
		ask     string // who is asked
		running bool
		wrong   bool
	}{
		{name: "nobody else", listen: usual, ask: usual},
		{name: "an SGSN at the usual socket", there: map[string]string{usual: "sgsn"}, listen: own, ask: usual, running: true},
		{name: "a GGSN at the usual socket", there: map[string]string{usual: "ggsn"}, listen: own, ask: usual},
		{name: "an SGSN beside a GGSN", there: map[string]string{usual: "ggsn", own: "sgsn"}, listen: own, ask: own, running: true},
		{name: "an SGSN that outlives a GGSN", there: map[string]string{own: "sgsn"}, listen: usual, ask: own, running: true},
		{name: "SGSNs at both", there: map[string]string{usual: "sgsn", own: "sgsn"}, listen: own, ask: usual, running: true},
		{name: "a GGSN at the socket that is named", there: map[string]string{"g": "ggsn", own: "sgsn"}, named: "g", listen: usual, ask: "g", wrong: true},
		{name: "an SGSN at the socket that is named", there: map[string]string{usual: "ggsn", "s": "sgsn"}, named: "s", listen: own, ask: "s", running: true},
		{name: "nobody at the socket that is named", there: map[string]string{usual: "sgsn"}, named: "n", listen: own, ask: "n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, before := t.TempDir(), standardSocket
			standardSocket = filepath.Join(dir, usual)
			t.Cleanup(func() { standardSocket = before })
			t.Setenv(control.SocketVariable, "")
			for socket, role := range tt.there {
				serveAt(t, filepath.Join(dir, socket), having{role: role})
			}
			var to role.To
			if tt.named != "" {
				to.Socket = filepath.Join(dir, tt.named)
			}
			settings, err := parseFlags("[[sgsn]]\nlocal = [\"192.0.2.7\"]")
			if err != nil {
				t.Fatal(err)
			}
			settings.Control.Socket = standardSocket
			if aside := stepAside(settings); filepath.Base(settings.Control.Socket) != tt.listen || aside != (tt.listen == own) {
				t.Errorf("it listens on %s, want %s", settings.Control.Socket, tt.listen)
			}
			a := asker{words: []string{"sgsn", "attach"}}
			if socket, err := a.socket(to); err != nil || filepath.Base(socket) != tt.ask {
				t.Errorf("asks %s, %v; want %s", socket, err, tt.ask)
			}
			if running, err := a.Running(to); running != tt.running || (err != nil) != tt.wrong {
				t.Errorf("running %v, %v; want %v", running, err, tt.running)
			}
		})
	}
	// Who names a file that lets nobody ask is told so.
	closed := program.File(t, "[control]\nsocket = \"\"\n")
	to := role.To{Connection: role.Connection{Config: &closed}}
	if _, err := (asker{words: []string{"sgsn"}}).Running(to); err == nil {
		t.Error("a file that switches the socket off was asked")
	}
}

// rows is a part of a list.
type rows struct {
	n    int
	from uint32
}

func (r rows) Write(w io.Writer)   { fmt.Fprintf(w, "%d rows\n", r.n) }
func (r rows) Next() (int, uint32) { return r.n, r.from }

// TestShowPart: whoever sees a part of a list is told that there is more.
func TestShowPart(t *testing.T) {
	for _, tt := range []struct {
		list rows
		want string
	}{
		{rows{100, 7}, "isthmus: these are the first 100; --limit 0 lists all\n"},
		{rows{100, 0}, ""},
	} {
		var out, errs strings.Builder
		if err := (asker{to: streams{&out, &errs}}).Show(role.To{}, tt.list); err != nil || errs.String() != tt.want {
			t.Errorf("%+v: %v, %q, want %q", tt.list, err, errs.String(), tt.want)
		}
	}
}
