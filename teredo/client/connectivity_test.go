// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
)

// An echo test at 0, 2, 4 and 6 s, unreachable at 8 s; the next packet starts
// another.
func TestEchoTestTimers(t *testing.T) {
	b := newQualified(t)
	b.want("first", b.ip(data(b.address(), hostAddr, "one")), "to primary: echo request")
	first := b.echoReply()
	b.want("second packet", b.ip(data(b.address(), hostAddr, "two")))
	for range 3 {
		d, got := b.tick()
		b.want("repeat", got, "to primary: echo request")
		if d != 2*time.Second {
			t.Errorf("repeated after %v", d)
		}
	}
	_, got := b.tick()
	b.want("given up", got, "host: unreachable", "host: unreachable")
	b.want("again", b.ip(data(b.address(), hostAddr, "three")), "to primary: echo request")
	b.want("reply to the old test", b.udp(relayAddr, first), "host: ")
	b.want("data before the reply", b.udp(relayAddr, data(hostAddr, b.address(), "in")), "host: in")
}

func TestEchoTest(t *testing.T) {
	t.Run("reply by a relay", func(t *testing.T) {
		b := newQualified(t, established)
		b.ip(data(b.address(), hostAddr, "one"))
		reply := b.echoReply()
		b.ip(data(b.address(), hostAddr, "two"))
		b.want("reply", b.udp(relayAddr, reply), "to relay: one", "to relay: two")
		b.want("reply once more", b.udp(relayAddr, reply))
		b.want("reply by another relay", b.udp(foreign, reply))
		b.want("data out", b.ip(data(b.address(), hostAddr, "three")), "to relay: three")
		b.want("data in", b.udp(relayAddr, data(hostAddr, b.address(), "in")), "host: in")
		b.now = b.now.Add(8 * time.Second)
		b.c.Tick(b.now, &b.out)
		b.want("reply when the test is long over", b.udp(relayAddr, reply), "host: ")
	})
	t.Run("reply through the server", func(t *testing.T) {
		b := newQualified(t, established)
		b.ip(data(b.address(), hostAddr, "one"))
		reply := b.echoReply()
		b.want("bubble", b.udp(primaryPort, throughServer(relayAddr, bubble(netip.MustParseAddr("fe80::1"), b.address(), 0))), "to relay: bubble")
		b.want("reply", b.udp(primaryPort, throughServer(relayAddr, reply)), "to relay: bubble", "to relay: one")
		if dst := packet.IPv6(b.out.UDP[0].Payload).Dst(); dst != netip.MustParseAddr("fe80::1") {
			t.Errorf("the bubble before the data is for %s, and so of no use if the first answer was lost", dst)
		}
	})
	// The relay refuses what comes from a symmetric NAT before its bubble is
	// answered.
	t.Run("reply through the server before the bubble", func(t *testing.T) {
		b := newQualified(t, established)
		b.ip(data(b.address(), hostAddr, "one"))
		reply := b.echoReply()
		b.want("copy", b.udp(primaryPort, throughServer(relayAddr, reply)), "to relay: bubble")
		b.want("bubble of another relay", b.udp(primaryPort, throughServer(foreign, bubble(netip.MustParseAddr("fe80::1"), b.address(), 0))), "to foreign: bubble")
		b.want("copy once more", b.udp(primaryPort, throughServer(relayAddr, reply)), "to relay: bubble")
		b.want("bubble", b.udp(primaryPort, throughServer(relayAddr, bubble(netip.MustParseAddr("fe80::1"), b.address(), 0))), "to relay: bubble")
		b.want("reply", b.udp(relayAddr, reply), "to relay: one")
	})
	t.Run("reply through the server long after the bubble", func(t *testing.T) {
		b := newQualified(t, established)
		b.udp(primaryPort, throughServer(relayAddr, bubble(netip.MustParseAddr("fe80::1"), b.address(), 0)))
		b.now = b.now.Add(8 * time.Second)
		b.ip(data(b.address(), hostAddr, "one"))
		b.want("copy", b.udp(primaryPort, throughServer(relayAddr, b.echoReply())), "to relay: bubble")
	})
	t.Run("another relay takes over", func(t *testing.T) {
		b := newQualified(t, established)
		b.ip(data(b.address(), hostAddr, "one"))
		b.want("reply", b.udp(relayAddr, b.echoReply()), "to relay: one")
		b.want("packet by another relay", b.udp(foreign, data(hostAddr, b.address(), "in")), "host: in")
		b.now = b.now.Add(2 * time.Second)
		b.want("the first one is silent", b.udp(foreign, data(hostAddr, b.address(), "in")), "to primary: echo request", "host: in")
		reply := b.echoReply()
		b.want("one test at a time", b.udp(foreign, data(hostAddr, b.address(), "in")), "host: in")
		b.want("meanwhile", b.ip(data(b.address(), hostAddr, "two")), "to relay: two")
		b.want("reply", b.udp(foreign, reply))
		b.want("from then on", b.ip(data(b.address(), hostAddr, "three")), "to foreign: three")
	})
	t.Run("two relays at once", func(t *testing.T) {
		b := newQualified(t, established)
		b.ip(data(b.address(), hostAddr, "one"))
		b.want("reply", b.udp(relayAddr, b.echoReply()), "to relay: one")
		for range 10 {
			b.now = b.now.Add(time.Second)
			b.want("by the first", b.udp(relayAddr, data(hostAddr, b.address(), "in")), "host: in")
			b.want("by the second", b.udp(foreign, data(hostAddr, b.address(), "in")), "host: in")
		}
	})
	t.Run("wrong nonce", func(t *testing.T) {
		b := newQualified(t)
		b.ip(data(b.address(), hostAddr, "one"))
		wrong := icmp(hostAddr, b.address(), packet.ICMPv6EchoReply, make([]byte, teredo.EchoNonceLen))
		b.udp(relayAddr, wrong)
		if s := b.c.Snapshot(); s.Trusted != 0 {
			t.Error("trusted")
		}
	})
	t.Run("size fits servers that take 88 bytes", func(t *testing.T) {
		b := newQualified(t)
		b.ip(data(b.address(), hostAddr, "one"))
		if n := len(b.out.UDP[0].Payload) - packet.IPv6HeaderLen; n > 88 {
			t.Errorf("ICMPv6 message of %d bytes", n)
		}
	})
}
