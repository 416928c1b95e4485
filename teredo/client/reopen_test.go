// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/nattest"
)

var (
	secondHost  = netip.MustParseAddr("2001:db8::2")
	thirdHost   = netip.MustParseAddr("2001:db8::3")
	secondRelay = foreign
)

// proves lets a relay prove the way to a host.
func (b *bench) proves(relay netip.AddrPort, host netip.Addr) {
	b.t.Helper()
	b.ip(data(b.address(), host, "x"))
	b.udp(relay, b.echoReply())
}

// untilAsked lets time pass until the server is asked.
func (b *bench) untilAsked() {
	b.t.Helper()
	for range 100 {
		if _, got := b.tick(); slices.Contains(got, "to primary: solicitation") {
			return
		}
	}
	b.t.Fatal("the server is not asked")
}

// The server was asked because nothing came back, and the address holds: the NAT may have
// given the same mapping again, and let no relay in any more.
func TestRelaysAreLetInAgain(t *testing.T) {
	b := newQualified(t, watchful, fallback(relayAddr))
	b.bindStep(b.requestNonce())
	b.proves(relayAddr, hostAddr)
	b.proves(relayAddr, thirdHost)
	b.proves(secondRelay, secondHost)
	b.pass(10 * time.Second)
	b.ip(data(b.address(), netip.MustParseAddr("2001:db8::4"), "unanswered"))
	b.untilAsked()
	b.want("the answer", b.udp(primaryPort, b.answer(mapping)),
		"to foreign: bubble", "to relay: bubble", "to relay: bubble with nonce", "event: confirmed, for "+mapping.String())
	for range 3 { // traffic that no one answers has the server asked again and again
		b.ip(data(b.address(), netip.MustParseAddr("2001:db8::4"), "unanswered"))
		b.untilAsked()
		b.want("another answer", b.udp(primaryPort, b.answer(mapping)), "event: confirmed, for "+mapping.String())
	}
	b.ip(data(b.address(), netip.MustParseAddr("2001:db8::4"), "unanswered"))
	for range 4 {
		b.untilAsked()
	}
	b.want("an answer after a silence", b.udp(primaryPort, b.answer(mapping)),
		"to foreign: bubble", "to relay: bubble", "to relay: bubble with nonce", "event: confirmed, for "+mapping.String())
}

// Hosts that were sent to and not heard are tested at once; those that were heard, or that
// nothing was sent to, are not.
func TestUnheardHostsAreTested(t *testing.T) {
	b := newQualified(t, watchful)
	b.proves(relayAddr, hostAddr)
	b.proves(relayAddr, secondHost)
	b.pass(10 * time.Second)
	b.want("to one", b.ip(data(b.address(), hostAddr, "one")), "to relay: one")
	b.untilAsked()
	b.want("the answer", b.udp(primaryPort, b.answer(mapping)),
		"to relay: bubble", "to primary: echo request", "event: confirmed, for "+mapping.String())
	reply := b.echoReply()
	b.want("meanwhile", b.ip(data(b.address(), hostAddr, "two")), "to relay: two")
	b.want("the reply", b.udp(secondRelay, reply))
	b.want("then", b.ip(data(b.address(), hostAddr, "three")), "to foreign: three")
}

// An address that was lost and is back as it was.
func TestRegainedAddress(t *testing.T) {
	for _, tt := range []struct {
		name   string
		heard  time.Duration // before the loss
		away   time.Duration
		back   netip.AddrPort
		opened bool
	}{
		{"at once", time.Second, 0, mapping, true},
		{"after four minutes", time.Second, 4 * time.Minute, mapping, true},
		{"when relays have forgotten it", time.Second, 5 * time.Minute, mapping, false},
		{"not heard for long", 30 * time.Second, 0, mapping, false},
		{"another mapping", time.Second, 0, foreign, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newQualified(t, func(c *client.Config) { c.Refresh = time.Hour })
			b.proves(relayAddr, hostAddr)
			b.now = b.now.Add(tt.heard)
			b.out.Reset()
			b.c.LocalChanged(netip.AddrPort{}, nil, b.now, &b.out)
			b.now = b.now.Add(tt.away)
			b.out.Reset()
			b.c.LocalChanged(local, nil, b.now, &b.out)
			got := b.udp(primaryPort, b.answer(tt.back))
			if slices.Contains(got, "to relay: bubble") != tt.opened {
				t.Errorf("%q", got)
			}
		})
	}
}

// No more than so many relays, the last heard.
func TestLetInIsBounded(t *testing.T) {
	b := newQualified(t, func(c *client.Config) { c.Refresh = time.Hour })
	for n := range 40 {
		b.proves(netip.AddrPortFrom(relayAddr.Addr(), uint16(1000+n)), netip.AddrFrom16([16]byte{0: 0x20, 1: 1, 2: 0x0d, 3: 0xb8, 15: byte(n)}))
		b.now = b.now.Add(10 * time.Millisecond)
	}
	b.out.Reset()
	b.c.Examine(b.now, &b.out)
	got := b.udp(primaryPort, b.answer(mapping))
	if len(got) != 17 || got[0] != "to 203.0.113.3:1039: bubble" {
		t.Errorf("%d: %q", len(got), got)
	}
}

// A NAT that restarts under a flow from a host to us, while our own side sends to others
// alone, is noticed by the probe, and the flow goes on.
func TestFlowSurvivesARestartOfTheNAT(t *testing.T) {
	eachPath(t, func(t *testing.T, all ...option) {
		for _, kind := range []nattest.Kind{nattest.AddressRestricted, nattest.PortRestricted} {
			t.Run(kind.Name, func(t *testing.T) {
				w := newWorld(t, all...)
				nat := nattest.NewNAT(kind, natA)
				a := w.qualified(nat, watchful)
				a.talk(hostAddr, 20*time.Millisecond, time.Second, never)
				nat.Restart()
				a.mute = true
				was := len(a.got)
				for range 250 {
					w.native(data(hostAddr, a.address(), "in"))
					if n := w.net.Now().UnixMilli() / 20; n%10 == 0 {
						a.say(secondHost, "unanswered")
					}
					w.net.Run(20 * time.Millisecond)
				}
				if n := len(a.got) - was; n < 100 {
					t.Errorf("%d of 250 packets came, in five seconds", n)
				}
				if strings.Contains(strings.Join(a.events, " "), "changed") {
					t.Errorf("events %q", a.events)
				}
			})
		}
	})
}

// A client that begins again behind a NAT that has restarted finds its relay by the first
// test, although the relay still sends straight to the mapping that it trusts.
func TestEchoTestFindsARelayThatTrustsUs(t *testing.T) {
	for _, kind := range []nattest.Kind{nattest.AddressRestricted, nattest.PortRestricted} {
		t.Run(kind.Name, func(t *testing.T) {
			w := newWorld(t)
			nat := nattest.NewNAT(kind, natA)
			a := w.qualified(nat)
			a.talk(hostAddr, 20*time.Millisecond, time.Second, never)
			was := a.address()
			w.net.Run(5 * time.Second)
			a.do(func(_ time.Time, out *client.Out) { a.engine.Stop(out) })
			nat.Restart()
			a.do(func(now time.Time, out *client.Out) { a.engine.Start(now, out) })
			if !w.net.RunUntil(time.Second, func() bool { return a.address().IsValid() }) || a.address() != was {
				t.Fatalf("address %s, was %s", a.address(), was)
			}
			got := len(a.got)
			a.say(hostAddr, "ping")
			if !w.net.RunUntil(time.Second, func() bool { return len(a.got) > got }) {
				t.Error("no answer within a second")
			}
		})
	}
}
