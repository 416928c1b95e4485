// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// source is a daemon with one instance named "live".
type source struct {
	refuse  error // of a reload
	reloads int
	drained bool
	asked   Question
}

func (s *source) Ask(q Question) (any, error)   { return s.do("ask ", q) }
func (s *source) Order(q Question) (any, error) { return s.do("order ", q) }

func (s *source) do(how string, q Question) (any, error) {
	s.asked = q
	switch {
	case q.Instance == "missing":
		return nil, fmt.Errorf("%w: %q", ErrNoInstance, q.Instance)
	case q.What == "nonsense":
		return nil, errors.New(q.What + " cannot be done")
	}
	return map[string]string{"done": how + q.What}, nil
}

func (s *source) Status() Status {
	return Status{
		Version: "1", PID: 7, Started: time.Unix(1, 0).UTC(), Config: "isthmus.toml",
		Instances: []Instance{{
			Name: "live", Role: "client", Ready: true, State: []byte(`{"b":1,"a":[true]}`),
			Values: map[string]float64{"peers": 2}, Dropped: map[string]uint64{"truncated": 1},
		}},
	}
}

func (s *source) Peers(instance string, limit int) (PeerList, error) {
	if instance != "live" {
		return PeerList{}, fmt.Errorf("%w: %q", ErrNoInstance, instance)
	}
	all := []role.Peer{
		{Address: netip.MustParseAddr("2001:db8::1"), Mapped: netip.MustParseAddrPort("192.0.2.1:3545"), Trusted: true, LastSent: time.Unix(2, 0).UTC()},
		{Address: netip.MustParseAddr("2001:db8::2"), Queued: 3},
	}
	return PeerList{Instance: instance, Total: len(all), Peers: all[:min(limit, len(all))]}, nil
}

func (s *source) Drain(instance string, on bool) (Drained, error) {
	if instance != "" && instance != "live" {
		return Drained{}, fmt.Errorf("%w: nothing is announced for %q", ErrNoInstance, instance)
	}
	s.drained = on
	return Drained{Instances: []string{"live"}}, s.refuse
}

func (s *source) Reload() (Reloaded, error) {
	s.reloads++
	return Reloaded{NeedsRestart: []Pending{{Section: "relay", Instance: "r", Keys: []string{"mtu"}, Change: "changed"}}}, s.refuse
}

// start serves the source on a socket until the test ends.
func start(t *testing.T, s Source) *Client {
	t.Helper()
	client, _ := startOf(t, s)
	return client
}

func startOf(t *testing.T, s Source) (*Client, *http.Server) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "deep", "control.sock")
	listener, err := Listen(path, 0o600, "")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(s)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return NewClient(path), server
}

var sameAddr = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})

func TestRoundTrip(t *testing.T) {
	s := &source{}
	client := start(t, s)
	status, err := client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.Status(), status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	for _, limit := range []int{0, 1, 100} {
		want, _ := s.Peers("live", limit)
		got, err := client.Peers(t.Context(), "live", limit)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, sameAddr, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%d peers (-want +got):\n%s", limit, diff)
		}
	}
	want, _ := s.Reload()
	got, err := client.Reload(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reload (-want +got):\n%s", diff)
	}
}

func TestErrorsArrive(t *testing.T) {
	client := start(t, &source{refuse: errors.New("the file is faulty: mend it")})
	for name, ask := range map[string]func(context.Context) error{
		`no such instance: "dead"`:                  func(ctx context.Context) error { _, err := client.Peers(ctx, "dead", 1); return err },
		"limit must be a number from 0 to 10000":    func(ctx context.Context) error { _, err := client.Peers(ctx, "live", MaxPeers+1); return err },
		"the file is faulty: mend it":               func(ctx context.Context) error { _, err := client.Reload(ctx); return err },
		"isthmus on " + client.path + " answered 4": func(ctx context.Context) error { return client.ask(ctx, http.MethodGet, "/v2/status", nil, nil) },
	} {
		if err := ask(t.Context()); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("error %v, want %q", err, name)
		} else if want := strings.Contains(name, "dead"); errors.Is(err, ErrNoInstance) != want {
			t.Errorf("%v is ErrNoInstance: %v, want %v", err, !want, want)
		}
	}
}

