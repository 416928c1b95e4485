// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package announce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/role"
)

// instance is one whose check the test decides.
type instance struct {
	name     string
	prefixes atomic.Value // []netip.Prefix
	ready    chan struct{}
	problem  atomic.Pointer[string]
}

func newInstance(name string, prefixes ...string) *instance {
	i := &instance{name: name}
	i.serve(prefixes...)
	return i
}

// serve has other prefixes lead to the instance.
func (i *instance) serve(prefixes ...string) {
	list := make([]netip.Prefix, len(prefixes))
	for at, p := range prefixes {
		list[at] = netip.MustParsePrefix(p)
	}
	i.prefixes.Store(list)
}

func (i *instance) Name() string                      { return i.name }
func (i *instance) Role() string                      { return "relay" }
func (i *instance) Run(context.Context) error         { return nil }
func (i *instance) Ready() <-chan struct{}            { return i.ready }
func (i *instance) Status() any                       { return nil }
func (i *instance) Collect(func(role.Metric))         {}
func (i *instance) AnnouncedPrefixes() []netip.Prefix { return i.prefixes.Load().([]netip.Prefix) }
func (i *instance) CheckSelf(ctx context.Context) error {
	p := i.problem.Load()
	switch {
	case p == nil:
		return nil
	case *p == "hangs":
		<-ctx.Done()
	}
	return errors.New(*p)
}

func (i *instance) fail(problem string) { i.problem.Store(&problem) }
func (i *instance) mend()               { i.problem.Store(nil) }

// recorder is a speaker that writes down what happens and when.
type recorder struct {
	start  time.Time
	mu     sync.Mutex
	events []string
	refuse string // what fails, like "announce 2001::/32"
}

func (r *recorder) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, fmt.Sprintf("%v ", time.Since(r.start))+fmt.Sprintf(format, args...))
}

// told writes down what was asked for, unless it is refused.
func (r *recorder) told(what string, prefixes []netip.Prefix) error {
	r.mu.Lock()
	refuse := r.refuse
	r.mu.Unlock()
	for _, p := range prefixes {
		if refuse == what+" "+p.String() {
			return errors.New("cannot " + refuse)
		}
	}
	r.note(what+" %v", prefixes)
	return nil
}
func (r *recorder) Announce(p ...netip.Prefix) error  { return r.told("announce", p) }
func (r *recorder) Withdraw(p ...netip.Prefix) error  { return r.told("withdraw", p) }
func (r *recorder) AddPeers() error                   { r.note("meet"); return nil }
func (r *recorder) Reconfigure(config.Announce) error { r.note("reconfigure"); return nil }
func (r *recorder) Neighbors() []role.Neighbor        { return []role.Neighbor{{AS: 1, State: "established"}} }
func (r *recorder) Heard() (bool, time.Time)          { return true, time.Time{} }
func (r *recorder) Close(leave bool) error            { r.note("close, leave %v", leave); return nil }

