// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/testutil/program"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
)

// TestByCommands looks into a stateless translator with and without programs, ends it in
// every way, and starts it again.
func TestByCommands(t *testing.T) {
	for _, mode := range []string{"off", "tc"} {
		t.Run(mode, func(t *testing.T) {
			w := gatewaytest.NewWorld(t)
			socket := filepath.Join(t.TempDir(), "control.sock")
			path := program.File(t, fmt.Sprintf(`
[[siit]]
name = "siit.%s"
pool6 = ["2001:db8:64::/96"]
eam = ["192.0.2.66 2001:db8:6::2"]
fast_path = %q
[control]
socket = %q
`, mode, mode, socket))
			service, notify := program.NewManager(t)
			flow := newPair(t, w, 7000)
			for _, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGUSR2, syscall.SIGTERM} {
				p := service.Serve(t, w.Gateway, notify, path)
				for range 5 {
					flow.passes(t)
				}
				asks(t, mode, socket)
				tracePackets(t, flow, mode, socket)
				service.End(t, p, how)
			}
		})
	}
}

// asks puts every question and order to the running translator.
func asks(t *testing.T, mode, socket string) {
	t.Helper()
	wants := map[string][]string{
		"off": {"it is switched off in the configuration", "to ipv4"},
		"tc":  {"path                         tc by ", "packets a second, fast path", " to IPv4, ", "to4 forwarded"},
	}[mode]
	status, out := program.Call(t, "status", "--socket", socket)
	for _, want := range wants {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("isthmus status: %d, without %q\n%s", status, want, out)
		}
	}
	for _, odd := range []string{"established", "not kept", "peers"} {
		if strings.Contains(out, odd) {
			t.Errorf("isthmus status speaks of %q:\n%s", odd, out)
		}
	}
	program.Commands(t, socket,
		program.Row{Args: "siit map list", Want: "192.0.2.66/32  2001:db8:6::2/128"},
		program.Row{Args: "siit map add 192.0.2.70 2001:db8:6::70", Want: "mapped 192.0.2.70/32 = 2001:db8:6::70/128"},
		program.Row{Args: "siit map add 192.0.2.70 2001:db8:6::71", Status: 1, Want: "has the IPv4 prefix of mapping"},
		program.Row{Args: "siit map list --json", Want: `"ipv4":"192.0.2.70/32"`},
		program.Row{Args: "siit map remove 192.0.2.70 2001:db8:6::70", Want: "removed"},
		program.Row{Args: "siit map remove 192.0.2.70 2001:db8:6::70", Status: 1, Want: "no such mapping"},
		program.Row{Args: "siit map add nowhere 2001:db8:6::70", Status: 2, Want: "neither an address nor a prefix"},
		program.Row{Args: "siit map list -i other", Status: 1, Want: `no siit is named "other"`},
		program.Row{Args: "status siit." + mode + " --json", Want: fmt.Sprintf(`"mode": %q`, mode)},
	)
}

// tracePackets follows packets until it has seen both directions.
func tracePackets(t *testing.T, flow *pair, mode, socket string) {
	t.Helper()
	filter, want := "engine", "192.0.2.66:7000"
	if mode == "tc" {
		filter, want = "forward", "forward (to6_forwarded): 192.0.2.2:7000 > 192.0.2.66:7000 udp"
	}
	type answer struct {
		status int
		out    string
	}
	told := make(chan answer, 1)
	go func() {
		status, out := program.Call(t, "trace", "--socket", socket, "-n", "4", filter, "and", "port", "7000")
		told <- answer{status, out}
	}()
	for {
		flow.passes(t)
		select {
		case a := <-told:
			if a.status != 0 || !strings.Contains(a.out, want) {
				t.Errorf("%d, without %q: %s", a.status, want, a.out)
			}
			return
		default:
		}
	}
}

// TestService has a stateless translator as the packaged service, with its fast path.
func TestService(t *testing.T) {
	w := gatewaytest.NewWorld(t)
	s := program.NewService(t, w.Gateway, `
[[siit]]
pool6 = ["2001:db8:64::/96"]
eam = ["192.0.2.66 2001:db8:6::2"]
fast_path = "tc"
`)
	p := s.Start(t)
	flow := newPair(t, w, 7000)
	for range 3 {
		flow.passes(t)
	}
	s.End(t, p)
}

// TestServiceSharesDevices has two instances of the packaged service at the same devices. It may
// not ask the kernel for the names of programs, and each finds that the other is no stranger.
func TestServiceSharesDevices(t *testing.T) {
	w := gatewaytest.NewWorld(t)
	s := program.NewService(t, w.Gateway, `
[[siit]]
pool6 = ["2001:db8:64::/96"]
eam = ["192.0.2.66 2001:db8:6::2"]
[[nat64]]
clients = ["2001:db8:6::/64"]
pool6 = ["2001:db8:65::/96"]
pool4 = ["198.51.100.0/28"]
`)
	p := s.Start(t)
	w.Gateway.Do(t, func() error { // each looks again
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "other0"}, PeerName: "other1"})
	})
	flow := newPair(t, w, 7000)
	for range 3 {
		flow.passes(t)
	}
	if n := strings.Count(p.Log(), "the fast path is attached"); n != 2 || strings.Contains(p.Log(), "the engine carries all packets") {
		t.Errorf("%d have a fast path:\n%s", n, p.Log())
	}
	s.End(t, p)
}
