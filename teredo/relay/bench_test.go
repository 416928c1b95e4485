// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

var tableSizes = []int{1, 100_000}

// crowd is a relay that knows n clients.
func crowd(b *testing.B, n int) *bench {
	r := newBench(b, func(c *Config) { c.MaxPeers, c.BubbleRate = 1<<20, 0 })
	for i := range n {
		c, m := nth(i)
		r.out.Reset()
		r.r.HandleIP(data(host, c, ""), r.now, &r.out)
		r.out.Reset()
		r.r.HandleUDP(m, bubble(c, host), r.now, &r.out)
	}
	if trusted := r.r.Sizes().Trusted; trusted != n {
		b.Fatalf("%d peers are trusted, want %d", trusted, n)
	}
	return r
}

// order visits n peers so that neighbours in time are none in memory.
func order(i, n int) int { return i * 7919 % n }

func BenchmarkHandleIP(b *testing.B) {
	for _, n := range tableSizes {
		b.Run(fmt.Sprintf("peers=%d", n), func(b *testing.B) {
			r := crowd(b, n)
			packets := make([][]byte, n)
			for i := range packets {
				c, _ := nth(i)
				packets[i] = data(host, c, "0123456789012345")
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				p := packets[order(i, n)]
				p[7] = 64
				if i%64 == 0 {
					r.out.Reset()
				}
				r.r.HandleIP(p, r.now, &r.out)
			}
		})
	}
}

func BenchmarkHandleUDP(b *testing.B) {
	for _, n := range tableSizes {
		b.Run(fmt.Sprintf("peers=%d", n), func(b *testing.B) {
			r := crowd(b, n)
			packets, from := make([][]byte, n), make([]netip.AddrPort, n)
			for i := range packets {
				var c netip.Addr
				c, from[i] = nth(i)
				packets[i] = data(c, host, "0123456789012345")
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				n := order(i, n)
				p := packets[n]
				p[7] = 64
				if i%64 == 0 {
					r.out.Reset()
				}
				r.r.HandleUDP(from[n], p, r.now, &r.out)
			}
		})
	}
}

// A flood of packets to strangers, 50,000 a second of the relay's time, with its
// timers.
func BenchmarkFloodOfStrangers(b *testing.B) {
	for _, max := range []int{100_000, 1 << 20} {
		b.Run(fmt.Sprintf("max_peers=%d", max), func(b *testing.B) {
			r := newBench(b, func(c *Config) { c.MaxPeers, c.QueueTotalBytes = max, 16<<20 })
			packets := make([][]byte, 100_000)
			for i := range packets {
				c, _ := nth(i * 7)
				src := netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 5: byte(i >> 16), 6: byte(i >> 8), 7: byte(i), 15: 1})
				packets[i] = data(src, c, "0123456789012345")
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				p := packets[i%len(packets)]
				p[7] = 64
				if i%64 == 0 {
					r.out.Reset()
					for next := r.r.Next(); !next.IsZero() && !next.After(r.now); next = r.r.Next() {
						r.r.Tick(r.now, &r.out)
					}
				}
				r.wait(20 * time.Microsecond)
				r.r.HandleIP(p, r.now, &r.out)
			}
		})
	}
}
