// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/announce"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/role"
)

// beacon is an instance with a prefix that notes when it is told to end.
type beacon struct {
	ready chan struct{}
	ended chan error // receives the cause
}

func newBeacon() *beacon { return &beacon{make(chan struct{}), make(chan error, 1)} }

func (b *beacon) Name() string { return "north" }
func (b *beacon) Role() string { return "toy" }
func (b *beacon) Run(ctx context.Context) error {
	close(b.ready)
	<-ctx.Done()
	b.ended <- context.Cause(ctx)
	return nil
}
func (b *beacon) Ready() <-chan struct{}          { return b.ready }
func (b *beacon) Status() any                     { return nil }
func (b *beacon) Collect(func(role.Metric))       {}
func (b *beacon) CheckSelf(context.Context) error { return nil }
func (b *beacon) AnnouncedPrefixes() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("2001::/32")}
}

// lines is a log that can be searched while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// speaking is a daemon whose speaker has a neighbor that never calls.
func speaking(b *beacon, log io.Writer) *Daemon {
	c := config.Default()
	c.Control.Socket = ""
	c.Announce.Method, c.Announce.LocalAS, c.Announce.RouterID = config.AnnounceBGP, 64512, netip.MustParseAddr("192.0.2.1")
	c.Announce.Neighbors = []config.Neighbor{{Address: netip.MustParseAddr("2001:db8::1"), AS: 64513, Port: 179, Passive: true}}
	c.Announce.CheckInterval, c.Announce.DrainTime = 10*time.Millisecond, 50*time.Millisecond
	return New(Options{Config: &c, Instances: []role.Instance{b}, Log: slog.New(slog.NewTextHandler(log, nil))})
}

// TestWithdrawnBeforeStopped has the daemon end for a reason: the instance ends
// after the withdrawal, for the same reason. The service manager knows how long the drain of the
// configuration in effect may last; there is none for a successor.
func TestWithdrawnBeforeStopped(t *testing.T) {
	for _, tt := range []struct {
		name     string
		cause    error
		withdrew bool
		state    string
	}{
		{"stop", context.Canceled, true, "STOPPING=1\nEXTEND_TIMEOUT_USEC=15020000"},
		{"successor", role.ErrLeave, false, "STOPPING=1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, log := newBeacon(), new(lines)
			d := speaking(b, log)
			states := make(chan string, 2)
			d.Notify = func(state string) error { states <- state; return nil }
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- d.Run(ctx) }()
			state := func() string { a, _ := d.announcer.Announcement("north"); return a.State }
			for state() != "no_neighbor" {
				time.Sleep(time.Millisecond)
			}
			if got := d.Status(); got.Instances[0].Announcement == nil || got.Instances[0].Values["announced"] != 0 || len(got.Neighbors) != 1 {
				t.Errorf("status %+v", got)
			}
			drained, err := d.Drain("north", true)
			if err != nil || !slices.Equal(drained.Instances, []string{"north"}) || state() != "drained" {
				t.Errorf("drain: %v, %v, %s", drained, err, state())
			}
			if _, err := d.Drain("", false); err != nil || state() != "no_neighbor" {
				t.Errorf("undrain: %v, %s", err, state())
			}
			if _, err := d.Drain("south", true); !errors.Is(err, control.ErrNoInstance) {
				t.Errorf("drain of nobody: %v", err)
			}
			shorter := d.Config.Announce
			shorter.DrainTime = 20 * time.Millisecond
			if _, err := d.announcer.Reload(shorter); err != nil {
				t.Error(err)
			}
			cancel(tt.cause)
			if got := <-b.ended; !errors.Is(got, tt.cause) {
				t.Errorf("the instance ends for %v, want %v", got, tt.cause)
			}
			if log.has("withdrew all prefixes") != tt.withdrew {
				t.Errorf("withdrew before the instance ended: %v, want %v", !tt.withdrew, tt.withdrew)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if ready, stopping := <-states, <-states; ready != "READY=1" || stopping != tt.state {
				t.Errorf("the service manager is told %q, %q, want %q", ready, stopping, tt.state)
			}
			if state() != "stopped" {
				t.Errorf("state %s behind the end", state())
			}
		})
	}
}

// TestSpeakerFails ends the instances, and says why.
func TestSpeakerFails(t *testing.T) {
	b := newBeacon()
	d := speaking(b, io.Discard)
	cfg := d.Config.Announce
	cfg.Neighbors = slices.Clone(cfg.Neighbors)
	cfg.Neighbors[0].PasswordFile = "/nonexistent/password"
	d.announcer = announce.New(cfg, "", d.Instances, d.Log)
	group, ctx := errgroup.WithContext(t.Context())
	serving := d.announce(ctx, group)
	if err := group.Wait(); err == nil || !strings.HasPrefix(err.Error(), "announce: there is no file /nonexistent/password") {
		t.Errorf("error %v", err)
	}
	<-serving.Done()
}

func TestNothingToDrain(t *testing.T) {
	c := config.Default()
	d := New(Options{Config: &c, Log: slog.New(slog.DiscardHandler)})
	if _, err := d.Drain("", true); !errors.Is(err, control.ErrNoInstance) || !strings.Contains(err.Error(), "announce = true") {
		t.Errorf("error %v", err)
	}
}

func TestExamineAnnounce(t *testing.T) {
	all := func() (uint64, error) { return ^uint64(0), nil }
	none := func() (uint64, error) { return 0, nil }
	for _, tt := range []struct {
		name string
		m    machine
		a    config.Announce
		want string
	}{
		{"nothing", machine{caps: none}, config.Announce{Method: config.AnnounceNone}, ""},
		{"routes", machine{caps: all}, config.Announce{Method: config.AnnounceRoute}, ""},
		{"routes without the right", machine{caps: none}, config.Announce{Method: config.AnnounceRoute}, "set the routes that announce prefixes"},
		{"a password that is not there", machine{caps: none},
			config.Announce{Method: config.AnnounceBGP, Neighbors: []config.Neighbor{{PasswordFile: "/nonexistent/password"}}}, "there is no file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.m.announce(&config.Config{Announce: tt.a})
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
