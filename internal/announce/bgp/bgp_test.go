// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/config"
)

func settings() config.Announce {
	cfg := config.DefaultAnnounce()
	cfg.Method, cfg.LocalAS, cfg.RouterID = config.AnnounceBGP, 64512, netip.MustParseAddr("192.0.2.3")
	cfg.Neighbors = []config.Neighbor{{Address: netip.MustParseAddr("2001:db8::1"), AS: 64513, Port: 179, Passive: true}}
	return cfg
}

// TestPath looks at what neighbors are told.
func TestPath(t *testing.T) {
	relay, server := netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("192.0.2.1/32")
	for _, tt := range []struct {
		name   string
		change func(*config.Announce)
		prefix netip.Prefix
		want   []string
	}{
		{"the session's address", func(*config.Announce) {}, relay,
			[]string{"{Origin: i}", "{Med: 0}", "{LocalPref: 100}", "{MpReach(ipv6-unicast): {Nexthop: ::, NLRIs: [2001::/32:0]}}"}},
		{"IPv4", func(*config.Announce) {}, server,
			[]string{"{Origin: i}", "{Med: 0}", "{LocalPref: 100}", "{Nexthop: 0.0.0.0}"}},
		{"all that can be set", func(c *config.Announce) {
			c.NextHop6 = netip.MustParseAddr("2001:db8::3")
			c.MED, c.LocalPref, c.Communities = 1<<32-1, 7, []config.Community{64512<<16 | 100, 0xffffff01}
		}, relay, []string{"{Origin: i}", "{Med: 4294967295}", "{LocalPref: 7}", "{Communities: 64512:100, no-export}",
			"{MpReach(ipv6-unicast): {Nexthop: 2001:db8::3, NLRIs: [2001::/32:0]}}"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &Speaker{cfg: settings()}
			tt.change(&s.cfg)
			path, err := s.path(tt.prefix)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range path.Attrs {
				got = append(got, fmt.Sprint(a))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestParts has parts of a second, of which BGP knows nothing.
func TestParts(t *testing.T) {
	s := &Speaker{cfg: settings()}
	s.cfg.GracefulRestart, s.cfg.HoldTime = 500*time.Millisecond, 3500*time.Millisecond
	if p := s.peer(s.cfg.Neighbors[0]); p.GracefulRestart.RestartTime != 1 || p.Timers.Config.HoldTime != 4 {
		t.Errorf("a restart may take %d s, and a silence %d s", p.GracefulRestart.RestartTime, p.Timers.Config.HoldTime)
	}
}

// TestWithoutSession announces and withdraws while no session is up, twice each:
// nothing waits, and nothing fails.
func TestWithoutSession(t *testing.T) {
	var log bytes.Buffer
	s, err := Open(settings(), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	p := netip.MustParsePrefix("2001::/32")
	for name, step := range map[string]func() error{
		"meet": s.AddPeers, "meet again": s.AddPeers,
		"announce": func() error { return s.Announce(p) }, "reconfigure": func() error { return s.Reconfigure(settings()) },
	} {
		if err := step(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range 2 {
		if err := s.Withdraw(p); err != nil {
			t.Error(err)
		}
	}
	n := s.Neighbors()
	if len(n) != 1 || n[0].Address != settings().Neighbors[0].Address || n[0].AS != 64513 || n[0].State == Established || n[0].Since != (time.Time{}) {
		t.Errorf("%+v", n)
	}
	if err := s.Close(false); err != nil {
		t.Error(err)
	}
	if log.Len() > 0 {
		t.Errorf("the library is loud:\n%s", log.String())
	}
}

func TestMissingPassword(t *testing.T) {
	cfg := settings()
	cfg.Neighbors[0].PasswordFile = "/nonexistent/password"
	if _, err := Open(cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "there is no file /nonexistent/password") {
		t.Errorf("error %v", err)
	}
}
