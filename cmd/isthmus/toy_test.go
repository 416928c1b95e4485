// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/echo"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
)

// withToy adds the toy to the roles of the program until the test ends.
func withToy(t *testing.T) {
	t.Helper()
	before := roles
	roles = append(slices.Clone(roles), echo.Role)
	t.Cleanup(func() { roles = before })
}

// TestToyCommands: a role that is one directory and one line of the list has init and
// check, with errors that name place and remedy.
func TestToyCommands(t *testing.T) {
	withToy(t)
	configtest.One(t, echo.Role.Section, echo.Role.Reference())
	good, bad := program.File(t, "[[echo]]\n"), program.File(t, "[[echo]]\nlisten = \"here\"\n")
	for _, tt := range []struct {
		name   string
		args   []string
		status int
		out    string // part of the output
	}{
		{"init", []string{"init", "echo"}, 0, "# Echo (RFC 862): answers by UDP what it is sent.\n[[echo]]\n"},
		{"check", []string{"check", "--file-only", "-c", good}, 0, "echo  echo  echoes on UDP 127.0.0.1:7007\n" + good + " is good\n"},
		{"check of a bad file", []string{"check", "-c", bad}, 2, bad + ":2:10: echo.listen: \"here\" is not an address with a port: write it like 127.0.0.1:7\n  2 | listen = \"here\"\n    |          ^^^^^^\n"},
		{"what there could be to run", []string{"check", "--file-only", "-c", program.File(t, "")}, 1, "[[echo]] (isthmus init prints examples)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, out, errs := call(tt.args...)
			if status != tt.status || !strings.Contains(out+errs, tt.out) {
				t.Errorf("%d:\n%s%s\nwant %d and\n%s", status, out, errs, tt.status, tt.out)
			}
		})
	}
}

// TestToyRuns: it has run, status, metrics and reload, too.
func TestToyRuns(t *testing.T) {
	withToy(t)
	port, metrics := testutil.FreePort(), testutil.FreePort()
	path, socket := filepath.Join(t.TempDir(), "isthmus.toml"), filepath.Join(t.TempDir(), "s")
	write := func(keys string) {
		text := fmt.Sprintf("[[echo]]\n%s\n[control]\nsocket = %q\n[metrics]\nlisten = \"127.0.0.1:%d\"\n", keys, socket, metrics)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(fmt.Sprintf("listen = \"127.0.0.1:%d\"", port))
	ended := make(chan string, 1)
	go func() {
		status, _, errs := call("run", "-c", path)
		ended <- fmt.Sprint(status, errs)
	}()
	for out := ""; !strings.Contains(out, "\necho echo: ready\n"); {
		select {
		case end := <-ended:
			t.Fatalf("it ended: %s", end)
		case <-time.After(10 * time.Millisecond):
			_, out, _ = call("status", "--socket", socket)
		}
	}
	if got := ask(t, port); got != "hello" {
		t.Errorf("echo %q", got)
	}
	response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", metrics))
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(response.Body)
	response.Body.Close()
	if want := `isthmus_echo_echoed_total{instance="echo"} 1`; !strings.Contains(string(text), want) {
		t.Errorf("%s is not among the metrics", want)
	}
	write("prefix = \"to\"")
	if status, out, errs := call("reload", "--socket", socket); status != 0 || out != "reloaded\ntakes effect at the next start: echo echo: listen\n" {
		t.Errorf("reload: %d %s%s", status, out, errs)
	}
	if got := ask(t, port); got != "tohello" {
		t.Errorf("echo %q after the reload", got)
	}
	if err := unix.Kill(os.Getpid(), unix.SIGTERM); err != nil { // run listens for it
		t.Fatal(err)
	}
	if end := <-ended; !strings.HasPrefix(end, "0") {
		t.Errorf("it ended with %s", end)
	}
}

// asToys makes the test binary behave as isthmus with the toys among its roles.
const asToys = "toys"

// TestToyCarriesPackets: a role with a device, a route, a list of tables, a question and an
// order has all of what others have, too.
func TestToyCarriesPackets(t *testing.T) {
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		address, err := netlink.ParseAddr("2001:db8:1::1/128")
		return errors.Join(err, netlink.LinkSetUp(lo), netlink.AddrAdd(lo, address))
	})
	socket := filepath.Join(t.TempDir(), "s")
	path := filepath.Join(t.TempDir(), "isthmus.toml")
	write := func(more string) {
		text := fmt.Sprintf("[control]\nsocket = %q\n[[mirror]]\nprefix = \"2001:db8:5::/64\"\n%s\n[[mirror.host]]\nname = \"a\"\naddress = \"2001:db8:5::1\"\n", socket, more)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	as := func(c *exec.Cmd) { c.Env = append(c.Env, program.As(asToys)) }
	isthmus := func(args ...string) (out string) {
		t.Helper()
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command(self, args...)
		c.Env = os.Environ()
		as(c)
		ns.Do(t, func() error {
			text, _ := c.CombinedOutput() // what it says is judged, not how it ends
			out = string(text)
			return nil
		})
		return out
	}
	wants := func(out string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%q is not in:\n%s", w, out)
			}
		}
	}
	write("")
	wants(isthmus("init", "mirror"), "[[mirror]]", "prefix = ")
	wants(isthmus("check", "-c", path), "mirror  mirror  mirrors 2001:db8:5::/64, 1 hosts", "is good")
	service, notify := program.NewManager(t)
	p := program.StartAs(t, ns, notify, as, "run", "-c", path)
	service.Expect(t, "READY=1", p)
	if got := mirrored(t, ns); got != "hello" {
		t.Fatalf("came back %q\n%s", got, p.Log())
	}
	wants(isthmus("status", "--socket", socket), "mirror mirror: serving", "mirrored")
	wants(isthmus("mirror", "stats", "--socket", socket), "mirrored")
	wants(isthmus("mirror", "host", "list", "--socket", socket), "a     2001:db8:5::1")
	wants(isthmus("mirror", "host", "mute", "b", "--socket", socket), `there is no host "b"`)
	wants(isthmus("mirror", "host", "mute", "a", "--socket", socket), "muted a")
	write("interface = \"other\"\nhop_limit = 9")
	wants(isthmus("reload", "--socket", socket), "mirror mirror: interface")
	service.Expect(t, "RELOADING=1", p)
	service.Expect(t, "READY=1", p)
	wants(isthmus("clean", "-c", path), "what the mirrors left")
	service.End(t, p, syscall.SIGTERM)
	ns.Do(t, func() error {
		if _, err := netlink.LinkByName("mirror"); err == nil {
			t.Error("its device is still there")
		}
		return nil
	})
}

// mirrored sends a datagram to a host of the mirror and returns what comes back.
func mirrored(t *testing.T, ns *testutil.Netns) (got string) {
	t.Helper()
	ns.Do(t, func() error {
		at := &net.UDPAddr{IP: net.ParseIP("2001:db8:1::1"), Port: 7007}
		conn, err := net.DialUDP("udp6", at, &net.UDPAddr{IP: net.ParseIP("2001:db8:5::1"), Port: 7007})
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("hello")); err != nil {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(testutil.Patience)); err != nil {
			return err
		}
		buffer := make([]byte, 100)
		n, err := conn.Read(buffer)
		got = string(buffer[:n])
		return err
	})
	return got
}

// ask sends a word and returns what comes back.
func ask(t *testing.T, port uint16) string {
	t.Helper()
	conn, err := net.Dial("udp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 100)
	if err := conn.SetReadDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	n, err := conn.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	return string(buffer[:n])
}
