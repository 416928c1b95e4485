// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package report

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// verdict is a test that only notes what became of it.
type verdict struct {
	testing.TB
	failed, skipped bool
}

func (*verdict) Helper()                 {}
func (v *verdict) Fatalf(string, ...any) { v.failed = true }
func (v *verdict) Skip(...any)           { v.skipped = true }

func TestMissingBrowser(t *testing.T) {
	for _, c := range []struct {
		name            string
		files           []string
		require         string
		failed, skipped bool
	}{
		{name: "there", files: []string{"stamp", browserProgram}, require: "1"},
		{name: "not fetched", skipped: true},
		{name: "not fetched, nothing may be skipped", require: "1", failed: true},
		{name: "interrupted, nothing may be skipped", files: []string{"bin/other"}, require: "1", failed: true},
		{name: "not carried by the release", files: []string{"stamp"}, require: "1", skipped: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(testutil.RequireRootEnv, c.require)
			folder := t.TempDir()
			for _, name := range c.files {
				path := filepath.Join(folder, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, nil, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			var v verdict
			found := findBrowser(&v, folder)
			if v.failed != c.failed || v.skipped != c.skipped {
				t.Errorf("failed %v, skipped %v; want %v, %v", v.failed, v.skipped, c.failed, c.skipped)
			}
			if (found != "") != (!c.failed && !c.skipped) {
				t.Errorf("found %q", found)
			}
		})
	}
}
