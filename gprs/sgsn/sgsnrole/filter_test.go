// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestFilterText reads filters, and writes them so that they are read alike, also behind a
// template.
func TestFilterText(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"protocol=udp,remote-port=5060-5061", "precedence=96,direction=both,protocol=17,remote-port=5060-5061"},
		{"precedence=7,direction=up,remote=192.0.2.9/24", "precedence=7,direction=up,remote=192.0.2.0/24"},
		{"local=2001:db8::1,protocol=58,direction=down", "precedence=96,direction=down,protocol=58,local=2001:db8::1/128"},
		{"remote=2001:db8::/32,local-port=80,protocol=6", "precedence=96,direction=both,protocol=6,remote=2001:db8::/32,local-port=80"},
		{"protocol=esp,spi=0x1234", "precedence=96,direction=both,protocol=50,spi=0x1234"},
		{"class=0xb8/0xfc", "precedence=96,direction=both,class=0xb8/0xfc"},
		{"class=46", "precedence=96,direction=both,class=0x2e/0xff"},
		{"flow=0xfffff", "precedence=96,direction=both,flow=0xfffff"},
	} {
		b, err := template([]string{row.text}, 6)
		if err != nil {
			t.Errorf("%s: %v", row.text, err)
			continue
		}
		tft, _, ok := gtp.ParseTFT(b)
		if !ok || len(tft.Filters) != 1 || filterText(&tft.Filters[0]) != row.want {
			t.Errorf("%s: %s", row.text, filterText(&tft.Filters[0]))
		}
		if again, _, err := packetFilter(row.want); err != nil || filterText(&again) != row.want {
			t.Errorf("%s is read as %s: %v", row.want, filterText(&again), err)
		}
	}
}

// TestFilterFaults names what is wrong.
func TestFilterFaults(t *testing.T) {
	for text, want := range map[string]string{
		"":                          `"" is nothing that filters look at`,
		"direction=up":              "looks at nothing",
		"protocol=udp,protocol=tcp": "says twice",
		"protocol=quic":             `"quic" is no number from 0 to 255`,
		"remote=example.com":        "neither an address nor a prefix",
		"remote=fe80::1%eth0":       "neither an address nor a prefix",
		"remote-port=90-80":         "go down",
		"remote-port=65536":         "from 0 to 65535",
		"flow=0x100000":             "from 0 to 1048575",
		"direction=unspecified":     "write up, down or both",
		"direction=":                "write up, down or both",
		"class=1/x":                 `"x" is no number`,
		"remote=192.0.2.0/24,local=2001:db8::/128": "two families",
	} {
		if _, err := template([]string{text}, 6); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := template(make16("protocol=udp"), 6); err == nil {
		t.Error("sixteen filters were taken")
	}
}

// make16 is one filter, sixteen times.
func make16(filter string) (list []string) {
	for range 16 {
		list = append(list, filter)
	}
	return list
}
