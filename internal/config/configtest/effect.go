// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package configtest

import (
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/isthmus-net/isthmus/examples"
)

// InEffect says that the test sees what keys of a section do, in a packet, the kernel or
// the engine: it sets them to other values than their defaults, and would fail if they did
// nothing. Section and keys are written out in the call, where a test of the house finds
// them, which wants one for every key. A key of a table is named by the section of the
// tables, such as "server.key". It returns the keys, as a name for a row.
func InEffect(t testing.TB, section string, keys ...string) string {
	t.Helper()
	for _, k := range keys {
		if !Declared()[section+"."+k] {
			t.Fatalf("there is no key %s.%s", section, k)
		}
	}
	return strings.Join(keys, ", ")
}

// Declared has all keys of the reference, which are all that are declared, each with its
// section in front. The value is true.
var Declared = sync.OnceValue(func() map[string]bool {
	text, _ := examples.Read("reference") // embedded, so it is there
	var sections map[string]any
	if err := toml.Unmarshal([]byte(text), &sections); err != nil {
		panic(err)
	}
	declared := map[string]bool{}
	for name, section := range sections {
		declare(declared, name, section)
	}
	for _, comment := range entryComment.FindAllStringSubmatch(text, -1) {
		for _, k := range entryKey.FindAllStringSubmatch(comment[2], -1) {
			declared[comment[1]+"."+k[1]] = true
		}
	}
	return declared
})

// declare adds the keys of a section, and those of tables below it.
func declare(declared map[string]bool, name string, section any) {
	if list, many := section.([]any); many && len(list) > 0 {
		section = list[0]
	}
	keys, _ := section.(map[string]any)
	for k, value := range keys {
		declared[name+"."+k] = true
		declare(declared, name+"."+k, value)
	}
}

// The keys of an entry may be in the comment of the key that is a list of them.
var (
	entryComment = regexp.MustCompile(`(?m)\[\[(\w+\.\w+)\]\]((?:.*\n#)*.*)`)
	entryKey     = regexp.MustCompile(`(\w+) =[ \n]`)
)
