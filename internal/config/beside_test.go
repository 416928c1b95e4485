// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestBeside lists what all other instances have of the host.
func TestBeside(t *testing.T) {
	const file = `
[metrics]
listen = "192.0.2.1:9100"
[[network]]
name = "one"
prefixes = ["2001:db8:64::/96", "192.0.2.10/32"]
[[network]]
name = "two"
prefixes = ["2001:db8:65::/96", "192.0.2.11/32"]
[[echo]]
port = 7
`
	c, err := Parse(strings.NewReader(file), "test.toml", echoSection, networkSection)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(c.beside("one"))
	for _, want := range []string{
		"2001:db8:65::/96", "192.0.2.11/32", "192.0.2.1:9100", "0.0.0.0:7",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not among %s", want, got)
		}
	}
	for _, own := range []string{"2001:db8:64::/96", "192.0.2.10/32"} {
		if strings.Contains(got, own) {
			t.Errorf("%s of its own is among %s", own, got)
		}
	}
}
