// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
)

// A random port that nothing comes to closes with the attempt that it was for,
// or when the peer has had the time for its own.
func TestUnprovedPortCloses(t *testing.T) {
	b := newSymmetric(t, preserved)
	b.ip(data(b.address(), peerAddr, "one"))
	for b.c.Snapshot().RandomPorts > 0 {
		b.tick()
	}
	if d := b.now.Sub(start); d != 8*time.Second {
		t.Errorf("the port of a call closed after %v", d)
	}
	b = newSymmetric(t, preserved)
	b.want("answer", b.indirect(peerAddr, teredo.Trailers{Nonce: 7}),
		"open 1", "to peer: bubble with nonce", "1 to peer: bubble with nonce, announces", "to peer's server: bubble with nonce, announces")
	for b.c.Snapshot().RandomPorts > 0 {
		b.tick()
	}
	if d := b.now.Sub(start); d != 10*time.Second {
		t.Errorf("the port of an answer closed after %v", d)
	}
}

// The echo test of RFC 6081 section 5.5: fail-over after one and after two more
// seconds, then an indirect bubble that announces nothing.
func TestPredictionTimers(t *testing.T) {
	b := newSymmetric(t, mapping)
	b.ip(data(b.address(), peerAddr, "one"))
	test := []string{"1 to primary: solicitation", "1 to peer: bubble", "1 to secondary: solicitation"}
	b.want("first test", b.full(), append([]string{"open 1", "to peer: bubble"}, test...)...)
	late := b.solicitation(primaryPort)
	step := func(wait time.Duration, want ...string) {
		t.Helper()
		d, _ := b.tick()
		b.want(fmt.Sprintf("after %v", b.now.Sub(start)), b.full(), want...)
		if d != wait {
			t.Errorf("after %v, want %v", d, wait)
		}
	}
	step(time.Second, test...)
	b.on(client.FirstRandomSocket, primaryPort, advertisement(late, mapping))
	step(time.Second, "to peer: bubble", "to peer's server: disguised bubble") // the attempt goes on; no third test
	step(time.Second, "to peer's server: bubble with nonce")
	step(time.Second, "to peer: bubble", "to peer's server: bubble with nonce", "to peer's server: disguised bubble")
	if got := b.dropped(); got != "wrong_nonce 1" {
		t.Errorf("dropped %q", got)
	}
}

// The port between the two that the servers saw is announced, rounded down; only
// good answers count.
func TestPrediction(t *testing.T) {
	b := newSymmetric(t, mapping)
	b.ip(data(b.address(), peerAddr, "one"))
	lower, upper := b.solicitation(primaryPort), b.solicitation(secondPort)
	seen := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(mapping.Addr(), port) }
	socket := client.FirstRandomSocket
	forged := lower
	forged.Auth.Nonce[0]++
	b.want("foreign nonce", b.on(socket, primaryPort, advertisement(forged, seen(20000))))
	b.want("from a stranger", b.on(socket, foreign, advertisement(lower, seen(20000))))
	b.want("on the service port", b.udp(primaryPort, advertisement(lower, seen(20000))))
	b.want("on a closed socket", b.on(socket+1, primaryPort, advertisement(lower, seen(20000))))
	b.want("lower", b.on(socket, primaryPort, advertisement(lower, seen(65530))))
	b.want("lower again", b.on(socket, primaryPort, advertisement(lower, seen(20000))))
	b.want("upper", b.on(socket, secondPort, advertisement(upper, seen(65533))), "to peer's server: bubble with nonce, announces")
	if port, _ := b.announced(); port != 65531 {
		t.Errorf("announced %d", port)
	}
	if got := b.dropped(); got != "unasked_advertisement 4, wrong_nonce 1" {
		t.Errorf("dropped %q", got)
	}
	// A direct bubble on the service port makes all that needless.
	b.want("on the service port", b.udp(peerMapping, bubble(peerAddr, b.address(), 0)), "to peer: one")
	b.want("", b.full(), "close 1", "to peer: one")
}

// A peer that the host wants to talk to again behind a silence: when it is asked
// directly, and when not.
func TestLoadReduction(t *testing.T) {
	for _, tt := range []struct {
		name    string
		nonce   uint32 // 0: the peer does not speak RFC 6081
		silence time.Duration
		option  option
		ask     bool
	}{
		{"just silent", 7, 30 * time.Second, func(*client.Config) {}, true},
		{"silent for long", 7, 300*time.Second - 1, func(*client.Config) {}, true},
		{"mapping surely gone", 7, 300 * time.Second, func(*client.Config) {}, false},
		{"peer of RFC 4380 alone", 0, 30 * time.Second, func(*client.Config) {}, false},
		{"switched off", 7, 30 * time.Second, func(c *client.Config) { c.NoLoadReduction = true }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newQualified(t, tt.option)
			b.udp(peerMapping, bubble(peerAddr, b.address(), tt.nonce))
			b.pass(tt.silence)
			b.ip(data(b.address(), peerAddr, "one"))
			if !tt.ask {
				b.want("again", b.full(), "to peer: bubble", "to peer's server: bubble with nonce")
				return
			}
			b.want("asked", b.full(), "to peer: bubble, solicits")
			b.want("another packet", b.ip(data(b.address(), peerAddr, "two")))
			for i := range 2 {
				from := b.now
				var got []string
				for b.c.Stats().PeerSolicitations < uint64(i+2) && b.now.Sub(from) < time.Minute {
					got = b.served()
				}
				d := b.now.Sub(from)
				want := []string{"to peer: bubble, solicits"}
				if i == 1 {
					want = append(want, "to peer: bubble", "to peer's server: bubble with nonce")
				}
				b.want("asked again", got, want...)
				if d != 2*time.Second {
					t.Errorf("asked again after %v", d)
				}
			}
			b.want("answer", b.udp(peerMapping, withTrailers(peerAddr, b.address(), teredo.Trailers{Discovery: teredo.DiscoveryAdvertisement})),
				"to peer: one", "to peer: two")
		})
	}
}
