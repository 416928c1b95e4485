// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package program

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// Manager is the service manager of a test: it receives states.
type Manager struct{ conn *net.UnixConn }

// NewManager makes one that listens at a path of its own.
func NewManager(t *testing.T) (m Manager, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "notify")
	return listen(t, path), path
}

func listen(t *testing.T, path string) Manager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return Manager{conn}
}

// Expect waits for a state.
func (m Manager) Expect(t *testing.T, want string, p *Process) {
	t.Helper()
	if err := m.conn.SetReadDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 256)
	n, err := m.conn.Read(buffer)
	if err != nil {
		t.Fatalf("no state %s: %v\n%s", want, err, p.stacks())
	}
	if got, _, _ := strings.Cut(string(buffer[:n]), "\n"); got != want {
		t.Fatalf("state %s, want %s\n%s", got, want, p.Log())
	}
}

// End ends a process by a signal, and waits for it; one that is not killed says so before.
func (m Manager) End(t *testing.T, p *Process, how syscall.Signal) {
	t.Helper()
	p.Signal(t, how)
	if how != syscall.SIGKILL {
		m.Expect(t, "STOPPING=1", p)
	}
	if err := <-p.Done; err != nil && how != syscall.SIGKILL {
		t.Errorf("after %v: %v\n%s", how, err, p.Log())
	}
}

// Process is a running isthmus.
type Process struct {
	Cmd  *exec.Cmd
	Done chan error
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Serve starts the program with a configuration, and returns when it serves.
func (m Manager) Serve(t *testing.T, ns *testutil.Netns, notify, path string) *Process {
	t.Helper()
	p := Start(t, ns, notify, "run", "-c", path)
	m.Expect(t, "READY=1", p)
	return p
}

// Start starts the program.
func Start(t *testing.T, ns *testutil.Netns, notify string, args ...string) *Process {
	t.Helper()
	return StartAs(t, ns, notify, func(*exec.Cmd) {}, args...)
}

// StartAs is Start with other rights.
func StartAs(t *testing.T, ns *testutil.Netns, notify string, as func(*exec.Cmd), args ...string) *Process {
	t.Helper()
	p := &Process{Cmd: exec.Command(Path(t), args...), Done: make(chan error, 1)}
	p.Cmd.Env = append(os.Environ(), As("1"), "NOTIFY_SOCKET="+notify)
	as(p.Cmd)
	errs, err := p.Cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	ns.Do(t, p.Cmd.Start)
	go func() {
		for lines := bufio.NewScanner(errs); lines.Scan(); {
			p.mu.Lock()
			fmt.Fprintln(&p.text, lines.Text())
			p.mu.Unlock()
		}
		p.Done <- p.Cmd.Wait()
	}()
	t.Cleanup(p.end)
	return p
}

// end ends a process that still runs in good order, so that it leaves nothing to the tests
// after it.
func (p *Process) end() {
	if p.Cmd.Process.Signal(syscall.SIGTERM) != nil {
		return // it has ended
	}
	select {
	case <-p.Done:
	case <-time.After(testutil.Patience):
		_ = p.Cmd.Process.Kill()
	}
}

// Log is what the process wrote so far.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// AwaitLog waits until the process has said a text: what it wrote arrives behind what it
// tells by other ways.
func (p *Process) AwaitLog(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(testutil.Patience); !strings.Contains(p.Log(), want); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("no %q in\n%s", want, p.Log())
			return
		}
	}
}

// stacks ends a process that hangs, and returns its log with where it hangs.
func (p *Process) stacks() string {
	_ = p.Cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-p.Done:
	case <-time.After(testutil.Patience):
	}
	return p.Log()
}

// Signal sends a signal.
func (p *Process) Signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		t.Fatalf("%v\n%s", err, p.Log())
	}
}
