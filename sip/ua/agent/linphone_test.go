// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/lab/peers/peerstest"
	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/ua"
	"github.com/isthmus-net/isthmus/sip/ua/agent"
)

// linphone is bob's linphone, which is registered.
func (n *net3) linphone(t *testing.T, all *peers.Peers, p plan) *program {
	t.Helper()
	dir := t.TempDir()
	c := peers.Linphone{Name: "bob", Port: 5060, User: "bob", Domain: domain, Password: "bob", Server: netip.MustParseAddr(p.router), Play: linear(noise(2, 3000))}
	command, err := all.Linphone(dir, c)
	bob := startProgram(t, n.peer, command, err)
	for _, line := range c.Orders(dir) {
		bob.order(t, line)
	}
	bob.says(t, "Using wav files")
	eventually(t, "linphone registers", func() bool {
		bob.order(t, "status register")
		time.Sleep(100 * time.Millisecond) // it answers each
		return bob.said("registered, identity")
	})
	return bob
}

// hears waits until an agent has got so many packets more of its one call.
func hears(t *testing.T, a *agent.Agent, packets uint64) {
	t.Helper()
	count := func() uint64 {
		s, err := a.State(t.Context())
		if err != nil || len(s.Calls) != 1 {
			t.Fatalf("%+v, %v", s.Calls, err)
		}
		return s.Calls[0].Media.Received
	}
	want := count() + packets
	eventually(t, "linphone is heard", func() bool { return count() >= want })
}

// TestLinphone has calls with Debian's linphone, each by the other and ended by the other, and hold by
// either end (RFC 3261, 3264 section 8.4).
func TestLinphone(t *testing.T) {
	t.Parallel()
	all := peerstest.Find(t)
	for _, row := range families {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := newNet3(t, row.plan)
			n.serve(t, row.plan)
			sound := noise(1, 1000)
			alice := n.register(t, n.mobile, row.plan, "alice", func() (media.Source, media.Sink) { return sound, nil })
			bob := n.linphone(t, all, row.plan)

			id, err := alice.Call(t.Context(), "sip:bob@"+domain)
			if err != nil {
				t.Fatal(err)
			}
			bob.says(t, "Receiving new incoming call from sip:alice@"+domain)
			bob.order(t, "answer")
			await(t, alice, ua.Established)
			bob.says(t, "Media streams established")
			hears(t, alice, 20)

			hold(t, alice, id, true)
			bob.says(t, "has been paused by")
			hold(t, alice, id, false)
			bob.says(t, "Media streams established")
			hears(t, alice, 20)

			bob.order(t, "pause")
			await(t, alice, ua.Renegotiated)
			bob.says(t, "is now paused")
			bob.order(t, "resume")
			await(t, alice, ua.Renegotiated)
			bob.says(t, "Media streams established")
			hears(t, alice, 20)
			bob.order(t, "terminate")
			await(t, alice, ua.Ended)

			bob.order(t, "call sip:alice@"+domain)
			id = await(t, alice, ua.Established).Call
			bob.says(t, "Media streams established")
			hears(t, alice, 20)
			if err := alice.HangUp(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			bob.says(t, "ended (No error)")
		})
	}
}

// hold holds a call or resumes it, and waits until that is so.
func hold(t *testing.T, a *agent.Agent, id ua.CallID, on bool) {
	t.Helper()
	if err := a.Hold(t.Context(), id, on); err != nil {
		t.Fatal(err)
	}
	if on {
		await(t, a, ua.Held)
	} else {
		await(t, a, ua.Resumed)
	}
}
