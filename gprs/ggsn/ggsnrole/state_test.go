// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestStopSettles has what is to go, but has not yet when the node stops, end with its Stop and its charging record,
// and hold its address for the next process.
func TestStopSettles(t *testing.T) {
	dir := t.TempDir()
	writePrivate(t, filepath.Join(dir, "secret"), "xyzzy5461\n")
	charging := filepath.Join(dir, "charging.jsonl")
	node := fmt.Sprintf("state_file = %q\ncharging_file = %q\n[[ggsn.radius]]\naddress = \"192.0.2.10\"\nuse = \"accounting\"\nsecret_file = %q\n",
		filepath.Join(dir, "state"), charging, filepath.Join(dir, "secret"))
	begin := func() (*GGSN, *bench) {
		g, err := New(written(t, node, "accounting = \"radius\"\nhold = \"1h\"\n"), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		g.own = map[string]own{"": source}
		if err := g.openState(); err != nil {
			t.Fatal(err)
		}
		return g, &bench{Engine: g.engine.Load(), t: t, now: time.Now()}
	}
	g, b := begin()
	a := newAccountant(t)
	g.accounts.Store(a)
	const goes = 3
	for n := range goes + 1 {
		m := request(n+1, sgsn, gtp.PDPTypeIPv4)
		m.Recovery = gtp.Some(uint8(n / goes)) // the SGSN restarts before the last one
		if r := b.create(sgsn, m); !r.Cause.Accepted() {
			t.Fatal(r.Cause)
		}
	}
	if err := g.closeState(true); err != nil {
		t.Fatal(err)
	}
	if n := a.spool.Info().Records; n != goes {
		t.Errorf("%d accounting records, want %d", n, goes)
	}
	if list := charges(t, charging); len(list) != goes || list[0].Diagnostics != ggsn.EndPeerRestart.String() {
		t.Errorf("charging records %+v", list)
	}
	g, b = begin()
	b.wants("contexts", b.Sizes().Contexts, 1)
	b.wants("addresses held", b.Sizes().Pools[0].Held, uint64(goes))
	if err := g.saved.Close(); err != nil {
		t.Fatal(err)
	}
}
