// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/lab/peers/peerstest"
	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/ua"
	"github.com/isthmus-net/isthmus/sip/ua/agent"
)

// kamailio is Kamailio on the router.
type kamailio struct {
	all    *peers.Peers
	dir    string
	config peers.Kamailio
}

func (n *net3) kamailio(t *testing.T, p plan) *kamailio {
	t.Helper()
	k := &kamailio{all: peerstest.Find(t), dir: t.TempDir(), config: peers.Kamailio{
		Name: "kamailio", Listen: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr(p.router), 5060)}, Domain: domain,
	}}
	command, err := k.all.Kamailio(k.dir, k.config)
	program := startProgram(t, n.router, command, err)
	t.Cleanup(func() { // its processes outlive one that is killed
		_ = program.Process.Signal(syscall.SIGTERM)
		_ = program.Wait()
	})
	eventually(t, "Kamailio can be asked", func() bool { _, err := k.asked(t); return err == nil })
	return k
}

// asked are the contacts that it has.
func (k *kamailio) asked(t *testing.T) ([]string, error) {
	t.Helper()
	command, err := k.all.KamailioBindings(k.dir, k.config)
	if err != nil {
		t.Fatal(err)
	}
	printed, err := exec.Command(command.Path, command.Args...).Output()
	return peers.KamailioContacts(string(printed)), err
}

// TestKamailio has two agents register at Kamailio, of which one calls the other through it. Alice moves in
// the middle of the call, which goes on; her registration follows, and the BYE of either end arrives.
func TestKamailio(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		plan
		transport         string
		bobCalls, bobEnds bool
		leave             func(*testing.T, *net3)
	}{
		{"by UDP and IPv6, bob calls, alice moves hard, bob hangs up", plan6, "udp", true, true, func(t *testing.T, n *net3) { n.remove(t, plan6.mobileA) }},
		{"by UDP and IPv4, alice calls, moves softly, and hangs up", plan4, "udp", false, false, func(t *testing.T, n *net3) {
			n.mobile.Do(t, func() error { return route("b", plan4.routerB, 50) })
		}},
		{"by TCP and IPv6, alice calls, moves softly, bob hangs up", plan6, "tcp", false, true, func(t *testing.T, n *net3) {
			n.mobile.Do(t, func() error { return route("b", plan6.routerB, 50) })
		}},
		{"by TCP and IPv4, bob calls, alice moves hard, and hangs up", plan4, "tcp", true, false, func(t *testing.T, n *net3) { n.remove(t, plan4.mobileA) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := newNet3(t, row.plan)
			server := n.kamailio(t, row.plan)
			proxy := uri(row.router) + ";transport=" + row.transport
			numbers := func() (media.Source, media.Sink) { return media.Numbered{}, new(media.Tally) }
			alice := n.registerBy(t, n.mobile, proxy, "alice", numbers)
			bob := n.registerBy(t, n.peer, proxy, "bob", numbers)
			awaitPaths(t, alice, row.mobileA, 2)
			caller, callee, name := alice, bob, "bob"
			if row.bobCalls {
				caller, callee, name = bob, alice, "alice"
			}
			if _, err := caller.Call(t.Context(), "sip:"+name+"@"+domain); err != nil {
				t.Fatal(err)
			}
			await(t, caller, ua.Established)
			await(t, callee, ua.Established)
			heard(t, alice, 10)

			row.leave(t, n)
			await(t, alice, ua.Moved)
			await(t, bob, ua.PeerMoved)
			heard(t, alice, 20)
			heard(t, bob, 20)
			eventually(t, "Kamailio knows where alice is, and nothing else of her", func() bool {
				contacts, err := server.asked(t)
				contacts = slices.DeleteFunc(contacts, func(c string) bool { return !strings.HasPrefix(c, "sip:alice@") })
				return err == nil && len(contacts) == 1 && strings.HasPrefix(contacts[0], strings.Replace(uri(row.mobileB), "sip:", "sip:alice@", 1))
			})

			ends, other := alice, bob
			if row.bobEnds {
				ends, other = bob, alice
			}
			hangUpOnly(t, ends)
			ended(t, other)
		})
	}
}

// hangUpOnly ends the one call of an agent.
func hangUpOnly(t *testing.T, a *agent.Agent) {
	t.Helper()
	s, err := a.State(t.Context())
	if err != nil || len(s.Calls) != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	if err := a.HangUp(t.Context(), s.Calls[0].ID); err != nil {
		t.Fatal(err)
	}
}

// ended waits until an agent has no call any more.
func ended(t *testing.T, a *agent.Agent) {
	t.Helper()
	eventually(t, "the BYE has arrived", func() bool {
		s, err := a.State(t.Context())
		return err == nil && len(s.Calls) == 0
	})
}
