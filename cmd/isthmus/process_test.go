// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/echo"
	"github.com/isthmus-net/isthmus/internal/testutil/mirror"
	"github.com/isthmus-net/isthmus/internal/testutil/service"
)

// asProgram makes the test binary behave as isthmus, so that tests start the
// program that they were compiled with.
const asProgram = "ISTHMUS_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	service.Enter()
	switch os.Getenv(asProgram) {
	case "":
	case asStopping:
		neverStops()
	case asToys:
		roles = append(roles, echo.Role, mirror.Role)
		main()
	default:
		main()
	}
	os.Exit(testutil.PrivateMounts(m))
}

// manager is the service manager of a test: it receives states.
type manager struct{ conn *net.UnixConn }

func newManager(t *testing.T) (m manager, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "notify")
	return listenManager(t, path), path
}

func listenManager(t *testing.T, path string) manager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return manager{conn}
}

// expect waits for a state.
func (m manager) expect(t *testing.T, want string, p *process) {
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
		t.Fatalf("state %s, want %s\n%s", got, want, p.log())
	}
}

// process is a running isthmus.
type process struct {
	cmd  *exec.Cmd
	done chan error
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func startProcess(t *testing.T, ns *testutil.Netns, notify string, args ...string) *process {
	t.Helper()
	return startProcessAs(t, ns, notify, func(*exec.Cmd) {}, args...)
}

// startProcessAs is startProcess with other rights.
func startProcessAs(t *testing.T, ns *testutil.Netns, notify string, as func(*exec.Cmd), args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(self, args...), done: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), asProgram+"=1", "NOTIFY_SOCKET="+notify)
	as(p.cmd)
	errs, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	ns.Do(t, p.cmd.Start)
	go func() {
		for lines := bufio.NewScanner(errs); lines.Scan(); {
			p.mu.Lock()
			fmt.Fprintln(&p.text, lines.Text())
			p.mu.Unlock()
		}
		p.done <- p.cmd.Wait()
	}()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// log is what the process wrote so far.
func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// awaitLog waits until the process has said a text: what it wrote arrives behind what it
// tells by other ways.
func (p *process) awaitLog(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(testutil.Patience); !strings.Contains(p.log(), want); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("no %q in\n%s", want, p.log())
			return
		}
	}
}

// stacks ends a process that hangs, and returns its log with where it hangs.
func (p *process) stacks() string {
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-p.done:
	case <-time.After(testutil.Patience):
	}
	return p.log()
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("%v\n%s", err, p.log())
	}
}

// qualified waits until the client named "client" has its address.
func qualified(t *testing.T, asked *control.Client, p *process) control.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	for {
		status, err := asked.Status(ctx)
		if err != nil {
			t.Fatalf("%v\n%s", err, p.log())
		}
		for _, instance := range status.Instances {
			if instance.Name == "client" && instance.Values["qualified"] == 1 {
				return status
			}
		}
		time.Sleep(10 * time.Millisecond) // the control socket has no way to wait
	}
}

