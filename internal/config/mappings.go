// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/isthmus-net/isthmus/translate"
)

// maxMappings bounds a file of mappings: the IPv4 Internet has fewer routes.
const maxMappings = 1 << 20

// ReadMappings reads a file of explicit mappings: on each line an IPv4 and an IPv6
// prefix; empty lines and what follows a # mean nothing.
func ReadMappings(path string) ([]translate.Mapping, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the mappings: %w", err)
	}
	defer file.Close()
	var list []translate.Mapping
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		m, err := ParseMapping(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		if list = append(list, m); len(list) > maxMappings {
			return nil, fmt.Errorf("%s has more than %d mappings: name the right file", path, maxMappings)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	return list, nil
}
