// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestSIITByCommands looks into a stateless translator with and without programs, ends it in
// every way, and starts it again.
func TestSIITByCommands(t *testing.T) {
	for _, mode := range []string{"off", "tc"} {
		t.Run(mode, func(t *testing.T) {
			g := newGate(t)
			socket := filepath.Join(t.TempDir(), "control.sock")
			path := writeFile(t, fmt.Sprintf(`
[[siit]]
name = "siit.%s"
pool6 = ["2001:db8:64::/96"]
eam = ["192.0.2.66 2001:db8:1::2"]
fast_path = %q
[control]
socket = %q
`, mode, mode, socket))
			service, notify := newManager(t)
			for _, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGUSR2, syscall.SIGTERM} {
				p := startProcess(t, g.gateway, notify, "run", "-c", path)
				service.expect(t, "READY=1", p)
				for range 5 {
					if seen := g.passes(t, p); seen != netip.MustParseAddrPort("192.0.2.66:7000") {
						t.Errorf("four saw %s", seen)
					}
				}
				g.siitCommands(t, p, mode, socket)
				p.signal(t, how)
				if how != syscall.SIGKILL {
					service.expect(t, "STOPPING=1", p)
				}
				if err := <-p.done; err != nil && how != syscall.SIGKILL {
					t.Errorf("after %v: %v\n%s", how, err, p.log())
				}
			}
		})
	}
}

// siitCommands asks the running translator by every command.
func (g *gate) siitCommands(t *testing.T, p *process, mode, socket string) {
	t.Helper()
	wants := map[string][]string{
		"off": {"it is switched off in the configuration", "to ipv4"},
		"tc":  {"path                         tc by ", "packets a second, fast path", " to IPv4, ", "to4 forwarded"},
	}[mode]
	status, out, errs := call("status", "--socket", socket)
	for _, want := range wants {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("isthmus status: %d, without %q\n%s%s", status, want, out, errs)
		}
	}
	for _, odd := range []string{"established", "not kept", "peers"} {
		if strings.Contains(out, odd) {
			t.Errorf("isthmus status speaks of %q:\n%s", odd, out)
		}
	}
	for _, tt := range []struct {
		args   string
		status int
		want   string
	}{
		{"siit map list", 0, "192.0.2.66/32  2001:db8:1::2/128"},
		{"siit map add 192.0.2.70 2001:db8:1::70", 0, "mapped 192.0.2.70/32 = 2001:db8:1::70/128"},
		{"siit map add 192.0.2.70 2001:db8:1::71", 1, "has the IPv4 prefix of mapping"},
		{"siit map list --json", 0, `"ipv4":"192.0.2.70/32"`},
		{"siit map remove 192.0.2.70 2001:db8:1::70", 0, "removed"},
		{"siit map remove 192.0.2.70 2001:db8:1::70", 1, "no such mapping"},
		{"siit map add nowhere 2001:db8:1::70", 2, "neither an address nor a prefix"},
		{"status siit." + mode + " --json", 0, fmt.Sprintf(`"mode": %q`, mode)},
	} {
		status, out, errs := call(append(strings.Fields(tt.args), "--socket", socket)...)
		if status != tt.status || !strings.Contains(out+errs, tt.want) {
			t.Errorf("isthmus %s: %d, want %d and %q\n%s%s", tt.args, status, tt.status, tt.want, out, errs)
		}
	}
	g.siitTrace(t, p, mode, socket)
}

// siitTrace follows packets until it has seen both directions.
func (g *gate) siitTrace(t *testing.T, p *process, mode, socket string) {
	t.Helper()
	filter, want := "engine", "192.0.2.66:7000"
	if mode == "tc" {
		filter, want = "forward", "forward (to6_forwarded): 192.0.2.7:7000 > 192.0.2.66:7000 udp"
	}
	type answer struct {
		status    int
		out, errs string
	}
	told := make(chan answer, 1)
	go func() {
		status, out, errs := call("trace", "--socket", socket, "-n", "4", filter, "and", "port", "7000")
		told <- answer{status, out, errs}
	}()
	for {
		g.passes(t, p)
		select {
		case a := <-told:
			if a.status != 0 || !strings.Contains(a.out, want) {
				t.Errorf("%d, without %q: %s%s", a.status, want, a.out, a.errs)
			}
			return
		default:
		}
	}
}
