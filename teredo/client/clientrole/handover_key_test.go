// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/event"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/server/serverrole"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

// A new key is for all paths, also for that of an interface that comes after the
// reload; a faulty one changes nothing.
func TestHandoverReloadsKey(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys.toml")
	private(t, keys, keysFile)
	r := newRig(t, func(s *serverrole.Settings) { s.RequireAuth, s.KeysFile = true, keys })
	r.secondLink(t)
	h, changes := newHandover(t, keyed("north", northSecret, teredo.HMACSHA1))
	roletest.Start(t, r.a, h)
	awaitPaths(t, h, "a in_use", "w standing_by")
	if first := <-changes; first.Cause != event.Qualified || first.Old.IsValid() {
		t.Errorf("the first address: %+v", first)
	}
	r.link(t, r.router, "w", netlink.LinkDel)
	awaitPaths(t, h, "a in_use", "w absent")

	faulty := h.cfg
	faulty.KeySecret, faulty.KeySecretFile = "", filepath.Join(t.TempDir(), "none")
	if _, err := roletest.Reload(Role, h, h.cfg, faulty); err == nil {
		t.Error("a key without a secret is taken")
	}
	awaitPaths(t, h, "a in_use", "w absent")

	next := h.cfg
	keyed("south", southSecret, teredo.HMACSHA256)(&next)
	roletest.MustReload(t, Role, h, h.cfg, next)
	private(t, keys, strings.Replace(keysFile, `id = "north"`, `id = "gone"`, 1))
	roletest.MustReload(t, serverrole.Role, r.server, r.serverCfg, r.serverCfg)
	teredotest.Link(t, r.router, r.a, "w", []string{"192.0.2.129/25"}, "192.0.2.130/25")
	r.a.Do(t, func() error { return routeBy("w", "192.0.2.129", 200) })
	awaitPaths(t, h, "a in_use", "w standing_by")
}

// Without a key that it was to have the client does not start.
func TestHandoverNeedsItsKey(t *testing.T) {
	r := newRig(t)
	h, _ := newHandover(t, func(c *Settings) { c.KeyID, c.KeySecretFile = "north", filepath.Join(t.TempDir(), "none") })
	var err error
	r.a.Do(t, func() error { err = h.Run(t.Context()); return nil })
	if err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("error %v", err)
	}
}

// A path whose server refuses the key says so, and not that it is doubted.
func TestHandoverTellsOfRefusedKey(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys.toml")
	private(t, keys, keysFile)
	r := newRig(t, func(s *serverrole.Settings) { s.RequireAuth, s.KeysFile = true, keys })
	r.secondLink(t)
	h, _ := newHandover(t, keyed("old", northSecret, teredo.HMACSHA1))
	roletest.Start(t, r.a, h)
	awaitPaths(t, h, "a key_refused", "w key_refused")
	r.link(t, r.router, "w", netlink.LinkSetDown)
	awaitPaths(t, h, "a key_refused", "w no_carrier")
	r.link(t, r.router, "w", netlink.LinkSetUp)
	awaitPaths(t, h, "a key_refused", "w key_refused")
}
