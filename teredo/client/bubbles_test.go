// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// trusted makes the peer a trusted one.
func (b *bench) trusted() {
	b.t.Helper()
	b.udp(peerMapping, bubble(peerAddr, b.address(), 0))
}

func TestPeerLifetime(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after time.Duration
		want  []string
	}{
		{"valid for less than 30 s", 30*time.Second - 1, []string{"to peer: hi"}},
		{"asked again behind", 30 * time.Second, []string{"to peer: bubble", "to peer's server: bubble with nonce"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newQualified(t)
			b.trusted()
			b.now = b.now.Add(tt.after)
			b.want("output", b.ip(data(b.address(), peerAddr, "hi")), tt.want...)
		})
	}
	t.Run("answered again", func(t *testing.T) {
		b := newQualified(t)
		b.trusted()
		b.now = b.now.Add(time.Minute)
		b.ip(data(b.address(), peerAddr, "hi"))
		b.want("output", b.udp(peerMapping, bubble(peerAddr, b.address(), 0)), "to peer: hi")
	})
}

// Bubbles at 0, 2, 4 and 6 s, unreachable at 8 s, none again before 300 s have
// passed since the first.
func TestBubbleTimers(t *testing.T) {
	b := newQualified(t)
	pair := []string{"to peer: bubble", "to peer's server: bubble with nonce"}
	disguised := append(pair[:2:2], "to peer's server: disguised bubble")
	b.want("first", b.ip(data(b.address(), peerAddr, "one")), pair...)
	b.want("second packet", b.ip(data(b.address(), peerAddr, "two")))
	for range 3 {
		d, got := b.tick()
		b.want("repeat", got, disguised...)
		if d != 2*time.Second {
			t.Errorf("repeated after %v", d)
		}
	}
	d, got := b.tick()
	b.want("given up", got, "host: unreachable", "host: unreachable")
	if d != 2*time.Second || b.dropped() != "unreachable 2" {
		t.Errorf("given up after %v, dropped %s", d, b.dropped())
	}
	b.want("within 300 s", b.ip(data(b.address(), peerAddr, "three")), "host: unreachable")
	b.now = start.Add(300*time.Second - 1)
	b.want("just within 300 s", b.ip(data(b.address(), peerAddr, "four")), "host: unreachable")
	b.now = start.Add(300 * time.Second)
	b.want("one more behind 300 s", b.ip(data(b.address(), peerAddr, "five")), disguised[:2]...)
}

func TestDirectResponseLiftsBubbleLimit(t *testing.T) {
	b := newQualified(t)
	b.ip(data(b.address(), peerAddr, "one"))
	for range 3 {
		b.tick()
	}
	b.want("answered", b.udp(peerMapping, bubble(peerAddr, b.address(), 0)), "to peer: one")
	b.now = b.now.Add(31 * time.Second)
	b.want("again", b.ip(data(b.address(), peerAddr, "two")), "to peer: bubble", "to peer's server: bubble with nonce")
}

// Data to a peer that was just answered waits for what the answer brings, and
// bubbles leave 2 s behind it.
func TestBubblePause(t *testing.T) {
	b := newQualified(t)
	b.udp(primaryPort, throughServer(peerMapping, bubble(peerAddr, b.address(), 7)))
	b.want("at once", b.ip(data(b.address(), peerAddr, "one")))
	d, got := b.tick()
	b.want("later", got, "to peer: bubble with nonce", "to peer's server: bubble with nonce")
	if d != 2*time.Second {
		t.Errorf("after %v", d)
	}
}

// A bubble without nonces from a foreign mapping has its sender asked for the proof at once,
// by one disguised bubble for each attempt, while it is sought and has shown no nonce.
func TestPlainPeerIsAskedAtOnce(t *testing.T) {
	b := newQualified(t)
	plain := bubble(peerAddr, b.address(), 0)
	b.want("not sought", b.udp(foreign, plain))
	b.ip(data(b.address(), peerAddr, "one"))
	b.want("a nonce that is not ours", b.udp(foreign, bubble(peerAddr, b.address(), 5)))
	b.want("data", b.udp(foreign, data(peerAddr, b.address(), "hi")))
	b.want("sought", b.udp(foreign, plain), "to peer's server: disguised bubble")
	disguise := packet.IPv6(b.out.UDP[0].Payload).Src()
	b.want("once more", b.udp(foreign, plain))
	b.tick() // it has one of its own
	b.want("in the next attempt", b.udp(foreign, plain))
	b.want("answer", b.udp(foreign, bubble(peerAddr, disguise, 0)), "to foreign: bubble", "to foreign: one")
	b.now = b.now.Add(31 * time.Second)
	b.want("after a silence it is not asked as one with nonces would be", b.ip(data(b.address(), peerAddr, "two")),
		"to peer: bubble", "to peer's server: bubble with nonce")
	b.want("sought again", b.udp(foreign, plain), "to peer's server: disguised bubble")
	b.udp(primaryPort, throughServer(peerMapping, bubble(peerAddr, b.address(), 5)))
	b.tick()
	b.want("that has a nonce after all", b.udp(foreign, plain))
}

// Answers to indirect bubbles are limited per peer; those to relays per origin.
func TestAnswerLimits(t *testing.T) {
	b := newQualified(t)
	direct, indirect := 0, 0
	for range 100 {
		for _, s := range b.udp(primaryPort, throughServer(peerMapping, bubble(peerAddr, b.address(), 7))) {
			if strings.HasPrefix(s, "to peer:") {
				direct++
			} else {
				indirect++
			}
		}
	}
	if direct != 8 || indirect != 1 {
		t.Errorf("%d direct and %d indirect answers to 100 bubbles at once", direct, indirect)
	}
	relayed := 0
	for range 100 {
		relayed += len(b.udp(primaryPort, throughServer(relayAddr, bubble(hostAddr, b.address(), 0))))
	}
	if relayed != 20 {
		t.Errorf("%d answers to 100 bubbles of a relay at once", relayed)
	}
	if got := b.dropped(); got != "rate_limited 172" {
		t.Errorf("dropped %q", got)
	}
}
