// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"testing"
	"time"
)

// The rule of 4 bubbles in 300 s is one for clients (RFC 4380 section 5.2.6): a relay begins
// again (section 5.4.1), so that a client whose network was away is soon reached again.
func TestSilentPeerIsAskedAgain(t *testing.T) {
	b := newBench(t)
	b.ip(data(host, client, "x"))
	for range bubbleTries {
		b.tick()
	}
	for _, pause := range []time.Duration{8, 16, 32, 60, 60, 60, 60} {
		pause *= time.Second
		b.wait(pause - time.Second)
		b.want(pause.String()+", almost", b.ip(data(host, client, "x")), unreachable)
		b.wait(time.Second)
		b.want(pause.String(), b.ip(data(host, client, "x")), toServer)
		b.want("another", b.ip(data(host, client, "y")))
		b.expect(2*time.Second, unreachable, unreachable)
	}
	b.wait(time.Minute)
	b.ip(data(host, client, "one"))
	b.want("the answer", b.udp(mapped, bubble(client, b.bubbleSource(client))), "udp 198.51.100.7:40000 one hop 63")
	b.wait(31 * time.Second)
	b.want("silent once more", b.ip(data(host, client, "x")), toServer)
	for range bubbleTries {
		b.tick()
	}
	b.wait(8 * time.Second)
	b.want("the pause is short again", b.ip(data(host, client, "x")), toServer)
}

// What is asked again is a test, and falls under the limits on tests.
func TestSilentPeerWithinBudget(t *testing.T) {
	b := newBench(t, func(c *Config) { c.BubbleRate = 16 })
	b.ip(data(host, client, "x"))
	for range bubbleTries {
		b.tick()
	}
	b.wait(8 * time.Second)
	spendBubbles(b)
	b.want("none left", b.ip(data(host, client, "x")), unreachable)
	b.wait(2 * time.Second)
	b.want("later", b.ip(data(host, client, "x")), toServer)
}
