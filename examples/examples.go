// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package examples holds the example configurations, so that `isthmus init`
// prints the same files that lie here for reading.
package examples

import (
	"embed"
	"strings"
)

//go:embed *.toml
var files embed.FS

// Read returns the example of that name, such as "teredo_client"; false if there is
// none.
func Read(name string) (string, bool) {
	text, err := files.ReadFile(name + ".toml")
	return string(text), err == nil
}

// Names lists the examples.
func Names() (names []string) {
	entries, _ := files.ReadDir(".") // embedded, so it is there
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".toml"))
	}
	return names
}
