// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/role"
)

// A plan says what Run would do, and does nothing.
func TestPlanFastPath(t *testing.T) {
	r := newFastRig(t, by(fastpath.ModeAuto))
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	plan := func(change func(*Settings)) (p driver.Forecast) {
		cfg := r.config(ModeRelay)
		change(&cfg)
		r.relayNS.Do(t, func() error { p = planFastPath(cfg, new(role.Seats)); return nil })
		return p
	}
	has := func(list []string, words string) bool { return strings.Contains(strings.Join(list, "\n"), words) }
	if p := plan(by(fastpath.ModeAuto)); !has(p.Notes, "would sit at "+tcHook()+" of v4, v6: ") || len(p.Warnings) > 0 {
		t.Errorf("auto: %+v", p)
	}
	if p := plan(by(fastpath.ModeXDP)); !has(p.Notes, "would sit at xdp of v4, v6: ") {
		t.Errorf("xdp: %+v", p)
	}
	if p := plan(by(fastpath.ModeOff)); len(p.Notes)+len(p.Warnings) > 0 {
		t.Errorf("off: %+v", p)
	}
	if p := plan(func(c *Settings) { c.FastPath, c.FastPathDevices = fastpath.ModeTC, []string{"none"} }); !has(p.Warnings, "none") {
		t.Errorf("a device that is missing: %+v", p)
	}
	r.nft(t, dropTeredo)
	if p := plan(by(fastpath.ModeAuto)); !has(p.Notes, "so the engine would carry all packets") || len(p.Warnings) > 0 {
		t.Errorf("auto beside a firewall: %+v", p)
	}
	if p := plan(by(fastpath.ModeTC)); !has(p.Warnings, "would not meet this: an nftables chain at ") || !has(p.Warnings, ": chain ") || !has(p.Notes, "would sit at "+tcHook()) {
		t.Errorf("tc beside a firewall: %+v", p)
	}
	left, err := pinned.Leftovers()
	if err != nil || len(left) > 0 {
		t.Errorf("the plan has left %+v, %v", left, err)
	}
}
