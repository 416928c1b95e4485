// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package service runs a program as a unit of systemd would, without systemd: it reads
// the unit and gives a process the rights, the view of the file system and the filters
// of system calls that the directives name, as systemd 252 does. A directive that it
// does not know is an error, so that none is forgotten.
package service

import (
	"fmt"
	"os"
	"strings"
)

// Directive is one line of a unit.
type Directive struct{ Section, Key, Value string }

// Read reads the lines of a unit file, in their order.
func Read(path string) ([]Directive, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(path, string(text))
}

func parse(path, text string) (list []Directive, err error) {
	section := ""
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
			continue
		case line[0] == '[' && strings.HasSuffix(line, "]"):
			section = line[1 : len(line)-1]
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || section == "" || strings.HasSuffix(value, `\`) {
			return nil, fmt.Errorf("%s:%d: %q is no directive of a section, in one line", path, n+1, line)
		}
		list = append(list, Directive{section, strings.TrimSpace(key), strings.TrimSpace(value)})
	}
	return list, nil
}
