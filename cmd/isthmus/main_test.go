// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
)

// call runs a command line and returns what it wrote.
func call(args ...string) (status int, out, errs string) {
	var o, e bytes.Buffer
	status = execute(args, streams{&o, &e})
	return status, o.String(), e.String()
}

func TestCommandLine(t *testing.T) {
	good := program.File(t, "[[teredo_client]]\nserver = \"192.0.2.1\"\n")
	bad := program.File(t, "[[teredo_client]]\nserver = \"192.0.2\"\nmtu = 5\n")
	empty := program.File(t, "[log]\nlevel = \"warn\"\n")
	silent := program.File(t, "[control]\nsocket = \"\"\n")
	missing := filepath.Join(t.TempDir(), "none.toml")
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		args   []string
		status int
		out    string // part of the output
		err    string // part of the errors
	}{
		{"no command", nil, 0, "Usage: isthmus <command>", ""},
		{"help tells exit statuses", []string{"--help"}, 0, "Exit status: 0 for success, 1 for a failure, 2 for", ""},
		{"help", []string{"run", "--help"}, 0, "--config=FILE", ""},
		{"unknown command", []string{"walk"}, 2, "", "isthmus: unexpected argument walk"},
		{"version", []string{"version"}, 0, "isthmus unknown\n", ""},
		{"version as JSON", []string{"version", "--json"}, 0, `"kernel":`, ""},
		{"init prints", []string{"init", "teredo_relay"}, 0, "[[teredo_relay]]", ""},
		{"init of nothing known", []string{"init", "bridge"}, 2, "", `got "bridge"`},
		{"check good file", []string{"check", "--file-only", "-c", good}, 0, "client  client  uses 192.0.2.1, device teredo, drops unsolicited IPv6 packets, steps aside for native IPv6\n" + good + " is good\n", ""},
		{"check bad file", []string{"check", "-c", bad}, 2, "", "isthmus: the configuration has 2 faults; nothing was changed\n"},
		{"check names the line", []string{"check", "-c", bad}, 2, "", bad + `:2:10: teredo_client.server: "192.0.2" is not an IPv4 address: write it like 192.0.2.1`},
		{"check names the sections", []string{"check", "-c", program.File(t, "[tunnel]\n")}, 2, "", "tunnel: there is no such section: known ones are " + strings.Join(roles.Names(), ", ") + ", announce, control, metrics, log\n"},
		{"check file without instances", []string{"check", "--file-only", "-c", empty}, 1, "problem: there is nothing to run", ""},
		{"check as JSON", []string{"check", "--file-only", "--json", "-c", empty}, 1, `"instances": []`, ""},
		{"check bad file as JSON", []string{"check", "--json", "-c", bad}, 2, `"key": "teredo_client.mtu"`, ""},
		{"check without file", []string{"check", "-c", missing}, 1, "", "there is no configuration " + missing + ": make one with isthmus init"},
		{"run without file", []string{"run", "-c", missing}, 1, "", "there is no configuration " + missing},
		{"run a bad file", []string{"run", "-c", bad}, 2, "", "2 faults"},
		{"a client without server", []string{"teredo", "client", ""}, 2, "", "isthmus: "},
		{"run without name of a file", []string{"run", "-c", ""}, 2, "", "isthmus: -c names no file: write one behind it, or leave -c out for /etc/isthmus/isthmus.toml\n"},
		{"check without name of a file", []string{"check", "-c", ""}, 2, "", "isthmus: -c names no file"},
		{"check a pipe", []string{"check", "-c", pipe}, 1, "", "isthmus: " + pipe + " is a pipe that no one writes to: name a file with -c\n"},
		{"check a folder", []string{"check", "-c", filepath.Dir(pipe)}, 1, "", "is a folder: name a file in it with -c"},
		{"no Teredo address", []string{"teredo", "addr", ""}, 2, "", "isthmus: \"\" is not an IPv6 address: write it like 2001:0:cb00:7101:2c41:e148:34ff:8ef5\n"},
		{"a client of nobody", []string{"teredo", "client", "10.0.0.1"}, 2, "", "isthmus: clients refuse 10.0.0.1"},
		{"status without daemon", []string{"status", "--socket", missing}, 1, "", "no isthmus is running with the control socket " + missing},
		{"status without socket", []string{"status", "-c", silent}, 1, "", "switches the control socket off"},
		{"status with a limit below zero", []string{"status", "--limit=-1"}, 2, "", "--limit=-1: write a number from 0 to 10000"},
		{"status with a limit above the largest", []string{"status", "--limit=10001"}, 2, "", "--limit=10001"},
		{"lab without runs", []string{"lab", "run", "--runs=-1", "teredo"}, 2, "", "--runs=-1: write a number from 1"},
		{"traffic of small messages", []string{"lab", "traffic", "send", "[::1]:8999", "--size", "3"}, 2, "", "messages of 3 octets cannot be sent: sizes lie between 24 and 32768"},
		{"traffic without end", []string{"lab", "traffic", "send", "[::1]:8999", "--time", "0s"}, 2, "", "a flow needs an end"},
		{"traffic to no port", []string{"lab", "traffic", "send", "::1"}, 2, "", "write the receiver like [2001:db8::1]:8999"},
		{"traffic of two sizes", []string{"lab", "traffic", "send", "[::1]:8999", "--max-size", "600", "--exponential"}, 2, "", "can't be used together"},
		{"traffic received in no windows", []string{"lab", "traffic", "receive", "--window", "0s"}, 2, "", "write a --window of 1ms or more"},
		{"reload without daemon", []string{"reload", "--socket", missing}, 1, "", "no isthmus is running"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, out, errs := call(tt.args...)
			if status != tt.status {
				t.Errorf("exit status %d, want %d", status, tt.status)
			}
			if !strings.Contains(out, tt.out) || (tt.out == "" && out != "") {
				t.Errorf("output:\n%s\nwant:\n%s", out, tt.out)
			}
			if !strings.Contains(errs, tt.err) || (tt.err == "" && errs != "") {
				t.Errorf("errors:\n%s\nwant:\n%s", errs, tt.err)
			}
		})
	}
}

