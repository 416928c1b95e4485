// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/nattest"
)

// eachPath runs a test where the engine carries all, and with a fast path.
func eachPath(t *testing.T, test func(t *testing.T, all ...option)) {
	t.Run("engine", func(t *testing.T) { test(t) })
	t.Run("fast path", func(t *testing.T) { test(t, fastPath) })
}

// journal returns the changes since the last call in words.
func (b *bench) journal() (lines []string) {
	for _, c := range b.c.FastChanges() {
		who := "peer"
		switch c.Peer {
		case [16]byte{}:
			who = "all"
		case hostAddr.As16():
			who = "host"
		}
		switch {
		case c.Gone:
			lines = append(lines, who+" gone")
		default:
			line := fmt.Sprintf("%s at %s", who, b.who(c.Mapping))
			if c.Socket != 0 {
				line += fmt.Sprintf(" by socket %d", c.Socket-client.FirstRandomSocket+1)
			}
			if c.Tested {
				line += ", tested"
			}
			lines = append(lines, fmt.Sprintf("%s, heard %v and sent %v ago", line, b.now.Sub(c.Heard), b.now.Sub(c.Sent)))
		}
	}
	return lines
}

// What the journal says of a peer through its life.
func TestFastJournal(t *testing.T) {
	heard := func(b *bench) { b.udp(peerMapping, data(peerAddr, b.address(), "in")) }
	said := func(b *bench) { b.ip(data(b.address(), peerAddr, "out")) }
	later := func(d time.Duration) func(b *bench) { return func(b *bench) { b.now = b.now.Add(d) } }
	for _, tt := range []struct {
		name    string
		options []option
		steps   []func(b *bench)
		want    []string // of the last step
	}{
		{"proved by a bubble alone", nil, []func(b *bench){(*bench).trusted}, nil},
		{"data to a proved peer", nil, []func(b *bench){(*bench).trusted, said}, []string{"peer at peer, heard 0s and sent 0s ago"}},
		{"data from a proved peer", nil, []func(b *bench){(*bench).trusted, later(time.Second), heard}, []string{"peer at peer, heard 0s and sent 2h4m1s ago"}},
		{"known already", nil, []func(b *bench){(*bench).trusted, said, later(time.Second - 1), heard}, nil},
		{"known, but later heard here", nil, []func(b *bench){(*bench).trusted, said, later(time.Second), heard}, []string{"peer at peer, heard 0s and sent 1s ago"}},
		{"known, and heard there", nil, []func(b *bench){(*bench).trusted, said, later(10 * time.Second), func(b *bench) {
			key := peerAddr.As16()
			b.c.FastPassed(&key, b.now.Add(-time.Second+1), b.now.Add(-time.Second+1))
		}, heard, said}, nil},
		{"no data to one that is not proved", nil, []func(b *bench){said}, nil},
		{"expired when the host sends", nil, []func(b *bench){(*bench).trusted, said, later(30 * time.Second), said}, []string{"peer gone"}},
		{"alive by what was heard there", nil, []func(b *bench){(*bench).trusted, said, later(29 * time.Second), func(b *bench) {
			key := peerAddr.As16()
			b.c.FastPassed(&key, b.now, time.Time{})
		}, later(29 * time.Second), said}, []string{"peer at peer, heard 29s and sent 0s ago"}},
		{"not kept for ever", nil, []func(b *bench){(*bench).trusted, said, func(b *bench) { b.pass(time.Minute) }}, []string{"peer gone"}},
		{"after a sleep", nil, []func(b *bench){(*bench).trusted, said, func(b *bench) {
			b.c.Resumed(time.Second, b.now, &b.out)
		}}, []string{"all gone"}},
		{"the client ends", nil, []func(b *bench){(*bench).trusted, said, func(b *bench) { b.c.Stop(&b.out) }}, []string{"all gone"}},
		{"the address changes", nil, []func(b *bench){(*bench).trusted, said, func(b *bench) {
			b.c.Examine(b.now, &b.out)
			b.udp(primaryPort, b.answer(foreign))
		}}, []string{"all gone"}},
		{"another port is reserved", nil, []func(b *bench){(*bench).trusted, said, func(b *bench) {
			b.c.PortMapped(foreign, b.now, &b.out)
		}}, []string{"all gone"}},
		{"the NAT is examined again", nil, []func(b *bench){(*bench).trusted, said, func(b *bench) {
			b.c.LocalChanged(netip.AddrPortFrom(local.Addr(), mapping.Port()), nil, b.now, &b.out)
			b.udp(primaryPort, b.answer(mapping))
		}}, []string{"all gone"}},
		{"a host by a relay, while a test may be answered twice", nil, []func(b *bench){func(b *bench) {
			b.ip(data(b.address(), hostAddr, "one"))
			b.udp(relayAddr, b.echoReply())
			b.ip(data(b.address(), hostAddr, "two"))
		}}, []string{"host at relay, tested, heard 0s and sent 0s ago"}},
		{"a host by another relay", nil, []func(b *bench){func(b *bench) {
			b.ip(data(b.address(), hostAddr, "one"))
			b.udp(relayAddr, b.echoReply())
			b.ip(data(b.address(), hostAddr, "two"))
		}, func(b *bench) {
			b.now = b.now.Add(40 * time.Second)
			b.ip(data(b.address(), hostAddr, "three"))
		}}, []string{"host gone"}},
		{"no fast path", []option{func(c *client.Config) { c.FastPeers = 0 }}, []func(b *bench){(*bench).trusted, said, heard}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newQualified(t, append([]option{fastPath}, tt.options...)...)
			var got []string
			for _, step := range tt.steps {
				b.c.FastChanges()
				step(b)
				if err := b.c.CheckFast(); err != nil {
					t.Error(err)
				}
			}
			got = b.journal()
			b.want("journal", got, tt.want...)
		})
	}
}

