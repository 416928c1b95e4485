// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
)

// TestProgramSurvives kills the program, and stops it: sessions go on where they were.
func TestProgramSurvives(t *testing.T) {
	for _, mode := range []string{"off", "tc"} {
		t.Run(mode, func(t *testing.T) {
			w, dir := gatewaytest.NewWorld(t), t.TempDir()
			socket := filepath.Join(dir, "control.sock")
			path := program.File(t, fmt.Sprintf(`
[[nat64]]
name = "gate.%s"
clients = ["2001:db8:6::/48"]
pool6 = ["2001:db8:64::/96"]
pool4 = ["192.0.2.64"]
fast_path = %q
state_file = %q
[control]
socket = %q
`, mode, mode, filepath.Join(dir, "state"), socket))
			service, notify := program.NewManager(t)
			p := service.Serve(t, w.Gateway, notify, path)
			f := newFlow(t, w, 7000)
			f.passes(t)
			for _, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGUSR2} {
				service.End(t, p, how)
				if mode == "tc" && how != syscall.SIGTERM {
					f.passes(t) // no one is there but the programs
				}
				p = service.Serve(t, w.Gateway, notify, path)
				f.passes(t)
				if _, out := program.Call(t, "status", "--socket", socket, "--json"); !strings.Contains(out, `"adopted": 1`) {
					t.Errorf("after %v nothing was taken over: %s\n%s", how, out, p.Log())
				}
			}
			pool := f.pool.String()
			program.Commands(t, socket,
				program.Row{Args: "nat64 sessions", Want: "192.0.2.2:7000"},
				program.Row{Args: "nat64 sessions --transport tcp --json", Want: `"sessions":[]`},
				program.Row{Args: "nat64 sessions --inside 2001:db8:6::2 --limit 1", Want: pool},
				program.Row{Args: "nat64 sessions --inside nonsense", Status: 1, Want: "neither an address nor a prefix"},
				program.Row{Args: "nat64 bindings --outside " + pool, Want: "[2001:db8:6::2]:7000"},
				program.Row{Args: "nat64 blocks", Want: "2001:db8:6::/64"},
				program.Row{Args: "nat64 where " + pool, Want: "2001:db8:6::/64"},
				program.Row{Args: "nat64 where 2001:db8:6::2", Want: "192.0.2.64"},
				program.Row{Args: "nat64 where 192.0.2.64:1", Status: 1, Want: "no one has"},
				program.Row{Args: "nat64 where somewhere", Status: 2, Want: "neither an address"},
				program.Row{Args: "nat64 static add tcp [2001:db8:6::2]:80 192.0.2.64:80", Status: 1, Want: "not in pool4"},
				program.Row{Args: "nat64 static add tcp [2001:db8:6::2]:80 192.0.2.64:8080", Want: "bound tcp"},
				program.Row{Args: "nat64 static add tcp [2001:db8:2::2]:80 192.0.2.64:8081", Status: 1, Want: "in no network of clients"},
				program.Row{Args: "nat64 bindings --transport tcp", Want: "static"},
				program.Row{Args: "nat64 static remove tcp [2001:db8:6::2]:80 192.0.2.64:8080", Want: "ended tcp"},
				program.Row{Args: "nat64 static add tcp nowhere 192.0.2.64:8080", Status: 2, Want: "not an IPv6 address with a port"},
				program.Row{Args: "nat64 stats", Want: "sessions"},
				program.Row{Args: "nat64 stats -i other", Status: 1, Want: "no nat64 of that name is running"},
				program.Row{Args: "status", Want: "nat64 gate."},
			)
			service.End(t, p, syscall.SIGTERM)
		})
	}
}

