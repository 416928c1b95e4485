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
[[server]]
address = "192.0.2.1"
secondary = "192.0.2.2"
[[relay]]
bind = "192.0.2.1:4000"
[[nat64]]
name = "one"
interface = "one"
clients = ["2001:db8:1::/48"]
pool6 = ["2001:db8:64::/96"]
pool4 = ["192.0.2.10", "192.0.2.10 tcp 80"]
[[nat64]]
name = "two"
interface = "two"
clients = ["2001:db8:1::/48"]
pool6 = ["2001:db8:65::/96"]
pool4 = ["192.0.2.11"]
[[siit]]
pool6 = ["2001:db8:66::/96"]
pool4 = ["198.51.100.0/24"]
[[echo]]
port = 7
`
	c, err := Parse(strings.NewReader(file), "test.toml", echoSection)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(c.Beside("one"))
	for _, want := range []string{
		"2001:db8:65::/96", "192.0.2.11/32", "2001:db8:66::/96", "198.51.100.0/24", "2001::/32",
		"192.0.2.1:9100", "192.0.2.1:3544", "192.0.2.2:3544", "192.0.2.1:4000", "0.0.0.0:7",
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
