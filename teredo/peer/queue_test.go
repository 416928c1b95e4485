// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peer

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
)

// waiting is a packet of n bytes, distinguished by its hop limit.
func waiting(mark byte, n int) packet.IPv6 {
	a := netip.MustParseAddr("2001:db8::1")
	return append(packet.AppendIPv6Header(nil, packet.ProtoUDP, mark, n-packet.IPv6HeaderLen, a, a),
		make([]byte, n-packet.IPv6HeaderLen)...)
}

func TestQueueKeepsOrderAndOwnCopies(t *testing.T) {
	budget := &Budget{QueuePackets: 10, QueueBytes: 10_000, TotalBytes: 10_000}
	var q Queue
	for round := range 3 { // later rounds reuse buffers
		p := waiting(0, 100)
		for i := range 10 {
			p.SetHopLimit(byte(10*round + i))
			if !q.Push(budget, p) {
				t.Fatalf("packet %d refused", i)
			}
		}
		var out packet.Batch
		var got []byte
		q.Drain(budget, &out, func(p packet.IPv6) { out.SendIP(p) })
		q.Push(budget, waiting(99, 100)) // must not write into what was drained
		for _, p := range out.IP {
			got = append(got, packet.IPv6(p).HopLimit())
		}
		b := byte(10 * round)
		if diff := cmp.Diff([]byte{b, b + 1, b + 2, b + 3, b + 4, b + 5, b + 6, b + 7, b + 8, b + 9}, got); diff != "" {
			t.Errorf("round %d (-want +got):\n%s", round, diff)
		}
		if n := q.Clear(budget); n != 1 || budget.Used() != 0 || q.Len() != 0 {
			t.Errorf("round %d: cleared %d, %d bytes in use", round, n, budget.Used())
		}
	}
}

func TestQueueBounds(t *testing.T) {
	budget := &Budget{QueuePackets: 3, QueueBytes: 250, TotalBytes: 400}
	var a, b Queue
	steps := []struct {
		name string
		q    *Queue
		size int
		want bool
	}{
		{"first", &a, 100, true},
		{"second", &a, 100, true},
		{"over the bytes of one queue", &a, 51, false},
		{"third fits exactly", &a, 50, true},
		{"over the packets of one queue", &a, 40, false},
		{"another queue", &b, 100, true},
		{"over the bytes of all queues", &b, 51, false},
		{"fits exactly", &b, 50, true},
	}
	for _, s := range steps {
		if got := s.q.Push(budget, waiting(1, max(s.size, 40))); got != s.want {
			t.Errorf("%s: Push = %v, want %v", s.name, got, s.want)
		}
	}
	if budget.Used() != 400 {
		t.Errorf("%d bytes in use, want 400", budget.Used())
	}
}

// A host that is alone can fill one queue, whatever the total is.
func TestQueueOfOneHost(t *testing.T) {
	const full = 1280
	for _, total := range []int{full, full + 40, 2 * full, 4 * full, 16 * full, 64 * full} {
		held, err := ratelimit.NewHeld(64, seeded(1))
		if err != nil {
			t.Fatal(err)
		}
		budget := &Budget{QueuePackets: 10, QueueBytes: full, TotalBytes: total, Sources: held}
		var q Queue
		if !q.Push(budget, waiting(1, full)) {
			t.Errorf("%d bytes in all: no full packet may wait", total)
		}
		for range 100 {
			var other Queue
			other.Push(budget, waiting(1, full))
		}
		if used := budget.Used(); used > max(total/2, full) {
			t.Errorf("%d bytes in all: one host has %d", total, used)
		}
	}
}
