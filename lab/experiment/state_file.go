// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/isthmus-net/isthmus/examples"
)

// sectionHead is the line that begins an instance of a role, not one of its parts.
var sectionHead = regexp.MustCompile(`(?m)^\[\[([a-z0-9_]+)\]\][ \t]*\n`)

// statesFile is the line by which a section says itself where its file is.
var statesFile = regexp.MustCompile(`(?m)^state_file\s*=`)

// keepsState reports whether instances of a role write a file for a successor: the reference, which
// has every key, says so.
func keepsState(role string) bool {
	reference, _ := examples.Read("reference")
	_, section, _ := strings.Cut(reference, "[["+role+"]]\n")
	if next := sectionHead.FindStringIndex(section); next != nil {
		section = section[:next[0]]
	}
	return statesFile.MatchString(section)
}

// keeping has each section that may keep state, and does not say where, keep it in the folder: its
// usual place is the machine's, where an operator's own instance may have the same name.
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
		if keepsState(role) && !statesFile.MatchString(sections[at[1]:next]) {
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
