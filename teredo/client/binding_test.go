// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
)

// boundBench is a client with a fall-back, driven by hand.
func boundBench(t testing.TB) *bench {
	t.Helper()
	b := newQualified(t, fallback(relayAddr))
	b.bindStep(b.requestNonce())
	return b
}

func challengeFrom(dst netip.Addr, nonce uint32, origin netip.AddrPort) []byte {
	var p []byte
	if origin.IsValid() {
		p = teredo.AppendOrigin(p, origin)
	}
	tr := teredo.Trailers{HasNonce: true, Nonce: nonce}
	return tr.AppendTo(teredo.AppendBubble(p, teredo.BindingAddress(teredo.BindingChallenge, 7), dst))
}

// requestNonce returns the nonce of the last request to the client's own relay.
func (b *bench) requestNonce() uint32 {
	b.t.Helper()
	return b.requestNonceTo(relayAddr)
}

func (b *bench) requestNonceTo(relay netip.AddrPort) uint32 {
	b.t.Helper()
	for _, d := range b.out.UDP {
		if d.To != relay {
			continue
		}
		p, err := teredo.Parse(bytes.Clone(d.Payload))
		if err != nil || p.IPv6.Dst() != teredo.AllRouters {
			b.t.Fatalf("no request: %x", d.Payload)
		}
		tr, err := teredo.ParseTrailers(p.Trailers)
		if err != nil || tr.Nonce == 0 {
			b.t.Fatalf("request without nonce: %x", d.Payload)
		}
		return tr.Nonce
	}
	b.t.Fatalf("nothing was sent to the relay: %q", b.show())
	return 0
}

// bindStep confirms the exchange with that nonce.
func (b *bench) bindStep(nonce uint32) {
	b.t.Helper()
	b.udp(relayAddr, challengeFrom(b.address(), nonce, mapping))
	if !b.bound() {
		b.t.Fatal("not bound")
	}
}

// carriedBy is a bubble of the peer that our relay carried.
func carriedBy(dst netip.Addr, d teredo.Discovery) []byte {
	tr := teredo.Trailers{Discovery: d}
	return tr.AppendTo(teredo.AppendBubble(nil, peerAddr, dst))
}

func TestBindingRules(t *testing.T) {
	proof := func(b *bench, origin netip.AddrPort) []byte {
		src := teredo.BindingAddress(teredo.BindingProof, 9)
		return teredo.AppendBubble(teredo.AppendOrigin(nil, origin), src, b.address())
	}
	for _, tt := range []struct {
		name   string
		from   netip.AddrPort
		packet func(b *bench, nonce uint32) []byte
		sent   int // datagrams in answer
		bound  bool
		drop   string
	}{
		{"challenge", relayAddr, func(b *bench, n uint32) []byte { return challengeFrom(b.address(), n, netip.AddrPort{}) }, 1, false, ""},
		{"confirmation", relayAddr, func(b *bench, n uint32) []byte { return challengeFrom(b.address(), n, mapping) }, 0, true, ""},
		{"proof by way of the server", primaryPort, func(b *bench, _ uint32) []byte { return proof(b, relayAddr) }, 1, false, ""},
		{"wrong nonce", relayAddr, func(b *bench, n uint32) []byte { return challengeFrom(b.address(), n+1, mapping) }, 0, false, "unasked_binding 1"},
		{"from elsewhere", foreign, func(b *bench, n uint32) []byte { return challengeFrom(b.address(), n, mapping) }, 0, false, "unasked_binding 1"},
		{"no bubble", relayAddr, func(b *bench, n uint32) []byte {
			return data(teredo.BindingAddress(teredo.BindingChallenge, 7), b.address(), "x")
		}, 0, false, "bad_source 1"},
		{"proof of a relay that was not asked", primaryPort, func(b *bench, _ uint32) []byte { return proof(b, foreign) }, 0, false, "unasked_binding 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newQualified(t, fallback(relayAddr))
			b.udp(tt.from, tt.packet(b, b.requestNonce()))
			if len(b.out.UDP) != tt.sent || b.bound() != tt.bound || b.dropped() != tt.drop {
				t.Errorf("sent %q, bound %v, dropped %q", b.show(), b.bound(), b.dropped())
			}
			for _, d := range b.out.UDP {
				if d.To != relayAddr || len(d.Payload) != teredo.BubbleLen+6 {
					t.Errorf("sent %d bytes to %s", len(d.Payload), d.To)
				}
			}
		})
	}
}

// Requests are repeated after 2 s, four in all; then the relay has a rest that
// doubles to five minutes.
func TestBindingTimers(t *testing.T) {
	b := newQualified(t, fallback(relayAddr))
	since, sent := b.now, 1
	var pauses []time.Duration
	for last := b.now; b.now.Sub(since) < time.Hour; {
		before := b.c.Stats().BindingRequests
		next := b.c.Next()
		b.out.Reset()
		b.now = next
		b.c.Tick(b.now, &b.out)
		for _, d := range b.out.UDP {
			if d.To == primaryPort {
				if p, err := teredo.Parse(bytes.Clone(d.Payload)); err == nil && teredo.CheckRouterSolicitation(p.IPv6) == nil {
					b.udp(primaryPort, b.answer(mapping))
					break
				}
			}
		}
		if b.c.Stats().BindingRequests > before {
			sent++
			if d := b.now.Sub(last); d != 2*time.Second {
				pauses = append(pauses, d)
			}
			last = b.now
		}
	}
	if len(pauses) < 3 || pauses[0] < 22*time.Second || pauses[0] > 33*time.Second || pauses[len(pauses)-1] < 225*time.Second {
		t.Errorf("pauses %v", pauses)
	}
	if sent > 4*(len(pauses)+1) {
		t.Errorf("%d requests in %d efforts", sent, len(pauses)+1)
	}
}
