// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// known are the settings of a toy that is announced.
type known struct{ Name string }

var knownSection = config.SectionOf[known]{
	Name: "known", Help: "A toy.",
	Keys: func(k *known) []key.Key {
		return []key.Key{key.Of("name", &k.Name, "known", key.InstanceName, key.Identity, "Its name.")}
	},
	Claims: func(*known) []config.Claim {
		return []config.Claim{config.Announced{Key: "name", Prefixes: []netip.Prefix{netip.MustParsePrefix("2001:db8:64::/96")}}}
	},
}.Section()

// speaks is a configuration with a BGP speaker that listens.
func speaks(t *testing.T, section, listen string) *config.Config {
	t.Helper()
	c, err := config.Parse(strings.NewReader(fmt.Sprintf(`
[announce]
method = "bgp"
local_as = 64512
router_id = "192.0.2.3"
listen = [%s]
[[announce.neighbor]]
address = "2001:db8::1"
as = 64513
%s`, listen, section)), "isthmus.toml", knownSection)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestExamineListen looks whether the speaker can be called.
func TestExamineListen(t *testing.T) {
	const foreign = " is not an address of this host: write one that ip address shows, or add it to an interface"
	err := machine{}.announce(speaks(t, "[[known]]", `"192.0.2.1", "2001:db8::7"`))
	if want := "192.0.2.1" + foreign + "\n2001:db8::7" + foreign; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if err := (machine{}).announce(speaks(t, "", `"192.0.2.1"`)); err != nil {
		t.Errorf("nothing is announced, but %v", err)
	}
}

// TestExamineBusyListen finds another speaker of this host.
func TestExamineBusyListen(t *testing.T) {
	ns := testutil.NewNetns(t)
	all, one := speaks(t, "[[known]]", `"0.0.0.0", "::"`), speaks(t, "[[known]]", `"127.0.0.1"`)
	ns.Do(t, func() error {
		for _, c := range []*config.Config{all, one} {
			if err := (machine{}).announce(c); err != nil {
				t.Errorf("nobody listens, but %v", err)
			}
		}
		busy, err := net.Listen("tcp4", "127.0.0.1:179")
		if err != nil {
			return err
		}
		defer busy.Close()
		const want = "TCP port 179 on 127.0.0.1 is in use by another program: stop it (ss -lnp -t shows it), or choose another address"
		if err := (machine{}).announce(one); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
		return nil
	})
}
