// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"testing"
	"time"
)

const (
	direct = "udp 198.51.100.7:40000 icmp 129"
	copied = "udp 203.0.113.1:3544 icmp 129"
)

// A trusted client that tests the way to a host has no relay that it has proved: its NAT
// may have forgotten the mapping, and what is sent straight to it is lost.
func TestEchoTestOfTrustedClient(t *testing.T) {
	for _, tt := range []struct {
		name   string
		heard  time.Duration // before
		change func(*Config)
		packet []byte
		want   []string
	}{
		{"a test of ours", 3 * time.Second, func(*Config) {}, echoReply(host, client, 0), []string{toServer, copied, direct}},
		{"a test of another kind of client", 3 * time.Second, func(*Config) {}, echoReply(host, client, 7), []string{toServer, direct}},
		{"copies switched off", 3 * time.Second, func(c *Config) { c.EchoThroughServer = false }, echoReply(host, client, 0), []string{toServer, direct}},
		{"heard just now", time.Second, func(*Config) {}, echoReply(host, client, 0), []string{direct}},
		{"a wrong checksum", 3 * time.Second, func(*Config) {}, func() []byte { p := echoReply(host, client, 0); p[63] ^= 1; return p }(), []string{direct}},
		{"other traffic", 3 * time.Second, func(*Config) {}, data(host, client, "x"), []string{"udp 198.51.100.7:40000 x hop 63"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.change)
			l := b.r.NewLane()
			b.trust()
			b.r.Publish()
			b.wait(tt.heard)
			if tt.want[0] == toServer {
				b.want("lane", b.laneIP(l, tt.packet), "slow")
			}
			b.want("the reply", b.ip(tt.packet), tt.want...)
			b.want("the answer", b.udp(mapped, bubble(client, b.bubbleSource(client))))
			b.want("then", b.ip(data(host, client, "y")), "udp 198.51.100.7:40000 y hop 63")
		})
	}
}

// What begins by that is a test like others: with its repeats, its bound of copies, and
// within the budget.
func TestEchoTestOfTrustedClientIsBounded(t *testing.T) {
	b := newBench(t, func(c *Config) { c.BubbleRate = 64 })
	b.trust()
	b.wait(3 * time.Second)
	for range 10 {
		b.ip(echoReply(host, client, 0))
	}
	if s := b.r.Stats(); s.EchoCopies != bubbleTries || s.BubblesSent != 2 {
		t.Errorf("%d copies, %d bubbles", s.EchoCopies, s.BubblesSent)
	}
	b.expect(2*time.Second, toServer)
	b.udp(mapped, bubble(client, b.bubbleSource(client)))
	b.wait(3 * time.Second)
	spendBubbles(b)
	b.want("none left", b.ip(echoReply(host, client, 0)), direct)
}

// A client that did not answer is sent to as long as it is valid (RFC 4380 section 5.2.4): no
// host ends that with a reply of its own making.
func TestTestInVainLeavesAValidClient(t *testing.T) {
	b := newBench(t)
	b.trust()
	b.wait(3 * time.Second)
	b.ip(echoReply(host, client, 0))
	for range bubbleTries {
		b.tick()
	}
	b.want("still valid", b.ip(data(host, client, "x")), "udp 198.51.100.7:40000 x hop 63")
	b.wait(20 * time.Second)
	b.want("no longer", b.ip(data(host, client, "x")), toServer)
}

// Data of a trusted client from another port may show that its NAT gives it another mapping
// now; it is asked, by its server, which a forger gains nothing by.
func TestDataFromAnotherPort(t *testing.T) {
	b := newBench(t)
	l := b.r.NewLane()
	b.trust()
	b.r.Publish()
	stray := data(client, host, "x")
	b.wait(time.Second)
	b.want("heard just now", b.udp(foreign, stray))
	b.wait(2 * time.Second)
	b.want("lane", b.laneUDP(l, foreign, stray), "slow")
	b.want("asked", b.udp(foreign, stray), toServer)
	b.want("once", b.udp(foreign, stray))
	b.want("drops", b.dropped(), "mapping_mismatch 3")
	b.want("the proof", b.udp(foreign, bubble(client, b.bubbleSource(client))))
	b.want("data", b.udp(foreign, stray), "ip x hop 63")
	b.want("to it", b.ip(data(host, client, "y")), "udp 198.51.100.7:50000 y hop 63")
}

// So does data from the mapping in its address, of a client that has proved another.
func TestDataFromTheOldPort(t *testing.T) {
	b := newBench(t)
	b.ip(data(host, client, "one"))
	b.udp(foreign, bubble(client, b.bubbleSource(client)))
	b.wait(3 * time.Second)
	b.want("asked", b.udp(mapped, data(client, host, "x")), toServer, "ip x hop 63")
	b.want("the proof", b.udp(mapped, bubble(client, b.bubbleSource(client))))
	b.want("to it", b.ip(data(host, client, "y")), "udp 198.51.100.7:40000 y hop 63")
}

func TestDataFromAnotherPortWithinBudget(t *testing.T) {
	b := newBench(t, func(c *Config) { c.BubbleRate = 64 })
	b.trust()
	b.wait(3 * time.Second)
	spendBubbles(b)
	b.want("none left", b.udp(foreign, data(client, host, "x")))
	b.want("an unknown client", b.udp(foreign, data(another, host, "x")))
}
