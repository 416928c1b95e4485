// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/role"
)

// fake is an instance that is ready after a while and does nothing.
type fake struct {
	name, role string
	start      time.Duration // until ready
	fails      time.Duration // until it fails; 0 is never
	undo       time.Duration // to stop
	ready      chan struct{}
	stopped    bool
}

func newFake(role, name string) *fake {
	return &fake{name: name, role: role, start: time.Millisecond, ready: make(chan struct{})}
}

func (f *fake) Name() string           { return f.name }
func (f *fake) Role() string           { return f.role }
func (f *fake) Ready() <-chan struct{} { return f.ready }
func (f *fake) Status() any            { return map[string]string{"state": "qualified"} }

func (f *fake) Collect(emit func(role.Metric)) {
	emit(role.Count("rx_packets_total", "Packets received.", 7))
	emit(role.Dropped("not_global", 2))
	emit(role.Dropped("truncated", 1))
}

var errBroken = errors.New("the wire broke: mend it")

func (f *fake) Run(ctx context.Context) error {
	ready := time.After(f.start)
	var fails <-chan time.Time
	if f.fails > 0 {
		fails = time.After(f.fails)
	}
	for {
		select {
		case <-ready:
			close(f.ready)
		case <-fails:
			return errBroken
		case <-ctx.Done():
			time.Sleep(f.undo)
			f.stopped = true
			return nil
		}
	}
}

// listing is a fake that keeps peers.
type listing struct{ *fake }

func (listing) Peers(limit int) ([]role.Peer, int) {
	peers := []role.Peer{{Address: netip.MustParseAddr("2001:db8::1"), Trusted: true}, {}}
	return peers[:min(limit, len(peers))], len(peers)
}

// quiet is a configuration without endpoints, since virtual time stands still
// while a goroutine waits for a socket.
func quiet() *config.Config {
	c := config.Default()
	c.Control.Socket = ""
	return &c
}

// rig runs a daemon and keeps what it told the service manager.
type rig struct {
	*Daemon
	hangup chan os.Signal
	mu     sync.Mutex // guards states
	states []string
	stop   context.CancelFunc
	done   chan error
}

func startRig(t *testing.T, c *config.Config, load func() (*config.Config, error), instances ...role.Instance) *rig {
	t.Helper()
	r := &rig{hangup: make(chan os.Signal, 1), done: make(chan error, 1)}
	r.Daemon = New(Options{
		Version: "test", Roles: toys, Config: c, Path: "isthmus.toml", Load: load, Instances: instances,
		Log: slog.New(slog.DiscardHandler), Level: new(slog.LevelVar), Hangup: r.hangup,
		Notify: func(state string) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.states = append(r.states, state)
			return nil
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() { r.done <- r.Run(ctx) }()
	return r
}

// told is what the service manager heard so far.
func (r *rig) told() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.states)
}

func TestStartAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, fast := newFake("relay", "slow"), newFake("client", "fast")
		slow.start, slow.undo = 5*time.Second, 3*time.Second
		r := startRig(t, quiet(), nil, slow, fast)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if told := r.told(); len(told) > 0 {
			t.Errorf("told %v while an instance was not ready", told)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"READY=1"}, r.told()); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
		r.stop()
		if err := <-r.done; err != nil {
			t.Errorf("orderly stop: %v", err)
		}
		if !slow.stopped || !fast.stopped {
			t.Error("an instance had not undone its work when Run returned")
		}
		if diff := cmp.Diff([]string{"READY=1", "STOPPING=1"}, r.told()); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
	})
}

func TestOneFailureStopsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, bad := newFake("relay", "good"), newFake("server", "bad")
		bad.fails = time.Minute
		r := startRig(t, quiet(), nil, good, bad)
		err := <-r.done
		if !errors.Is(err, errBroken) || err.Error() != "server bad: the wire broke: mend it" {
			t.Errorf("error %q", err)
		}
		if !good.stopped {
			t.Error("the other instance was not stopped")
		}
	})
}

func TestNothingToRun(t *testing.T) {
	d := New(Options{Config: quiet()})
	if err := d.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "isthmus init") {
		t.Errorf("error %v", err)
	}
}

// quietly reads toys into a configuration without endpoints.
func quietly(t *testing.T, text string) *config.Config {
	t.Helper()
	return parseToys(t, text+"\n[control]\nsocket = \"\"\n")
}

func TestHangupReloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, next := quietly(t, "[[toy]]"), quietly(t, "[[toy]]\nword = \"two\"\n[log]\nlevel = \"debug\"")
		instances, err := Build(toys, start, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		r := startRig(t, start, func() (*config.Config, error) { return next, nil }, instances...)
		time.Sleep(time.Second)
		r.hangup <- syscall.SIGHUP
		synctest.Wait()
		if instances[0].(*toyInstance).settings.Word != "two" {
			t.Error("the instance was not given its new section")
		}
		if r.Level.Level() != slog.LevelDebug {
			t.Error("the log level did not change")
		}
		r.stop()
		<-r.done
		if diff := cmp.Diff([]string{"READY=1", "RELOADING=1", "READY=1", "STOPPING=1"}, r.told()); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
	})
}

