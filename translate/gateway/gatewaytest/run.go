// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gatewaytest

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// stateOf is the state of a translator, with what it says is missing.
func stateOf(t *testing.T, i role.Instance) (state string, missing []string) {
	t.Helper()
	var status struct {
		State   string   `json:"state"`
		Missing []string `json:"missing"`
	}
	text, err := json.Marshal(i.Status())
	if err := errors.Join(err, json.Unmarshal(text, &status)); err != nil {
		t.Fatal(err)
	}
	return status.State, status.Missing
}

// Await waits for a state, and returns what is missing then.
func Await(t *testing.T, i role.Instance, want string) []string {
	t.Helper()
	for end := time.Now().Add(testutil.Patience); ; time.Sleep(time.Millisecond) {
		state, missing := stateOf(t, i)
		if state == want {
			return missing
		}
		if time.Now().After(end) {
			t.Fatalf("the state is %s, want %s; missing: %q", state, want, missing)
		}
	}
}

// Modes are the ways that packets can take.
var Modes = []fastpath.Mode{fastpath.ModeOff, fastpath.ModeTC, fastpath.ModeXDP}

// Hooks are those by programs.
var Hooks = Modes[1:]

// PathOfMode is the word for the way that a mode means.
func PathOfMode(mode fastpath.Mode) string {
	if mode == fastpath.ModeOff {
		return "engine"
	}
	return string(mode)
}
