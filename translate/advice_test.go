// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"strings"
	"testing"
)

func TestAdvice(t *testing.T) {
	wkp, own := prefix(t, "64:ff9b::/96"), prefix(t, testNSP)
	mapped := table(t, node4, "2001:db8::33")
	tests := []struct {
		name string
		s    Settings
		want string // "" is none
	}{
		{"own prefix", Settings{Prefixes: []Prefix{own}, Pool4: prefixes("198.51.100.0/30")}, ""},
		{"private pool", Settings{Prefixes: []Prefix{own}, Pool4: prefixes("192.168.7.0/30")}, "RFC 6791 section 3.1"},
		{"shared address space as pool", Settings{Prefixes: []Prefix{own}, Pool4: prefixes("100.64.1.0/30")}, "RFC 6791 section 3.1"},
		{"well-known prefix alone", Settings{Prefixes: []Prefix{wkp}}, "should not be given out"},
		{"well-known prefix and mappings", Settings{Prefixes: []Prefix{wkp}, Mappings: mapped}, ""},
		{"well-known prefix and one's own", Settings{Prefixes: []Prefix{own, wkp}}, ""},
		{"non-global addresses", Settings{Prefixes: []Prefix{wkp}, Mappings: mapped, NonGlobal: true}, "forbids"},
		{"non-global addresses in one's own prefix", Settings{Prefixes: []Prefix{own}, NonGlobal: true}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := strings.Join(tt.s.Advice(), "\n")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("advice %q, want %q", got, tt.want)
			}
		})
	}
}
