// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import "strings"

// Names are as long as this at most (RFC 1035 section 2.3.4), and a terminal keeps so many.
const (
	longestName = 253
	maxDomains  = 8
)

// parseDomains reads a list of names, which are not compressed (RFC 8415 section 10, RFC 8106
// section 5.2). Those that are no names of hosts are passed over: they end in a file whose lines
// mean something.
func parseDomains(b []byte) (list []string, ok bool) {
	for len(b) > 0 {
		var labels []string
		for b[0] != 0 {
			n := int(b[0])
			if n > 63 || len(b) < n+2 {
				return nil, false
			}
			labels = append(labels, string(b[1:1+n]))
			b = b[1+n:]
		}
		b = b[1:]
		if name := strings.Join(labels, "."); len(list) < maxDomains && hostName(name) {
			list = append(list, name)
		}
	}
	return list, true
}

// hostName reports whether a name is of letters, digits, hyphens, underscores and dots.
func hostName(name string) bool {
	return name != "" && len(name) <= longestName && strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}
