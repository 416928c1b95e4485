// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// entry is a line of the list of roles, such as `	clatrole.Role,`.
var entry = regexp.MustCompile(`(?m)^\t(\w+)\.\w*Role,\n`)

// TestEachRoleCanLeave compiles the program without each of its roles in turn.
func TestEachRoleCanLeave(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles")
	}
	root := moduleRoot(t)
	list := filepath.Join(root, roleList)
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	lines := entry.FindAllStringSubmatch(string(text), -1)
	if len(lines) < 2 {
		t.Fatalf("%s has %d roles", roleList, len(lines))
	}
	for _, line := range lines {
		t.Run(strings.TrimSuffix(strings.TrimSpace(line[0]), ","), func(t *testing.T) {
			without := strings.Replace(string(text), line[0], "", 1)
			if !strings.Contains(without, "\t"+line[1]+".") {
				imported := regexp.MustCompile(`(?m)^\t(` + line[1] + ` )?"[^"]*/` + line[1] + `"\n|^\t` + line[1] + ` "[^"]*"\n`)
				without = imported.ReplaceAllString(without, "")
			}
			changed, overlay := filepath.Join(t.TempDir(), "roles.go"), filepath.Join(t.TempDir(), "overlay.json")
			replace, err := json.Marshal(map[string]map[string]string{"Replace": {list: changed}})
			if err != nil {
				t.Fatal(err)
			}
			for name, content := range map[string][]byte{changed: []byte(without), overlay: replace} {
				if err := os.WriteFile(name, content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			build := exec.Command("go", "list", "-export", "-overlay", overlay, "./cmd/isthmus")
			build.Dir = root
			if out, err := build.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