// No more peers are told than there is room for, until others have gone.
func TestFastPeersAreBounded(t *testing.T) {
	b := newQualified(t, func(c *client.Config) { c.FastPeers = 2 })
	at := func(i int) (netip.AddrPort, netip.Addr) {
		m := netip.AddrPortFrom(peerMapping.Addr(), uint16(9000+i))
		return m, teredo.Addr{Prefix: teredo.Prefix, Server: peerServer, Mapped: m}.IP()
	}
	talk := func(i int) int {
		m, a := at(i)
		b.udp(m, data(a, b.address(), "in"))
		b.ip(data(b.address(), a, "out"))
		return len(b.c.FastChanges())
	}
	if got := []int{talk(1), talk(2), talk(3)}; fmt.Sprint(got) != "[1 1 0]" {
		t.Errorf("changes %v", got)
	}
	b.pass(time.Minute)
	if n := len(b.c.FastChanges()); n != 2 {
		t.Errorf("%d changes by the sweep, want 2", n)
	}
	if talk(3) == 0 {
		t.Error("no change when there is room")
	}
}

// A peer that loses its place in the list loses the fast path with it.
func TestFastPeerEvicted(t *testing.T) {
	b := newQualified(t, fastPath, func(c *client.Config) { c.MaxPeers = 1 })
	b.trusted()
	b.ip(data(b.address(), peerAddr, "out"))
	b.c.FastChanges()
	b.ip(data(b.address(), hostAddr, "out"))
	b.want("journal", b.journal(), "peer gone")
}

// Once a way is proved all data takes the fast path, both ways, behind every kind
// of NAT, random ports included, and the peers stay proved by it alone.
func TestFastMatrix(t *testing.T) {
	const rounds = 200
	for _, from := range nattest.AllKinds {
		for j, to := range nattest.AllKinds {
			if !reachable[from.Name][j] {
				continue
			}
			t.Run(from.Name+" to "+to.Name, func(t *testing.T) {
				w := newWorld(t, fastPath)
				a := w.qualified(nattest.NewNAT(from, natA))
				b := w.qualified(nattest.NewNAT(to, natB))
				pingPair(w, a, b)
				out, in, engine := a.fast.out, a.fast.in, a.engine.Stats()
				for i := range rounds {
					a.say(b.address(), fmt.Sprintf("ping %d", pings+i))
					w.net.Run(time.Second)
				}
				if len(a.got) != pings+rounds {
					t.Errorf("%d of %d answered", len(a.got), pings+rounds)
				}
				if out, in = a.fast.out-out, a.fast.in-in; out < rounds-1 || in < rounds-1 {
					t.Errorf("%d sent and %d received by the fast path, want nearly %d; the engine %d and %d",
						out, in, rounds, a.engine.Stats().Sent-engine.Sent, a.engine.Stats().Delivered-engine.Delivered)
				}
			})
		}
	}
}