// play runs an announcer in virtual time while do plays, then ends it.
func play(t *testing.T, cfg config.Announce, cause error, do func(a *Announcer), instances ...*instance) []string {
	t.Helper()
	r := &recorder{}
	synctest.Test(t, func(t *testing.T) {
		r.start = time.Now()
		var list []role.Instance
		for _, i := range instances {
			i.ready = make(chan struct{}) // it must be of this bubble
			list = append(list, i)
		}
		a := New(cfg, "", list, slog.New(slog.DiscardHandler))
		a.open = func(config.Announce, *slog.Logger) (Speaker, error) { return r, nil }
		a.ping = func(ctx context.Context, to netip.Addr) error {
			if to.Is4() {
				return nil
			}
			<-ctx.Done()
			return fmt.Errorf("%s does not answer", to)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		do(a)
		synctest.Wait()
		cancel(cause)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r.events
}

func settings() config.Announce {
	cfg := config.DefaultAnnounce()
	cfg.Method = config.AnnounceRoute
	cfg.Fall, cfg.Rise, cfg.HoldDown, cfg.DrainTime = 2, 2, 5*time.Second, 300*time.Millisecond
	return cfg
}

func want(t *testing.T, got []string, events ...string) {
	t.Helper()
	if diff := cmp.Diff(events, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestStartAndStop(t *testing.T) {
	i := newInstance("north", "2001::/32")
	got := play(t, settings(), nil, func(a *Announcer) {
		time.Sleep(100 * time.Millisecond)
		close(i.ready)
		time.Sleep(2 * time.Second)
	}, i)
	want(t, got,
		"100ms announce [2001::/32]", "100ms meet",
		"2.1s withdraw [2001::/32]", "2.4s close, leave false")
}

// TestServesMore announces what an instance serves when it is ready, and withdraws that.
func TestServesMore(t *testing.T) {
	i := newInstance("one", "2001::/32")
	events := play(t, settings(), nil, func(*Announcer) {
		i.serve("2001::/32", "2001:db8::/32")
		close(i.ready)
	}, i)
	want(t, events,
		"0s announce [2001::/32 2001:db8::/32]",
		"0s meet",
		"0s withdraw [2001::/32 2001:db8::/32]",
		"300ms close, leave false")
}

func TestSuccessorTakesOver(t *testing.T) {
	i := newInstance("north", "2001::/32")
	got := play(t, settings(), role.ErrLeave, func(*Announcer) {
		close(i.ready)
		time.Sleep(time.Second / 2)
	}, i)
	want(t, got, "0s announce [2001::/32]", "0s meet", "500ms close, leave true")
}

// TestFailure has the checks fail, hang, and succeed again: two failures withdraw,
// and after two successes the hold-down time is awaited.
func TestFailure(t *testing.T) {
	for _, problem := range []string{"no answer", "hangs"} {
		i := newInstance("north", "2001::/32")
		var seen role.Announcement
		got := play(t, settings(), nil, func(a *Announcer) {
			close(i.ready)
			time.Sleep(500 * time.Millisecond)
			i.fail(problem)
			time.Sleep(3 * time.Second)
			seen, _ = a.Announcement("north")
			i.mend()
			time.Sleep(7 * time.Second)
		}, i)
		fell := "2s"
		if problem == "hangs" { // as long as a check may take
			fell = "3s"
		}
		again := map[string]string{"2s": "7s", "3s": "8s"}[fell]
		want(t, got,
			"0s announce [2001::/32]", "0s meet",
			fell+" withdraw [2001::/32]", again+" announce [2001::/32]",
			"10.5s withdraw [2001::/32]", "10.8s close, leave false")
		if seen.State != "check_failed" || seen.Problem != problem {
			t.Errorf("status %+v", seen)
		}
	}
}

func TestDrainAndBack(t *testing.T) {
	north, south := newInstance("north", "2001::/32"), newInstance("south", "192.0.2.1/32", "192.0.2.2/32")
	got := play(t, settings(), nil, func(a *Announcer) {
		close(north.ready)
		time.Sleep(100 * time.Millisecond)
		close(south.ready)
		time.Sleep(100 * time.Millisecond)
		for _, step := range []struct {
			name string
			on   bool
			want string
		}{{"south", true, "[south]"}, {"nobody", true, "[]"}, {"", true, "[north south]"}, {"", false, "[north south]"}} {
			names, err := a.Drain(step.name, step.on)
			if err != nil || fmt.Sprint(names) != step.want {
				t.Errorf("drain %q %v: %v, %v", step.name, step.on, names, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if _, ok := a.Announcement("nobody"); ok {
			t.Error("there is an announcement for nobody")
		}
	}, north, south)
	want(t, got,
		"0s announce [2001::/32]",
		"100ms announce [192.0.2.1/32 192.0.2.2/32]", "100ms meet",
		"200ms withdraw [192.0.2.1/32 192.0.2.2/32]",
		"400ms withdraw [2001::/32]",
		"500ms announce [2001::/32]", "500ms announce [192.0.2.1/32 192.0.2.2/32]",
		"600ms withdraw [192.0.2.1/32 192.0.2.2/32 2001::/32]", "900ms close, leave false")
}

// TestOneDoesNotStart meets routers for the other instance all the same.
func TestOneDoesNotStart(t *testing.T) {
	north, south := newInstance("north", "2001::/32"), newInstance("south", "192.0.2.1/32")
	got := play(t, settings(), nil, func(*Announcer) {
		close(north.ready)
		time.Sleep(10 * time.Second)
	}, north, south)
	want(t, got,
		"0s announce [2001::/32]", "5s meet",
		"10s withdraw [2001::/32]", "10.3s close, leave false")
}

func TestHostsToCheck(t *testing.T) {
	configtest.InEffect(t, "announce", "check")
	silent, also, answers := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("192.0.2.1")
	for _, tt := range []struct {
		name    string
		check   []netip.Addr
		state   string
		problem string
	}{
		{"one of two answers", []netip.Addr{silent, answers}, "announced", ""},
		{"the only one is silent", []netip.Addr{silent}, "starting", "2001:db8::1 does not answer"},
		{"all are silent", []netip.Addr{silent, also}, "starting", "none of the hosts to check answers: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := settings()
			cfg.Check = tt.check
			i := newInstance("north", "2001::/32")
			var got role.Announcement
			play(t, cfg, nil, func(a *Announcer) {
				close(i.ready)
				time.Sleep(2500 * time.Millisecond)
				got, _ = a.Announcement("north")
			}, i)
			if got.State != tt.state || !strings.HasPrefix(got.Problem, tt.problem) || tt.problem == "" && got.Problem != "" {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestReload(t *testing.T) {
	i := newInstance("north", "2001::/32")
	got := play(t, settings(), nil, func(a *Announcer) {
		close(i.ready)
		time.Sleep(100 * time.Millisecond)
		next := settings()
		next.Fall, next.MED, next.DrainTime = 1, 7, 0
		next.Table, next.LocalAS = 7, 8
		keys, err := a.Reload(next)
		if diff := cmp.Diff([]string{"table", "local_as"}, keys); diff != "" || err != nil {
			t.Errorf("%v, keys (-want +got):\n%s", err, diff)
		}
		i.fail("no answer")
		time.Sleep(time.Second)
	}, i)
	want(t, got,
		"0s announce [2001::/32]", "0s meet", "100ms reconfigure",
		"1s withdraw [2001::/32]", "1.1s close, leave false")
}

func TestNothingToAnnounce(t *testing.T) {
	off := config.DefaultAnnounce()
	log := slog.New(slog.DiscardHandler)
	if New(off, "", []role.Instance{newInstance("north", "2001::/32")}, log) != nil {
		t.Error("an announcer with method none")
	}
	none := newInstance("north")
	none.prefixes.Store([]netip.Prefix(nil))
	if New(settings(), "", []role.Instance{none}, log) != nil {
		t.Error("an announcer without prefixes")
	}
}

// TestOtherPrefixes has what instances serve change: by a reload, and by the end of what a
// reload has left.
func TestOtherPrefixes(t *testing.T) {
	north, south := newInstance("north", "192.0.2.0/28", "2001:db8:64::/96"), newInstance("south")
	var empty role.Announcement
	got := play(t, settings(), nil, func(a *Announcer) {
		close(north.ready)
		close(south.ready)
		reload := func() {
			if _, err := a.Reload(settings()); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(500 * time.Millisecond)
		empty, _ = a.Announcement("south")
		north.serve("192.0.2.16/28", "2001:db8:64::/96", "192.0.2.0/30") // of which the last is leaving
		reload()
		north.serve("192.0.2.16/28", "2001:db8:64::/96")
		time.Sleep(time.Second)
		north.serve("192.0.2.16/28")
		south.serve("2001:db8:64::/96")
		reload()
		time.Sleep(time.Second)
		north.serve()
		time.Sleep(time.Second)
		north.serve("192.0.2.32/28")
		time.Sleep(time.Second)
		if _, err := a.Drain("north", true); err != nil {
			t.Error(err)
		}
		north.serve("192.0.2.48/28")
		reload()
		time.Sleep(time.Second)
		if _, err := a.Drain("north", false); err != nil {
			t.Error(err)
		}
	}, north, south)
	want(t, got,
		"0s announce [192.0.2.0/28 2001:db8:64::/96]", "0s meet",
		"500ms reconfigure", "500ms announce [192.0.2.16/28 192.0.2.0/30]", "500ms withdraw [192.0.2.0/28]",
		"1s withdraw [192.0.2.0/30]",
		"1.5s reconfigure",
		"3s withdraw [192.0.2.16/28]",
		"4s announce [192.0.2.32/28]",
		"4.5s withdraw [192.0.2.32/28]", "4.5s reconfigure",
		"5.5s announce [192.0.2.48/28]",
		"5.5s withdraw [192.0.2.48/28 2001:db8:64::/96]", "5.8s close, leave false")
	if empty.State != "nothing_to_announce" {
		t.Errorf("without prefixes: %+v", empty)
	}
}

// TestSpeakerFailsOnce has the speaker fail for a while: the instance goes on, the status
// says why, and what failed is tried again with the next check.
func TestSpeakerFailsOnce(t *testing.T) {
	north, south := newInstance("north", "192.0.2.1/32", "192.0.2.2/32"), newInstance("south", "2001::/32")
	got := play(t, settings(), nil, func(a *Announcer) {
		s, _ := a.open(settings(), nil)
		r := s.(*recorder)
		refuse := func(what string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.refuse = what
		}
		after := func(wait time.Duration, north, problem string) {
			t.Helper()
			time.Sleep(wait)
			one, _ := a.Announcement("north")
			two, _ := a.Announcement("south")
			if one.State != north || one.Problem != problem || two.State != role.StateAnnounced || two.Problem != "" {
				t.Errorf("%+v\n%+v", one, two)
			}
		}
		refuse("announce 192.0.2.1/32")
		close(north.ready)
		synctest.Wait()
		close(south.ready)
		after(500*time.Millisecond, "announce_failed", "cannot announce 192.0.2.1/32")
		refuse("")
		after(time.Second, role.StateAnnounced, "")
		refuse("withdraw 192.0.2.2/32")
		if _, err := a.Drain("north", true); err == nil {
			t.Error("a drain that leaves a prefix announced is no error")
		}
		after(time.Second, "drained", "cannot withdraw 192.0.2.2/32")
		refuse("")
		after(time.Second, "drained", "")
	}, north, south)
	want(t, got,
		"0s announce [192.0.2.2/32]", "0s announce [2001::/32]", "0s meet",
		"1s announce [192.0.2.1/32]",
		"1.5s withdraw [192.0.2.1/32]", "3s withdraw [192.0.2.2/32]",
		"3.5s withdraw [2001::/32]", "3.8s close, leave false")
}

// TestSpeakerDoesNotOpen asks for the state of an announcer whose speaker could not begin.
func TestSpeakerDoesNotOpen(t *testing.T) {
	cfg := settings()
	cfg.Method, cfg.Neighbors = config.AnnounceBGP, []config.Neighbor{{PasswordFile: "/nonexistent/password"}}
	a := New(cfg, "", []role.Instance{newInstance("north", "2001::/32")}, slog.New(slog.DiscardHandler))
	if err := a.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "there is no file") {
		t.Errorf("error %v", err)
	}
	if n := a.Neighbors(); n != nil {
		t.Errorf("neighbors %v", n)
	}
	if _, err := a.Reload(cfg); err != nil {
		t.Error(err)
	}
}