func TestReload(t *testing.T) {
	const start = "[[toy]]\nname = \"live\"\n[[toy]]\nname = \"fixed\"\n"
	for _, tt := range []struct {
		name, text string
		load       error // of the file
		want       []string
		err        string
	}{
		{name: "nothing changed", text: start},
		{name: "process sections", text: start + "[metrics]\nlisten = \"127.0.0.1:9464\"\n[log]\nlevel = \"debug\"\nformat = \"json\"",
			want: []string{"metrics: listen", "log: format"}},
		{name: "faulty file", text: start, load: errBroken, err: errBroken.Error()},
		{name: "instance that fails at the change", text: strings.Replace(start, "fixed\"", "fixed\"\nword = \"late\"", 1),
			err: "toy fixed keeps its old settings: " + errBroken.Error()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := quietly(t, start)
			instances, err := Build(toys, c, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			d := New(Options{
				Roles: toys, Config: c, Log: slog.New(slog.DiscardHandler), Level: new(slog.LevelVar), Instances: instances,
				Load: func() (*config.Config, error) { return quietly(t, tt.text), tt.load },
			})
			reloaded, err := d.Reload()
			if got := errorText(err); got != tt.err {
				t.Errorf("error %q, want %q", got, tt.err)
			}
			var got []string
			for _, p := range reloaded.NeedsRestart {
				got = append(got, Describe(p))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("needs restart (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPendingStays checks that what waits for a restart is named again at the
// next reload, while what was applied is not.
func TestPendingStays(t *testing.T) {
	start := quietly(t, "[[toy]]")
	instances, err := Build(toys, start, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	d := New(Options{
		Roles: toys, Config: start, Log: slog.New(slog.DiscardHandler), Level: new(slog.LevelVar), Instances: instances,
		Load: func() (*config.Config, error) { return quietly(t, "[[toy]]\nport = 8\n[log]\nlevel = \"debug\""), nil },
	})
	want := []control.Pending{{Section: "toy", Instance: "toy", Keys: []string{"port"}, Change: "changed"}}
	for range 2 {
		reloaded, err := d.Reload()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, reloaded.NeedsRestart); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestReloadWithoutFile(t *testing.T) {
	d := New(Options{Config: quiet(), Log: slog.New(slog.DiscardHandler)})
	if _, err := d.Reload(); err == nil || !strings.Contains(err.Error(), "without a configuration file") {
		t.Errorf("error %v", err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestEndpoints runs a daemon with a control socket and a metrics endpoint and
// asks both.
func TestEndpoints(t *testing.T) {
	c := quiet()
	c.Control.Socket = filepath.Join(t.TempDir(), "control.sock")
	live := listing{newFake("toy", "live")}
	r := startRig(t, c, func() (*config.Config, error) { return quiet(), nil }, live)
	defer func() {
		r.stop()
		if err := <-r.done; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(c.Control.Socket); err == nil {
			t.Error("the socket was left behind")
		}
	}()
	<-live.ready
	asker := control.NewClient(c.Control.Socket)
	status, err := asker.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if status.Started.IsZero() || status.PID != os.Getpid() {
		t.Errorf("status of another process: %+v", status)
	}
	want := []control.Instance{{
		Name: "live", Role: "toy", Ready: true, State: []byte(`{"state":"qualified"}`),
		Values: map[string]float64{"rx_packets_total": 7}, Dropped: map[string]uint64{"not_global": 2, "truncated": 1},
	}}
	if diff := cmp.Diff(want, status.Instances); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	peers, err := asker.Peers(t.Context(), "live", 1)
	if err != nil || len(peers.Peers) != 1 || peers.Total != 2 {
		t.Errorf("peers %+v, error %v", peers, err)
	}
	if _, err := asker.Peers(t.Context(), "dead", 1); err == nil || !strings.Contains(err.Error(), `"dead" is not among`) {
		t.Errorf("peers of nobody: %v", err)
	}
	reloaded, err := asker.Reload(t.Context())
	if err != nil || len(reloaded.NeedsRestart) != 2 {
		t.Errorf("reload %+v, error %v", reloaded, err)
	}
}

func TestSecondDaemonIsRefused(t *testing.T) {
	c := quiet()
	c.Control.Socket = filepath.Join(t.TempDir(), "control.sock")
	first := newFake("client", "live")
	r := startRig(t, c, nil, first)
	<-first.ready
	second := newFake("client", "live")
	err := New(Options{Config: c, Log: slog.New(slog.DiscardHandler), Instances: []role.Instance{second}}).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "another isthmus is running") {
		t.Errorf("error %v", err)
	}
	select {
	case <-second.ready:
		t.Error("an instance of the refused daemon ran")
	default:
	}
	r.stop()
	<-r.done
}

func TestNotify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	for state, want := range map[string]string{stateReady: "READY=1", stateReloading: "RELOADING=1\nMONOTONIC_USEC="} {
		if err := Notify(state); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 128)
		n, err := manager.Read(buffer)
		if err != nil || !strings.HasPrefix(string(buffer[:n]), want) {
			t.Errorf("%s arrived as %q, error %v", state, buffer[:n], err)
		}
	}
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Notify(stateReady); err != nil {
		t.Errorf("without a service manager: %v", err)
	}
}