// To a host by a relay, and to clients by a relay that carries, likewise.
func TestFastByRelay(t *testing.T) {
	w := newWorld(t, fastPath)
	a := w.qualified(nattest.NewNAT(nattest.PortRestricted, natA))
	for i := range 100 {
		a.say(hostAddr, fmt.Sprintf("ping %d", i))
		w.net.Run(time.Second)
	}
	if len(a.got) != 100 || a.fast.out < 98 || a.fast.in < 98 {
		t.Errorf("%d of 100 answered; by the fast path %d sent, %d received", len(a.got), a.fast.out, a.fast.in)
	}
	if tests := a.engine.Stats().EchoTests; tests != 1 {
		t.Errorf("%d echo tests: the host did not stay proved", tests)
	}
}

// A peer that falls silent is left to the engine after 30 s, which looks for it
// again (RFC 4380 section 5.2.4), and the host learns that it is gone.
func TestFastSilentPeer(t *testing.T) {
	w := newWorld(t, fastPath)
	a := w.qualified(nattest.NewNAT(nattest.PortRestricted, natA))
	a.talk(hostAddr, 100*time.Millisecond, 5*time.Second, never)
	w.relay.deaf, w.server.deaf = true, false
	since, tests := w.net.Now(), a.engine.Stats().EchoTests
	a.talk(hostAddr, 100*time.Millisecond, time.Minute, func() bool { return a.engine.Stats().EchoTests > tests })
	if took := w.net.Now().Sub(since); took < 28*time.Second || took > 31*time.Second {
		t.Errorf("tested again after %v", took)
	}
	if a.errors != 0 {
		t.Errorf("%d errors before", a.errors)
	}
	a.talk(hostAddr, 100*time.Millisecond, 10*time.Second, func() bool { return a.errors > 0 })
	if a.errors == 0 {
		t.Error("the host was not told")
	}
	w.relay.deaf = false
	was := a.fast.in
	a.talk(hostAddr, 100*time.Millisecond, 5*time.Second, never)
	if a.fast.in == was {
		t.Error("the fast path was not taken again")
	}
}

// What the fast path carries counts for the inbound policy.
func TestFastContact(t *testing.T) {
	w := newWorld(t, fastPath)
	a := w.qualified(nattest.NewNAT(nattest.FullCone, natA), established)
	a.say(hostAddr, "ping 0")
	w.net.Run(time.Second)
	a.say(hostAddr, "ping 1")
	w.net.Run(time.Second)
	a.say(hostAddr, "ping 2")
	w.net.Run(time.Second)
	if a.fast.out == 0 {
		t.Fatal("nothing took the fast path")
	}
	// The host is silent, its peer is not.
	mute := func(d time.Duration) (n int) {
		for end := w.net.Now().Add(d); w.net.Now().Before(end); w.net.Run(10 * time.Second) {
			w.native(data(hostAddr, a.address(), "news"))
			n++
		}
		return n
	}
	news := func() int { return strings.Count(strings.Join(a.got, " "), "news") }
	sent := mute(client.FastContact - time.Minute)
	if news() != sent {
		t.Errorf("%d of %d came within the time", news(), sent)
	}
	mute(2 * time.Minute)
	was := news()
	mute(time.Minute)
	if news() != was {
		t.Errorf("%d came behind", news()-was)
	}
}

// What is not plain data goes to the engine, whatever the fast path knows.
func TestFastLeavesTheRest(t *testing.T) {
	w := newWorld(t, fastPath)
	a := w.qualified(nattest.NewNAT(nattest.PortRestricted, natA))
	a.talk(hostAddr, time.Second, 3*time.Second, never)
	was := a.engine.Stats()
	big := packet.IPv6(make([]byte, 1281))
	copy(big, data(a.address(), hostAddr, ""))
	big[4], big[5] = byte((len(big)-40)>>8), byte(len(big)-40)
	a.send(big)
	a.send(data(peerAddr, hostAddr, "not ours"))
	now := a.engine.Stats()
	if now.FromStack-was.FromStack != 2 || a.errors != 1 {
		t.Errorf("%d packets came to the engine, which sent %d errors", now.FromStack-was.FromStack, a.errors)
	}
}
