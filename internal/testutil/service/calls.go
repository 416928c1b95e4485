// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package service

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed calls.txt
var callsText string

// sets are the members of each set of system calls.
var sets = readSets(callsText)

func readSets(text string) map[string][]string {
	read, set := map[string][]string{}, ""
	for line := range strings.Lines(text) {
		switch line[0] {
		case '#':
		case '@':
			set = strings.TrimSpace(line)
		default:
			read[set] = append(read[set], strings.Fields(line)...)
		}
	}
	return read
}

// members are the system calls of a set, or the one of that name.
func members(name string) ([]string, error) {
	if name[0] != '@' {
		if _, ok := number(name); !ok {
			return nil, fmt.Errorf("unknown system call %s", name)
		}
		return []string{name}, nil
	}
	direct, ok := sets[name]
	if !ok {
		return nil, fmt.Errorf("unknown set %s of system calls: it is missing in calls.txt", name)
	}
	var all []string
	for _, m := range direct {
		if m[0] != '@' {
			all = append(all, m) // most sets name some that other architectures have
			continue
		}
		more, err := members(m)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

// number is that of a system call on this architecture, if it has the call.
func number(call string) (n int, ok bool) {
	if n, ok = everywhere[call]; !ok {
		n, ok = here[call]
	}
	return n, ok
}

// filter adds to what is allowed, or with a tilde takes away from it. The first says
// whether it is a list of what is allowed, which has what every process needs.
func (s *Sandbox) filter(v string) error {
	v, away := strings.CutPrefix(v, "~")
	if s.Calls == nil {
		if away {
			return fmt.Errorf("what this does is known of lists of allowed calls alone")
		}
		v += " @default"
	}
	for _, name := range strings.Fields(v) {
		calls, err := members(name)
		if err != nil {
			return err
		}
		if away {
			s.Calls = slices.DeleteFunc(s.Calls, func(c string) bool { return slices.Contains(calls, c) })
		} else {
			s.Calls = append(s.Calls, calls...)
		}
	}
	return nil
}