// addresses gives a device more addresses.
func addresses(t *testing.T, ns *testutil.Netns, device string, list ...string) {
	t.Helper()
	ns.Do(t, func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		for _, address := range list {
			parsed, err := netlink.ParseAddr(address)
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(link, parsed); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestKeysOfTheProcess sees the control socket, the metrics and the log of a process.
func TestKeysOfTheProcess(t *testing.T) {
	configtest.InEffect(t, "control", "socket", "mode", "group")
	configtest.InEffect(t, "metrics", "listen")
	configtest.InEffect(t, "log", "level", "format")
	ns := testutil.NewNetns(t)
	addresses(t, ns, "lo", "192.0.2.1/32")
	socket := filepath.Join(t.TempDir(), "control.sock")
	service, notify := newManager(t)
	p := startProcess(t, ns, notify, "run", "-c", writeFile(t, fmt.Sprintf(`
[[teredo_server]]
address = "192.0.2.1"
[control]
socket = %q
mode = 0o640
group = "daemon"
[metrics]
listen = "192.0.2.1:9464"
[log]
level = "warn"
format = "json"
`, socket)))
	service.expect(t, "READY=1", p)
	info, err := os.Stat(socket)
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := user.LookupGroup("daemon")
	if owner := info.Sys().(*syscall.Stat_t).Gid; err != nil || fmt.Sprint(owner) != daemon.Gid || info.Mode().Perm() != 0o640 {
		t.Errorf("the socket is %v of the group %d, %v", info.Mode(), owner, err)
	}
	ns.Do(t, func() error {
		conn, err := net.Dial("tcp", "192.0.2.1:9464")
		if err != nil {
			return err
		}
		return conn.Close()
	})
	p.awaitLog(t, `"level":"WARN"`) // that there is no IPv6, which comes behind that it serves
	if strings.Contains(p.log(), "INFO") {
		t.Errorf("the log is\n%s", p.log())
	}
}

// TestLife runs all three roles in one process, in one network namespace whose
// loopback has the addresses of all:
//
//	client 192.0.2.9 ── lo ── server 192.0.2.1, 192.0.2.2
//	                     └─── relay  192.0.2.3
//
// from start over reload to stop, and looks that nothing stays behind.
func TestLife(t *testing.T) {
	ns := testutil.NewNetns(t)
	addresses(t, ns, "lo", "192.0.2.1/32", "192.0.2.2/32", "192.0.2.3/32", "192.0.2.9/32")
	socket := filepath.Join(t.TempDir(), "control.sock")
	settings := func(rate, mtu int) string {
		return fmt.Sprintf(`
[[teredo_server]]
address = "192.0.2.1"
secondary = "192.0.2.2"
rate_total = %d

[[teredo_relay]]
mode = "host"
bind = "192.0.2.3:3545"
mtu = %d

[[teredo_client]]
server = "192.0.2.1"
bind = "192.0.2.9"
# The client may ask before the server listens.
qualification_timeout = "100ms"

[control]
socket = %q
`, rate, mtu, socket)
	}
	path := writeFile(t, settings(1000, 1280))
	service, notify := newManager(t)
	p := startProcess(t, ns, notify, "run", "-c", path)
	service.expect(t, "READY=1", p)
	asked := control.NewClient(socket)
	status := qualified(t, asked, p)
	if len(status.Instances) != 3 || status.PID != p.cmd.Process.Pid {
		t.Errorf("status: %+v", status)
	}
	if code, out, errs := call("status", "--socket", socket, "--peers"); code != 0 || !strings.Contains(out, "teredo_client client: qualified, 2001:0:c000:201:") {
		t.Errorf("isthmus status: %d\n%s%s", code, out, errs)
	}

	if err := os.WriteFile(path, []byte(settings(2000, 1400)), 0o600); err != nil {
		t.Fatal(err)
	}
	p.signal(t, syscall.SIGHUP)
	service.expect(t, "RELOADING=1", p)
	service.expect(t, "READY=1", p)
	code, out, errs := call("reload", "--socket", socket)
	if want := "reloaded\ntakes effect at the next start: teredo_relay relay: mtu\n"; code != 0 || out != want {
		t.Errorf("isthmus reload: %d\n%s%s", code, out, errs)
	}
	service.expect(t, "RELOADING=1", p)
	service.expect(t, "READY=1", p)
	if err := os.WriteFile(path, []byte("[[teredo_relay]]\nmtu = 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errs = call("reload", "--socket", socket)
	if checkCode, _, checkErrs := call("check", "-c", path); code != checkCode || errs != checkErrs || !strings.HasPrefix(errs, path+":2:7: teredo_relay.mtu: 5 is out of range") {
		t.Errorf("reload of a faulty file: %d\n%scheck: %d\n%s", code, errs, checkCode, checkErrs)
	}
	service.expect(t, "RELOADING=1", p)
	service.expect(t, "READY=1", p)
	qualified(t, asked, p)

	p.signal(t, syscall.SIGTERM)
	service.expect(t, "STOPPING=1", p)
	if err := <-p.done; err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, p.log())
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("the control socket was left behind")
	}
	ns.Do(t, func() error {
		links, err := testutil.Whole(func() ([]netlink.Link, error) { return netlink.LinkList() })
		for _, link := range links {
			if link.Type() == "tuntap" || link.Type() == "tun" {
				t.Errorf("the interface %s was left behind", link.Attrs().Name)
			}
		}
		return err
	})
}
