// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// keepers are the roles that write a file for a successor. Its usual place is the machine's, where
// an operator's own instance may have the same name.
var keepers = []string{"ggsn", "nat64", "registrar", "sgsn", "teredo_relay"}

// sectionHead is the line that begins an instance of a role, not one of its parts.
var sectionHead = regexp.MustCompile(`(?m)^\[\[([a-z0-9_]+)\]\][ \t]*\n`)

// statesFile is the line by which a section says itself where its file is.
var statesFile = regexp.MustCompile(`(?m)^state_file\s*=`)

// keeping has each section that may keep state, and does not say where, keep it in the folder.
func (i instance) keeping(sections string) string {
	var text strings.Builder
	seen, end := map[string]int{}, 0
	heads := sectionHead.FindAllStringSubmatchIndex(sections, -1)
	for n, at := range heads {
		role, next := sections[at[2]:at[3]], len(sections)
		if n+1 < len(heads) {
			next = heads[n+1][0]
		}
		text.WriteString(sections[end:at[1]])
		end = at[1]
		if slices.Contains(keepers, role) && !statesFile.MatchString(sections[at[1]:next]) {
			seen[role]++
			fmt.Fprintf(&text, "state_file = %q\n", i.stateFile(role, seen[role]))
		}
	}
	return text.String() + sections[end:]
}

// stateFile is the file of the n-th instance of a role, which stays the same over a reload.
func (i instance) stateFile(role string, n int) string {
	return filepath.Join(i.dir, fmt.Sprintf("%s.%s-%d.state", i.name, role, n))
}
