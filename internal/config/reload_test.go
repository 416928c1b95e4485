// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReload applies live keys and names the others, and hands over what those offer that run.
func TestReload(t *testing.T) {
	const one, two = "2001:db8:1::/48", "2001:db8:2::/48"
	running := func(prefix string) string { return "[[network]]\nname = \"a\"\nprefixes = [\"" + prefix + "\"]\n" }
	echoes := "[[echo]]\nport = 7\nwords = [\"one\"]\n"
	for _, tt := range []struct {
		name         string
		texts        []string // of the start, and of one reload behind the other
		words        []string
		prefixes     []string // that the echo has
		needsRestart []string
	}{
		{"a live key, and one that waits", []string{echoes, "[[echo]]\nport = 8\nwords = [\"two\"]"}, []string{"two"}, nil, []string{"port"}},
		{"a live key beside one that has come back", []string{echoes, "[[echo]]\nport = 8\nwords = [\"two\"]", echoes}, []string{"one"}, nil, nil},
		{"a live key that does not fit what waits", []string{"[[echo]]\nport = 1\nwords = [\"one\"]", "[[echo]]\nport = 2\nwords = [\"two\", \"three\"]"}, []string{"one"}, nil, []string{"port", "words"}},
		{"what another that runs offers now", []string{echoes + running(one), echoes + running(two)}, []string{"one"}, []string{two}, nil},
		{"nothing of what is new", []string{echoes + running(one), echoes + running(one) + "[[network]]\nname = \"b\"\nprefixes = [\"" + two + "\"]"}, []string{"one"}, []string{one}, nil},
		{"all of what is gone, as it runs", []string{echoes + running(one), echoes + running(two), echoes}, []string{"one"}, []string{two}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			made := parseEcho(t, tt.texts[0])
			now := made
			for _, text := range tt.texts[1:] {
				now = now.Reload(made, parseEcho(t, text))
			}
			i, _ := now.Find("echo", "echo")
			got := i.Settings.(*echo)
			var prefixes []netip.Prefix
			for _, p := range tt.prefixes {
				prefixes = append(prefixes, netip.MustParsePrefix(p))
			}
			port := made.Instances[0].Settings.(*echo).Port
			if diff := cmp.Diff(&echo{Name: "echo", Greeting: "echo", Port: port, Words: tt.words, Prefixes: prefixes}, got, same); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.needsRestart, i.NeedsRestart); diff != "" {
				t.Errorf("needs a restart (-want +got):\n%s", diff)
			}
		})
	}
}
