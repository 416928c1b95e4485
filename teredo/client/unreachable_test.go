// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/teredo/client"
)

// A server that is not there yet is asked again soon, a few times, whatever is said how
// often; the solicitations of RFC 4380 all follow.
func TestServerUnreachable(t *testing.T) {
	const T = 4 * time.Second
	again := []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}
	flood := func(b *bench, times int) {
		for range times {
			b.c.Unreachable(primaryPort, b.now)
		}
	}
	for _, tt := range []struct {
		name string
		told func(b *bench)
		want []time.Duration
	}{
		{"once for each sending", func(b *bench) { flood(b, 1) }, append(again, T, T)},
		{"a flood of it", func(b *bench) { flood(b, 1000) }, append(again, T, T)},
		{"of another address", func(b *bench) { b.c.Unreachable(secondPort, b.now) }, []time.Duration{T, T}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.begin(client.Server{Primary: primary})
			for i, want := range tt.want {
				tt.told(b)
				wait, got := b.tick()
				b.want("again", got, "to primary: solicitation")
				if wait != want {
					t.Errorf("sending %d came after %v, want %v", i+2, wait, want)
				}
			}
			tt.told(b)
			wait, got := b.tick()
			b.want("the end", got, "event: silent: 203.0.113.1", "event: off-line")
			if wait != T {
				t.Errorf("given up after %v, want %v", wait, T)
			}
		})
	}
	t.Run("late in a wait", func(t *testing.T) {
		b := newBench(t)
		b.begin(client.Server{Primary: primary})
		b.now = b.now.Add(T - time.Millisecond)
		flood(b, 1)
		if wait, _ := b.tick(); wait != time.Millisecond {
			t.Errorf("the sending comes after %v: later than without the news", wait)
		}
	})
	t.Run("with an address", func(t *testing.T) {
		b := newBench(t)
		b.begin(client.Server{Primary: primary})
		b.udp(primaryPort, b.answer(mapping))
		before := b.c.Next()
		flood(b, 1000)
		if got := b.c.Next(); got != before {
			t.Errorf("the next timer is at %v, before %v", got, before)
		}
	})
}
