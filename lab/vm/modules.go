// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// unpackers are the programs that unpack modules, by the ending of the file.
var unpackers = map[string]string{".ko": "", ".ko.xz": "xz", ".ko.zst": "zstd", ".ko.gz": "gzip"}

// moduleSet is the modules of a kernel by name, with underscores.
type moduleSet map[string]string

// findModules looks for modules below a folder.
func findModules(dir string) (moduleSet, error) {
	set := moduleSet{}
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		for ending := range unpackers {
			if name, ok := strings.CutSuffix(entry.Name(), ending); ok {
				set[plainName(name)] = file
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("the kernel's modules cannot be read: %w", err)
	}
	return set, nil
}

// plainName is the one of several spellings that the kernel uses.
func plainName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// read unpacks one module and reports which others it needs.
func (s moduleSet) read(name string) (content []byte, needs []string, err error) {
	file := s[name]
	for ending, program := range unpackers {
		if !strings.HasSuffix(file, ending) {
			continue
		}
		if program == "" {
			content, err = os.ReadFile(file)
		} else {
			content, err = exec.Command(program, "-dc", file).Output()
		}
	}
	if err == nil {
		needs, err = dependencies(content)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the module %s cannot be read: %w", file, err)
	}
	return content, needs, nil
}

// loadable is a module to load.
type loadable struct {
	name    string
	content []byte
}

// order lists those modules that the kernel has, each behind what it needs.
func order(set moduleSet, names []string, read func(string) ([]byte, []string, error)) ([]loadable, error) {
	var list []loadable
	seen := map[string]bool{}
	var add func(string) error
	add = func(name string) error {
		if _, known := set[name]; !known || seen[name] {
			return nil
		}
		seen[name] = true
		content, needs, err := read(name)
		if err != nil {
			return err
		}
		for _, n := range needs {
			if err := add(n); err != nil {
				return err
			}
		}
		list = append(list, loadable{name, content})
		return nil
	}
	for _, name := range names {
		if err := add(plainName(name)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// dependencies reads the section .modinfo of a module.
func dependencies(module []byte) ([]string, error) {
	object, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	section := object.Section(".modinfo")
	if section == nil {
		return nil, errors.New("it has no section .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	return needed(info), nil
}

// needed are the other modules that .modinfo names: it holds strings KEY=VALUE,
// each ended by a zero byte.
func needed(info []byte) []string {
	var names []string
	for entry := range bytes.SplitSeq(info, []byte{0}) {
		key, value, _ := strings.Cut(string(entry), "=")
		if key == "depends" && value != "" {
			for name := range strings.SplitSeq(value, ",") {
				names = append(names, plainName(name))
			}
		}
	}
	slices.Sort(names)
	return names
}
