// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

var keyed = netip.MustParseAddr("fe80::1")

// flooded hands 100 forged bubbles a second to the client for so long, and calls f each
// second in the midst of them.
func (b *bench) flooded(origin func(n int) netip.AddrPort, seconds int, f func()) {
	for n := range 100 * seconds {
		b.udp(primaryPort, throughServer(origin(n), bubble(netip.MustParseAddr("fe80::bad"), b.address(), 0)))
		if n%100 == 99 {
			f()
		}
		b.now = b.now.Add(10 * time.Millisecond)
	}
}

// Whoever forges packets from a relay's network cuts no client off a relay that is proved.
func TestProvedRelayBesideAFlood(t *testing.T) {
	b := newQualified(t)
	b.proves(relayAddr, hostAddr)
	answered := 0
	b.flooded(func(n int) netip.AddrPort { return netip.AddrPortFrom(relayAddr.Addr(), uint16(10_000+n)) }, 10, func() {
		if slices.Contains(b.udp(primaryPort, throughServer(relayAddr, bubble(keyed, b.address(), 0))), "to relay: bubble") {
			answered++
		}
	})
	if answered != 10 {
		t.Errorf("%d of 10 bubbles of the relay were answered", answered)
	}
}

// Nor does who forges the relay itself: whichever bubble is answered, the relay hears us.
func TestForgedRelay(t *testing.T) {
	b := newQualified(t)
	b.proves(relayAddr, hostAddr)
	sent := 0
	for range 1000 {
		b.udp(primaryPort, throughServer(netip.AddrPortFrom(relayAddr.Addr(), 1), bubble(keyed, b.address(), 0)))
		b.udp(primaryPort, throughServer(relayAddr, bubble(keyed, b.address(), 0)))
		if len(b.out.UDP) > 0 {
			sent++
		}
		b.now = b.now.Add(10 * time.Millisecond)
	}
	if sent < 20 || sent > 140 {
		t.Errorf("%d answers in 10 s", sent)
	}
}

// A test beside a flood from the relay's network: the copy of the reply proves the relay, and
// its next bubble is answered.
func TestEchoTestBesideAFlood(t *testing.T) {
	b := newQualified(t)
	origin := func(n int) netip.AddrPort { return netip.AddrPortFrom(relayAddr.Addr(), uint16(10_000+n)) }
	b.flooded(origin, 2, func() {})
	b.ip(data(b.address(), hostAddr, "one"))
	reply := b.echoReply()
	b.want("bubble of the relay", b.udp(primaryPort, throughServer(relayAddr, bubble(keyed, b.address(), 0))))
	b.want("copy of the reply", b.udp(primaryPort, throughServer(relayAddr, reply)), "to relay: bubble")
	b.flooded(origin, 1, func() {})
	b.want("next bubble", b.udp(primaryPort, throughServer(relayAddr, bubble(keyed, b.address(), 0))), "to relay: bubble")
	b.want("next copy", b.udp(primaryPort, throughServer(relayAddr, reply)), "to relay: bubble", "to relay: one")
}
