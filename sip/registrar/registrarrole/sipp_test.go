// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/lab/peers/peerstest"
)

// sippCalls is how many of each kind there are, and sippRate how many a second.
const sippCalls, sippRate = 300, 200

// TestSippRegisters has sipp register some hundred times, by UDP and by TCP.
func TestSippRegisters(t *testing.T) {
	w := newWorld(t)
	all := peerstest.Find(t)
	ns, server, terminal := w.home(1)
	s := w.serve(fmt.Sprintf("listen = [%q]\nlisten_tls = []\nalgorithms = [\"MD5\"]", server))
	for i, tcp := range []bool{false, true} {
		command, err := all.Sipp(w.dir, peers.Sipp{
			Name: fmt.Sprint("sipp", tcp), Scenario: peers.SippRegistration(domain, ""), Users: []string{"alice"}, Domain: domain, Local: netip.AddrPortFrom(terminal, uint16(5080+i)), Remote: netip.AddrPortFrom(server, sipPort),
			TCP: tcp, Calls: sippCalls, Rate: sippRate,
		})
		cmd, out := start(t, ns, command, err)
		if err := cmd.Wait(); err != nil {
			t.Errorf("by TCP %t: %v\n%s", tcp, err, out)
		}
		if n := s.value("registrations_total", ""); n < float64((i+1)*sippCalls) {
			t.Errorf("by TCP %t: %v registrations", tcp, n)
		}
	}
	if n := len(s.has(t, "alice@example.net")); n != 2 {
		t.Errorf("%d bindings", n)
	}
}

// TestSippCalls has sipp call sipp some hundred times through the proxy, from UDP to TCP and from TCP
// to UDP. None fails.
func TestSippCalls(t *testing.T) {
	w := newWorld(t)
	all := peerstest.Find(t)
	callers, callerSide, caller := w.home(1)
	callees, calleeSide, callee := w.home(2)
	s := w.serve(fmt.Sprintf("listen = [%q, %q, %q]\nlisten_tls = []", callerSide, calleeSide, server6))
	bob := w.phone("bob", "UDP", server6, 2)
	for i, tt := range []struct{ from, to bool }{{false, true}, {true, false}} {
		port := uint16(5080 + i)
		transport := "udp"
		if tt.to {
			transport = "tcp"
		}
		bob.ask("REGISTER", "sip:"+domain, "Contact: *", "Expires: 0")
		if _, r := bob.ask("REGISTER", "sip:"+domain, fmt.Sprintf("Contact: <sip:bob@[%s]:%d;transport=%s>", callee, port, transport)); r.Status != 200 {
			t.Fatal(r)
		}
		run := func(scenario, name string, of netip.Addr, side netip.Addr, tcp bool) (*peers.Command, error) {
			return all.Sipp(w.dir, peers.Sipp{
				Name: fmt.Sprint(name, i), Scenario: scenario, Domain: domain, Local: netip.AddrPortFrom(of, port), Remote: netip.AddrPortFrom(side, sipPort),
				TCP: tcp, Calls: sippCalls, Rate: sippRate,
			})
		}
		command, err := run(peers.SippAnswering("bob"), "callee", callee, calleeSide, tt.to)
		answers, answered := start(t, callees, command, err)
		awaitPort(t, callees, port, transport)
		command, err = run(peers.SippCalling(domain, "bob"), "caller", caller, callerSide, tt.from)
		calls, called := start(t, callers, command, err)
		if err := calls.Wait(); err != nil {
			t.Errorf("from TCP %t to TCP %t: %v\n%s", tt.from, tt.to, err, called)
		}
		if err := answers.Wait(); err != nil {
			t.Errorf("from TCP %t to TCP %t, the callee: %v\n%s", tt.from, tt.to, err, answered)
		}
	}
	if n := s.value("requests_total", "unproved"); n != 0 {
		t.Errorf("%v were not proved", n)
	}
}

// awaitPort waits until somebody in a namespace has a port of a transport: a call that comes sooner fails.
func awaitPort(t *testing.T, ns *testutil.Netns, port uint16, transport string) {
	t.Helper()
	local := fmt.Appendf(nil, ":%04X ", port)
	eventually(t, fmt.Sprintf("port %d of %s is open", port, transport), func() (open bool) {
		ns.Do(t, func() error {
			table, err := os.ReadFile("/proc/thread-self/net/" + transport + "6")
			open = bytes.Contains(table, local)
			return err
		})
		return open
	})
}