// TestFaultsArrive takes faults of the configuration file through the socket.
func TestFaultsArrive(t *testing.T) {
	want := config.Errors{
		{File: "isthmus.toml", Line: 2, Column: 11, Key: "server.address", Problem: "this is no address", Remedy: "write one", Source: `address = "x"`, Width: 3},
		{File: "isthmus.toml", Line: 3, Column: 1, Problem: "there is no such section", Remedy: "leave it out", Source: "[x]", Width: 3},
	}
	_, err := start(t, &source{refuse: want}).Reload(t.Context())
	var got config.Errors
	if !errors.As(err, &got) {
		t.Fatalf("error %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestStrangersMayOnlyRead asks without the connection of a peer that may change
// anything.
func TestStrangersMayOnlyRead(t *testing.T) {
	s := &source{}
	for _, tt := range []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, pathStatus, http.StatusOK},
		{http.MethodGet, pathPeers + "?instance=live", http.StatusOK},
		{http.MethodPost, pathReload, http.StatusForbidden},
		{http.MethodGet, pathReload, http.StatusMethodNotAllowed},
		{http.MethodPost, pathStatus, http.StatusMethodNotAllowed},
	} {
		answer := httptest.NewRecorder()
		NewServer(s).Handler.ServeHTTP(answer, httptest.NewRequest(tt.method, tt.path, nil))
		if answer.Code != tt.want {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.path, answer.Code, tt.want)
		}
	}
	if s.reloads > 0 {
		t.Error("a stranger reloaded the configuration")
	}
}

func TestListen(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path("stale"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	alive, err := net.Listen("unix", path("alive"))
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	if err := os.WriteFile(path("file"), []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, group, err string }{
		{name: "fresh"},
		{name: "stale"},
		{name: "alive", err: "another isthmus is running"},
		{name: "file", err: "is not a socket, so it is left alone"},
		{name: "fresh", group: "no-such-group", err: `there is no group "no-such-group"`},
		{name: "new/folder/fresh"},
		{name: "file/below", err: "cannot use the control socket"},
	} {
		t.Run(tt.name+tt.group, func(t *testing.T) {
			before := Usable(path(tt.name), tt.group)
			listener, err := Listen(path(tt.name), 0o640, tt.group)
			if diff := cmp.Diff(fmt.Sprint(before), fmt.Sprint(err)); diff != "" {
				t.Errorf("Usable and Listen disagree (-usable +listen):\n%s", diff)
			}
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			info, err := os.Stat(path(tt.name))
			if err != nil {
				t.Fatal(err)
			}
			if want := fs.ModeSocket | 0o640; info.Mode() != want {
				t.Errorf("mode %v, want %v", info.Mode(), want)
			}
			if !Alive(path(tt.name)) {
				t.Error("nobody listens")
			}
		})
	}
	if text, err := os.ReadFile(path("file")); err != nil || string(text) != "dear" {
		t.Errorf("the file is gone: %q, %v", text, err)
	}
	if !Alive(path("alive")) || Alive(path("stale")) {
		t.Error("the living and the dead were mixed up")
	}
}

// TestWhoMayChange connects as root and as a user without rights who may use the socket
// by its group: he may read, and no more.
func TestWhoMayChange(t *testing.T) {
	testutil.NeedRoot(t)
	const nobody, group = 65534, 4242
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "socket")
	listener, err := Listen(path, 0o666, fmt.Sprint(group))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if gid := info.Sys().(*syscall.Stat_t).Gid; gid != group {
		t.Errorf("the socket has group %d, want %d", gid, group)
	}
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	become := func(uid uintptr) {
		t.Helper()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uid, ^uintptr(0)); errno != 0 {
			t.Fatal(errno)
		}
	}
	for uid, want := range map[uintptr]bool{0: true, nobody: false} {
		become(uid)
		asking, err := net.Dial("unix", path)
		become(0)
		if err != nil {
			t.Fatal(err)
		}
		asked, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if got := mayChange(userOf(asked)); got != want {
			t.Errorf("user %d may change: %v, want %v", uid, got, want)
		}
		asking.Close()
		asked.Close()
	}
}

func TestNobodyListens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.sock")
	_, err := NewClient(path).Status(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no isthmus is running with the control socket "+path) {
		t.Errorf("error %v", err)
	}
}

// TestRemoveStale removes what a killed process left, and nothing else.
func TestRemoveStale(t *testing.T) {
	dir := t.TempDir()
	file, stale, live := filepath.Join(dir, "file"), filepath.Join(dir, "stale"), filepath.Join(dir, "live")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	listener, err := Listen(live, 0o600, "")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for path, want := range map[string]bool{file: false, stale: true, live: false, filepath.Join(dir, "none"): false} {
		before := exists(path)
		if removed, err := RemoveStale(path); removed != want || err != nil || exists(path) != (before && !want) {
			t.Errorf("%s: removed %v, %v; want %v", path, removed, err, want)
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
