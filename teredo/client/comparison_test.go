// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/teredo/client"
)

// newUnknown is a client behind an unknown kind of NAT, whose server's secondary address
// has not answered.
func newUnknown(t *testing.T) *bench {
	b := newBench(t, func(c *client.Config) { c.Refresh = 100 * time.Hour })
	b.begin(client.Server{Primary: primary, Secondary: second})
	b.udp(primaryPort, b.answer(mapping))
	for range 3 {
		b.tick()
	}
	b.want("given up", b.show(), "event: NAT: unknown, port not preserved")
	return b
}

// The secondary address is asked again, in rounds of three, with a pause that grows to ten
// minutes.
func TestSecondaryIsAskedAgain(t *testing.T) {
	b := newUnknown(t)
	for _, pause := range []time.Duration{30, 60, 120, 240, 480, 600, 600} {
		pause *= time.Second
		d, got := b.tick()
		b.want("again", got, "to secondary: solicitation")
		if d < pause*3/4 || d > pause {
			t.Errorf("after %v, want %v at most", d, pause)
		}
		for range 2 {
			_, got = b.tick()
			b.want("repeat", got, "to secondary: solicitation")
		}
		_, got = b.tick()
		b.want("given up", got)
	}
	b.tick()
	b.want("the answer at last", b.udp(secondPort, advertisement(b.solicitation(secondPort), foreign)),
		"event: NAT: address-dependent or address-and-port-dependent mapping, port not preserved")
	for end := b.now.Add(time.Hour); b.now.Before(end); {
		if next := b.c.Next(); next.IsZero() || next.After(end) {
			break
		}
		if _, got := b.tick(); slices.Contains(got, "to secondary: solicitation") {
			t.Fatal("asked although it is known")
		}
	}
}

// What was planned ends with the address, or where no secondary is known any more.
func TestSecondaryIsForgotten(t *testing.T) {
	for name, change := range map[string]func(b *bench){
		"no IPv4":     func(b *bench) { b.c.LocalChanged(netip.AddrPort{}, nil, b.now, &b.out) },
		"no server":   func(b *bench) { b.c.SetServers(nil, b.now, &b.out) },
		"end":         func(b *bench) { b.c.Stop(&b.out) },
		"native IPv6": func(b *bench) { b.c.NativeChanged(true, b.now, &b.out) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newUnknown(t)
			b.out.Reset()
			change(b)
			if next := b.c.Next(); !next.IsZero() && next.Before(b.now.Add(time.Minute)) {
				t.Errorf("something is due in %v", next.Sub(b.now))
			}
		})
	}
}
