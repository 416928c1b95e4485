// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package key

import (
	"strings"
	"testing"
)

// TestSyntaxOfNames tries names of hosts, instances and interfaces at the ends of their syntax.
func TestSyntaxOfNames(t *testing.T) {
	long := func(n int) string { return strings.Repeat("a", n) }
	isInstance := func(s string) bool { _, f := InstanceName(s); return f == nil }
	isInterface := func(s string) bool { _, f := Interface(s); return f == nil }
	for _, names := range []struct {
		of        string
		is        func(string) bool
		good, bad []string
	}{
		{
			"a host", IsHostName,
			[]string{"a", "a.", "3com.example.net", "xn--bcher-kva.example", "A-b.c", long(63) + ".net", strings.Repeat("a.", 126) + "a"},
			[]string{"", ".", "a..b", "a..", "-a", "a-", "a-.b", "a_b", "b\u00fccher", "a b", "a\n", "a/b", long(64), strings.Repeat("a.", 127) + "a"},
		},
		{
			"an instance", isInstance,
			[]string{"a", "7", "north-1", "a._-b", long(32)},
			[]string{"", "North", "-a", "a-", ".a", "a.", "_a", "a_", "a b", "a\n", "\u00e9", long(33)},
		},
		{
			"an interface", isInterface,
			[]string{"a", "eth0.7", "Tun_-.", long(15)},
			[]string{"", "all", "default", "-a", ".a", "_a", "a:b", "a/b", "a b", "a\n", "\u00e9", long(16)},
		},
	} {
		for _, s := range names.good {
			if !names.is(s) {
				t.Errorf("%q is the name of %s", s, names.of)
			}
		}
		for _, s := range names.bad {
			if names.is(s) {
				t.Errorf("%q is not the name of %s", s, names.of)
			}
		}
	}
}
