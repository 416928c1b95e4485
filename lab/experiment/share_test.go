// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/control"
)

// TestSharedDevices has three instances want the same devices: check foretells who has the fast
// path by which hook, and status says the same of the running ones.
func TestSharedDevices(t *testing.T) {
	t.Parallel()
	ctx, e := testEnv(t)
	n, err := drawTeredo(ctx, e, "shared", teredoPlan{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	n.relay.Forward(true, true).Route("default", "203.0.113.5").Route("default6", "2001:db8::5")
	if err := n.lab.Err(); err != nil {
		t.Fatal(err)
	}
	if err := receiveFrames(ctx, n.relay, "v4", n.bridge4); err != nil {
		t.Fatal(err)
	}
	if err := receiveFrames(ctx, n.relay, "v6", n.bridge6); err != nil {
		t.Fatal(err)
	}
	i := n.daemons.isthmus(n.relay, "all")
	text := fmt.Sprintf(`
[[teredo_relay]]
name = "third"
bind = %q
state_file = %q
fast_path = "xdp"
[[siit]]
name = "second"
pool6 = ["2001:db8:64::/96"]
eam = ["192.0.2.33 2001:db8:1::33"]
[[nat64]]
name = "first"
clients = ["2001:db8:1::/48"]
pool6 = ["2001:db8:65::/96"]
pool4 = ["198.51.100.0/28"]
keep_state = false
fast_path = "xdp"
`, relayBind, filepath.Join(n.daemons.dir, "relay.state"))
	if err := i.configure(text); err != nil {
		t.Fatal(err)
	}
	out, err := n.relay.Run(ctx, i.binary, "check", "-c", i.file())
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const occupied = `the XDP program of another instance, "first"`
	for _, want := range [][]string{
		{`nat64 "first": the fast path would sit at xdp of v4, v6`},
		{`siit "second": the fast path would sit at `, occupied},
		{`teredo_relay "third": the engine would carry all packets: `, occupied},
		{`nat64 "first": packets that come or leave by devices of other instances, `, "would take the engine"},
	} {
		if !said(string(out), want) {
			t.Errorf("check does not say %q:\n%s", want, out)
		}
	}
	p, err := n.daemons.keep(i.launch(ctx, "isthmus-all"))
	if err != nil {
		t.Fatal(err)
	}
	if err := running(ctx, p); err != nil {
		t.Fatal(err)
	}
	status, err := control.NewClient(i.socket()).Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][2]string{"first": {"xdp", "xdp is set"}, "second": {"tc", occupied}, "third": {"engine", occupied}}
	for _, one := range status.Instances {
		var s struct {
			FastPath struct{ Path, Why string } `json:"fast_path"`
		}
		if err := json.Unmarshal(one.State, &s); err != nil {
			t.Fatal(err)
		}
		if w := want[one.Name]; s.FastPath.Path != w[0] || !strings.Contains(s.FastPath.Why, w[1]) {
			t.Errorf("%s: %+v, want %q", one.Name, s.FastPath, w)
		}
	}
}

// said reports whether a line has all these words.
func said(text string, words []string) bool {
	for line := range strings.Lines(text) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return true
		}
	}
	return false
}
