// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/isthmus-net/isthmus/internal/event"
)

const (
	// hookQueue is how many changes wait while a program runs; beyond that the
	// oldest is left out, since only the newest address matters.
	hookQueue = 16
	// hookOutput is how much of what a failed program printed is logged, in bytes.
	hookOutput = 512
	// hookGrace is how long the output of a killed program is waited for.
	hookGrace = time.Second
	// hookPath is the search path where the daemon has none.
	hookPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// hook runs a program of the operator for each change of the address, one at a
// time and not longer than the limit.
type hook struct {
	argv   []string
	limit  time.Duration
	log    *slog.Logger
	queue  chan event.AddressChange
	missed atomic.Uint64
}

// newHook makes a hook; without a program it does nothing.
func newHook(argv []string, limit time.Duration, log *slog.Logger) *hook {
	return &hook{argv: argv, limit: limit, log: log, queue: make(chan event.AddressChange, hookQueue)}
}

// push notes a change without waiting. One goroutine at a time may call it.
func (h *hook) push(e event.AddressChange) {
	if len(h.argv) == 0 {
		return
	}
	select {
	case h.queue <- e:
		return
	default:
	}
	select {
	case <-h.queue:
		h.missed.Add(1)
	default:
	}
	h.queue <- e
}

// run works until ctx is done; a program under way is then killed.
func (h *hook) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-h.queue:
			h.call(ctx, e)
		}
		if n := h.missed.Swap(0); n > 0 {
			h.log.Warn("the address changed faster than on_change runs, so the oldest changes were left out", "changes", n)
		}
	}
}

// call runs the program once.
func (h *hook) call(ctx context.Context, e event.AddressChange) {
	ctx, cancel := context.WithTimeout(ctx, h.limit)
	defer cancel()
	var out tail
	cmd := exec.CommandContext(ctx, h.argv[0], h.argv[1:]...)
	cmd.Env = hookEnvironment(e)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = &out, &out
	// A group of its own, so that the time limit holds for its children too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = hookGrace
	err := cmd.Run()
	switch {
	case err == nil:
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		h.log.Warn("on_change ran too long and was killed: make it faster or raise on_change_timeout",
			"program", h.argv[0], "limit", h.limit, "output", out.String())
	case ctx.Err() == nil:
		h.log.Warn("on_change failed", "program", h.argv[0], "error", err, "output", out.String())
	}
}

// hookEnvironment is all that the program is given. Addresses that are not there
// are empty.
func hookEnvironment(e event.AddressChange) []string {
	path := os.Getenv("PATH")
	if path == "" {
		path = hookPath
	}
	return []string{
		"PATH=" + path,
		"ISTHMUS_INSTANCE=" + e.Instance,
		"ISTHMUS_OLD_ADDRESS=" + written(e.Old),
		"ISTHMUS_NEW_ADDRESS=" + written(e.New),
		"ISTHMUS_STANDBY=" + strconv.FormatBool(e.Standby),
		"ISTHMUS_INTERFACE=" + e.Interface,
		"ISTHMUS_VIA=" + e.Via,
		"ISTHMUS_CAUSE=" + string(e.Cause),
		"ISTHMUS_TIME=" + e.Time.Format(time.RFC3339Nano),
	}
}

func written(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// tail keeps the end of what is written to it.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if extra := len(t.b) - hookOutput; extra > 0 {
		t.b = append(t.b[:0], t.b[extra:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return strings.TrimSpace(string(t.b)) }