// TestInitIsCheckable writes every example and checks it.
func TestInitIsCheckable(t *testing.T) {
	for _, what := range []string{"teredo_client", "teredo_server", "teredo_relay", "host-relay", "closed-network", "reference"} {
		path := filepath.Join(t.TempDir(), "new", "isthmus.toml")
		if status, _, errs := call("init", what, "-o", path); status != 0 || !strings.Contains(errs, "isthmus check -c "+path) {
			t.Fatalf("init %s: %d\n%s", what, status, errs)
		}
		if status, out, errs := call("check", "--file-only", "-c", path); status != 0 {
			t.Errorf("check %s: %d\n%s%s", what, status, out, errs)
		}
		status, _, errs := call("init", what, "-o", path)
		if status != 1 || !strings.Contains(errs, path+" exists already and is left as it is") {
			t.Errorf("second init %s: %d\n%s", what, status, errs)
		}
	}
}

func TestUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads everything")
	}
	path := program.File(t, "")
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := call("check", "-c", path); status != 1 || !strings.Contains(errs, "may not read the configuration") {
		t.Errorf("%d\n%s", status, errs)
	}
}

// TestCheckPipe reads what a shell hands over as <(command).
func TestCheckPipe(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	go func() {
		_, _ = write.WriteString("[[teredo_client]]\nserver = \"192.0.2.1\"\n")
		_ = write.Close()
	}()
	path := fmt.Sprintf("/proc/self/fd/%d", read.Fd())
	if status, out, errs := call("check", "--file-only", "-c", path); status != 0 || !strings.Contains(out, "is good") {
		t.Errorf("%d\n%s%s", status, out, errs)
	}
}

