// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/event"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// The hook gets the change in its environment, without a shell, and is killed
// with its children when it takes too long.
func TestHook(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "moved")
	text := "#!/bin/sh\nenv | grep ISTHMUS_ | sort > \"$2.part\"\necho \"$1\" >> \"$2.part\"\nmv \"$2.part\" \"$2\"\ncase \"$1\" in slow*) sleep 60 & sleep 60;; esac\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	change := event.AddressChange{
		Instance: "client", New: netip.MustParseAddr("2001:db8::2"), Interface: "teredo", Via: "eth0",
		Cause: event.MappingChanged, Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	fast := newHook([]string{script, "a b;$(false)", filepath.Join(dir, "fast")}, testutil.Patience, logger)
	fast.call(t.Context(), change)
	got, err := os.ReadFile(filepath.Join(dir, "fast"))
	if err != nil {
		t.Fatal(err)
	}
	want := "ISTHMUS_CAUSE=mapping_changed\nISTHMUS_INSTANCE=client\nISTHMUS_INTERFACE=teredo\nISTHMUS_NEW_ADDRESS=2001:db8::2\n" +
		"ISTHMUS_OLD_ADDRESS=\nISTHMUS_STANDBY=false\nISTHMUS_TIME=2026-01-02T03:04:05Z\nISTHMUS_VIA=eth0\na b;$(false)\n"
	if diff := cmp.Diff(want, string(got)); diff != "" || log.Len() > 0 {
		t.Errorf("(-want +got):\n%s\n%s", diff, log.String())
	}
	slow := newHook([]string{script, "slow", filepath.Join(dir, "slow")}, 200*time.Millisecond, logger)
	slow.call(t.Context(), change)
	if !strings.Contains(log.String(), "killed") {
		t.Errorf("the log does not tell: %s", log.String())
	}
	log.Reset()
	missing := newHook([]string{filepath.Join(dir, "missing")}, testutil.Patience, logger)
	missing.call(t.Context(), change)
	if !strings.Contains(log.String(), "on_change failed") {
		t.Errorf("the log does not tell: %s", log.String())
	}
}

// Changes that come faster than the program runs leave the oldest out.
func TestHookOverflow(t *testing.T) {
	h := newHook([]string{"/bin/true"}, time.Second, slog.New(slog.DiscardHandler))
	for i := range hookQueue + 5 {
		h.push(event.AddressChange{Instance: fmt.Sprint(i)})
	}
	if n := h.missed.Load(); n != 5 {
		t.Errorf("%d were left out, want 5", n)
	}
	if e := <-h.queue; e.Instance != "5" {
		t.Errorf("the oldest is %s, want 5", e.Instance)
	}
}

// A client calls its hook.
func TestClientCallsHook(t *testing.T) {
	configtest.InEffect(t, "teredo_client", "on_change")
	r := newRig(t)
	file := filepath.Join(t.TempDir(), "called")
	c, _ := newClient(t, func(c *Settings) { c.OnChange = []string{"/bin/mkdir", file} })
	roletest.Start(t, r.a, c)
	await(t, c, "qualified and the hook called", func(s Status) bool {
		_, err := os.Stat(file)
		return err == nil && qualified(s)
	})
}
