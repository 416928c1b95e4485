// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/config/key"
)

// web is a toy that listens on the TCP port of BGP.
type web struct {
	Name string
	At   netip.Addr
}

var webSection = SectionOf[web]{
	Name: "web", Help: "A toy.",
	Keys: func(w *web) []key.Key {
		return []key.Key{
			key.Of("name", &w.Name, "web", key.InstanceName, key.Identity, "Its name."),
			key.Of("at", &w.At, "2001:db8::1", key.Host, key.Restart, "Its address."),
		}
	},
	Claims: func(w *web) []Claim {
		return []Claim{Socket{Key: "at", Protocol: "TCP", At: netip.AddrPortFrom(w.At, bgpPort)}}
	},
}.Section()

// TestSpeakerSockets has the BGP speaker bind its addresses alone, if there is one.
func TestSpeakerSockets(t *testing.T) {
	const bgp = `
[announce]
method = "bgp"
local_as = 64512
router_id = "192.0.2.3"
listen = [%s]
[[announce.neighbor]]
address = "2001:db8::1"
as = 64513
[[network]]
prefixes = "2001:db8:64::/96"
`
	const announced = bgp + "announce = true\n"
	for _, tt := range []struct{ name, text, listen, want string }{
		{"other addresses", announced + "[[web]]\nat = \"192.0.2.4\"", `"192.0.2.3", "2001:db8::3"`, ""},
		{"that of an instance", announced + "[[web]]\nat = \"192.0.2.3\"", `"192.0.2.3"`, "web.at: TCP 192.0.2.3:179 is also bound by [announce]"},
		{"all, and that of an instance", announced + "[[web]]\nat = \"192.0.2.4\"", `"0.0.0.0"`, "web.at: TCP 0.0.0.0:179 is also bound by [announce]"},
		{"that of an instance, but nothing is announced", bgp + "[[web]]\nat = \"192.0.2.3\"", `"192.0.2.3"`, ""},
		{"that of the metrics", announced + "[metrics]\nlisten = \"192.0.2.3:179\"", `"192.0.2.3"`, "announce.listen: TCP 192.0.2.3:179 is also bound by [metrics]"},
		{"metrics and an instance", "[metrics]\nlisten = \"192.0.2.3:179\"\n[[web]]\nat = \"192.0.2.3\"", "", "web.at: TCP 192.0.2.3:179 is also bound by [metrics]"},
		{"all of both families", announced, `"0.0.0.0", "::"`, ""},
		{"one twice", announced, `"192.0.2.3", "2001:db8::3", "192.0.2.3"`, "announce.listen: 192.0.2.3 and 192.0.2.3 cannot both be bound"},
		{"one beside all", announced, `"2001:db8::3", "::"`, "announce.listen: :: and 2001:db8::3 cannot both be bound"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := tt.text
			if strings.Contains(text, "%s") {
				text = fmt.Sprintf(text, tt.listen)
			}
			c, err := Parse(strings.NewReader(text), "isthmus.toml", networkSection, webSection)
			switch {
			case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want %q", err, tt.want)
			case err == nil && strings.HasPrefix(tt.text, announced):
				if got := fmt.Sprint(c.beside("network").Sockets); !strings.Contains(got, "]:179") && !strings.Contains(got, "192.0.2.3:179") {
					t.Errorf("instances know of %s", got)
				}
			}
		})
	}
}