func TestStatusTables(t *testing.T) {
	socket := serveTold(t)
	status, got, errs := call("status", "--socket", socket, "--peers", "--limit", "9")
	if status != 0 || errs != "" {
		t.Fatalf("%d: %s", status, errs)
	}
	want := `isthmus 1.0, process 7, up 1h0m0s, /etc/isthmus/isthmus.toml

teredo_client home: qualified, 2001:0:c000:201::1
  nat mapping          endpoint-independent
  nat symmetric        no
  servers              192.0.2.1, 192.0.2.2
  peers                1
  rx packets           12
  dropped: not global  5
  dropped: truncated   1

teredo_relay border: device down
  address  2001:db8::1

teredo_client cut: qualified, 2001:0:c000:201::2, but its device is down
  device down  yes

teredo_client down: device down, 2001:0:c000:201::3
  device down  yes

teredo_client alone: off-line

teredo_server public: starting

peers of home: 1 of 2
  address     mapped            trusted  received  sent   queued
  invalid IP  invalid AddrPort  yes      never     never  9
`
	// Time may pass between the daemon's answer and what is shown of it.
	got = regexp.MustCompile(`up 1h0m[0-9]+s`).ReplaceAllString(got, "up 1h0m0s")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStatusOfOne(t *testing.T) {
	socket := serveTold(t)
	status, out, _ := call("status", "--socket", socket, "--json", "public")
	var got statusReport
	if err := json.Unmarshal([]byte(out), &got); err != nil || status != 0 || len(got.Instances) != 1 || got.Instances[0].Name != "public" {
		t.Errorf("%d, %v:\n%s", status, err, out)
	}
	if status, _, errs := call("status", "--socket", socket, "nobody"); status != 1 || !strings.Contains(errs, `no instance is named "nobody"`) {
		t.Errorf("%d: %s", status, errs)
	}
}

// TestSocketOfEnvironment asks the daemon that the environment names, unless the
// command line names another.
func TestSocketOfEnvironment(t *testing.T) {
	t.Setenv(control.SocketVariable, serveTold(t))
	if status, out, errs := call("status"); status != 0 || !strings.Contains(out, "teredo_client home: qualified") {
		t.Errorf("status: %d: %s%s", status, out, errs)
	}
	if status, out, errs := call("reload"); status != 0 || !strings.HasPrefix(out, "reloaded") {
		t.Errorf("reload: %d: %s%s", status, out, errs)
	}
	missing := filepath.Join(t.TempDir(), "none.sock")
	other := program.File(t, "[control]\nsocket = \""+missing+"\"\n")
	for _, args := range [][]string{{"status", "--socket", missing}, {"status", "-c", other}} {
		if status, _, errs := call(args...); status != 1 || !strings.Contains(errs, "no isthmus is running with the control socket "+missing) {
			t.Errorf("%v: %d: %s", args, status, errs)
		}
	}
}

func TestReload(t *testing.T) {
	socket := serveTold(t)
	status, out, errs := call("reload", "--socket", socket)
	if want := "reloaded\ntakes effect at the next start: teredo_client home: port, bind\n"; status != 0 || out != want {
		t.Errorf("%d: %s%s", status, out, errs)
	}
	if _, out, _ := call("reload", "--socket", socket, "--json"); !strings.Contains(out, `"keys":["port","bind"]`) {
		t.Errorf("JSON: %s", out)
	}
}

// TestAlreadyRunning finds the daemon that holds the socket, in check and run.
func TestAlreadyRunning(t *testing.T) {
	socket := serveTold(t)
	named := func(name string, lines ...string) string {
		return program.File(t, "[[teredo_client]]\nname = \""+name+"\"\nserver = \"192.0.2.1\"\n"+strings.Join(lines, "\n")+"\n[control]\nsocket = \""+socket+"\"\n")
	}
	path := named("home")
	if status, out, _ := call("check", "-c", path); status != 0 || !strings.Contains(out, "an isthmus is running with it or its instances") {
		t.Errorf("check: %d: %s", status, out)
	}
	// Files that keys name are looked at all the same: a reload reads them.
	if status, out, _ := call("check", "-c", named("home", `key_id = "a"`, `key_secret_file = "/nowhere"`)); status != 1 || !strings.Contains(out, "there is no file /nowhere") {
		t.Errorf("check with a file that is not there: %d: %s", status, out)
	}
	// One that runs other instances is in the way, and no reason to look at nothing.
	if status, out, _ := call("check", "-c", named("away")); status != 1 || !strings.Contains(out, "another isthmus is running and listens on "+socket) {
		t.Errorf("check of another: %d: %s", status, out)
	}
	if status, _, errs := call("run", "-c", path); status != 1 || !strings.Contains(errs, "an isthmus is running already with the control socket "+socket) {
		t.Errorf("run: %d: %s", status, errs)
	}
	if status, out, _ := call("status", "-c", path); status != 0 || !strings.Contains(out, "teredo_client home: qualified, ") {
		t.Errorf("status: %d: %s", status, out)
	}
}

// TestNothingIsChangedBefore runs a configuration whose port is taken.
func TestNothingIsChangedBefore(t *testing.T) {
	busy, err := net.ListenUDP("udp4", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	_, port, err := net.SplitHostPort(busy.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "control.sock")
	path := program.File(t, "[[teredo_client]]\nserver = \"192.0.2.1\"\nport = "+port+"\n[control]\nsocket = \""+socket+"\"\n")
	status, _, errs := call("run", "-c", path)
	if status != 1 || !strings.Contains(errs, "UDP port "+port+" on 0.0.0.0 is in use by another program") {
		t.Errorf("%d: %s", status, errs)
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("the control socket was made all the same")
	}
}

func TestLog(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, stream string
		format       config.Format
		want         string
	}{
		{"journal", stream(info), config.FormatText, "level=INFO msg=ready n=1\n"},
		{"journal of another process", "1:1", config.FormatText, "time="},
		{"terminal", "", config.FormatText, "time="},
		{"JSON for the journal", stream(info), config.FormatJSON, `{"level":"INFO","msg":"ready","n":1}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("JOURNAL_STREAM", tt.stream)
			if err := file.Truncate(0); err != nil {
				t.Fatal(err)
			}
			if _, err := file.Seek(0, 0); err != nil {
				t.Fatal(err)
			}
			log := slog.New(logHandler(file, tt.format, slog.LevelInfo))
			log.Debug("hidden")
			log.Info("ready", "n", 1)
			got, err := os.ReadFile(file.Name())
			if err != nil || !strings.HasPrefix(string(got), tt.want) || strings.Contains(string(got), "hidden") {
				t.Errorf("got %q, want %q, error %v", got, tt.want, err)
			}
		})
	}
}

// FuzzFlatten checks that every state that is JSON can be shown.
func FuzzFlatten(f *testing.F) {
	f.Add(`{"a":{"b":[1,{"c":null}]},"d":"x"}`)
	f.Add(``)
	f.Add(`[[[`)
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := flatten(json.RawMessage(text)); err != nil && json.Valid([]byte(text)) {
			t.Errorf("%q is JSON, but: %v", text, err)
		}
	})
}