// TestLeavesOverRestarts changes both pools before each end of the program: a flow of the
// first ones goes on.
func TestLeavesOverRestarts(t *testing.T) {
	for _, mode := range []string{"off", "tc"} {
		t.Run(mode, func(t *testing.T) {
			w, dir := gatewaytest.NewWorld(t), t.TempDir()
			path := filepath.Join(dir, "isthmus.toml")
			pools := func(n int) {
				text := fmt.Sprintf(`
[[nat64]]
name = "leaves.%s"
clients = ["2001:db8:6::/48"]
pool6 = ["2001:db8:%d::/96"]
pool4 = ["192.0.2.%d"]
fast_path = %q
state_file = %q
[control]
socket = %q
`, mode, n, n, mode, filepath.Join(dir, "state"), filepath.Join(dir, "control.sock"))
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			pools(64)
			service, notify := program.NewManager(t)
			p := service.Serve(t, w.Gateway, notify, path)
			f := newFlow(t, w, 7000)
			for i, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGUSR2, syscall.SIGKILL} {
				pools(65 + i)
				service.End(t, p, how)
				p = service.Serve(t, w.Gateway, notify, path)
				for range 3 {
					f.passes(t)
				}
				if _, out := program.Call(t, "status", "--socket", filepath.Join(dir, "control.sock")); !strings.Contains(out, "192.0.2.64, 2001:db8:64::/96") {
					t.Errorf("after %v the status does not say what is leaving: %s", how, out)
				}
			}
			service.End(t, p, syscall.SIGTERM)
		})
	}
}

// TestKilledAnswersNoMore kills the program and starts it with another pool: the host
// answers for that one alone.
func TestKilledAnswersNoMore(t *testing.T) {
	w := gatewaytest.NewWorld(t)
	service, notify := program.NewManager(t)
	for _, pool := range []string{"192.0.2.64", "192.0.2.65"} {
		p := service.Serve(t, w.Gateway, notify, program.File(t, fmt.Sprintf(`
[[nat64]]
name = "answers"
clients = ["2001:db8:6::/48"]
pool6 = ["2001:db8:64::/96"]
pool4 = [%q]
keep_state = false
fast_path = "off"
[control]
socket = %q
`, pool, filepath.Join(t.TempDir(), "control.sock"))))
		if got := w.Answers(t); !slices.Equal(got, []string{pool}) {
			t.Errorf("with pool %s it answers for %v", pool, got)
		}
		service.End(t, p, syscall.SIGKILL)
	}
}

// TestService has a NAT64 on the host's own address, with its fast path, the announcement of
// its prefix, and the FTP gateway.
func TestService(t *testing.T) {
	w := gatewaytest.NewWorld(t)
	s := program.NewService(t, w.Gateway, `
[[nat64]]
clients = ["2001:db8:6::/48"]
pool6 = ["2001:db8:64::/96"]
pool4 = ["192.0.2.1 20000-29999", "192.0.2.64"]
fast_path = "tc"
ftp = true
announce_pref64 = ["v6"]
state_file = "/var/lib/isthmus/state"
`)
	p := s.Start(t)
	f := newFlow(t, w, 7000)
	for _, how := range []syscall.Signal{syscall.SIGUSR2, syscall.SIGTERM} {
		s.Stop(t, p, how)
		p = s.Start(t)
		f.passes(t)
	}
	greets(t, w, p)
	s.End(t, p)
}

// greets has an FTP server greet a client, which takes the FTP gateway.
func greets(t *testing.T, w *gatewaytest.World, p *program.Process) {
	t.Helper()
	var listener net.Listener
	w.Four.Do(t, func() (err error) {
		listener, err = net.Listen("tcp4", "192.0.2.2:21")
		return err
	})
	defer listener.Close()
	const greeting = "220 welcome\r\n"
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_, _ = conn.Write([]byte(greeting))
			_, _ = conn.Read(make([]byte, 1))
			conn.Close()
		}
	}()
	var conn net.Conn
	w.Six.Do(t, func() (err error) {
		conn, err = net.DialTimeout("tcp6", ftpServer.String(), testutil.Patience)
		return err
	})
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || line != greeting {
		t.Errorf("the client was greeted with %q, %v\n%s", line, err, p.Log())
	}
}
