// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"testing"
)

// Data of a known peer costs no allocation, in either direction.
func TestNoAllocation(t *testing.T) {
	b := newQualified(t)
	b.trusted()
	out := data(b.address(), peerAddr, "out")
	in := data(peerAddr, b.address(), "in")
	if n := testing.AllocsPerRun(1000, func() {
		b.out.Reset()
		b.c.HandleIP(out, b.now, &b.out)
		b.c.HandleUDP(peerMapping, in, b.now, &b.out)
	}); n != 0 {
		t.Errorf("%v allocations per packet pair", n)
	}
	if s := b.c.Stats(); s.Sent < 1000 || s.Delivered < 1000 {
		t.Errorf("%d sent, %d delivered: the packets took another way", s.Sent, s.Delivered)
	}
}

func BenchmarkHandleIP(b *testing.B) {
	c := newQualified(b)
	c.trusted()
	p := data(c.address(), peerAddr, "out")
	b.ReportAllocs()
	for b.Loop() {
		c.out.Reset()
		c.c.HandleIP(p, c.now, &c.out)
	}
}

func BenchmarkHandleUDP(b *testing.B) {
	c := newQualified(b)
	c.trusted()
	p := data(peerAddr, c.address(), "in")
	b.ReportAllocs()
	for b.Loop() {
		c.out.Reset()
		c.c.HandleUDP(peerMapping, p, c.now, &c.out)
	}
}
