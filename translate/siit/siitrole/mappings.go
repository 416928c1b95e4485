// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/keys"
)

// maxMappings bounds a file of mappings: the IPv4 Internet has fewer routes.
const maxMappings = 1 << 20

// readMappings reads a file of explicit mappings: on each line an IPv4 and an IPv6
// prefix; empty lines and what follows a # mean nothing.
func readMappings(path string) ([]translate.Mapping, error) {
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

// mapping parses the two sides of a mapping.
var mapping = key.Text("192.0.2.1 2001:db8::1", func(s string) (translate.Mapping, *key.Fault) {
	const example = "write it like 192.0.2.0/28 2001:db8:46::/124"
	words := strings.Fields(s)
	if len(words) != 2 {
		return translate.Mapping{}, key.Wrong(example, "%q is not an IPv4 prefix and an IPv6 prefix", s)
	}
	m, err := translate.ParseMapping(words[0], words[1])
	if err != nil {
		return m, key.Wrong(example, "%v", err)
	}
	if !keys.Forwarded4(m.IPv4) {
		return m, key.Wrong(example, "no packet is forwarded to %s", m.IPv4)
	}
	return m, nil
})

// ParseMapping reads a mapping as it stands in eam, for the command line.
func ParseMapping(s string) (translate.Mapping, error) {
	m, f := mapping(s)
	return m, f.Err()
}
