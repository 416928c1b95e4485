// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pool

import (
	"net/netip"
	"runtime"
	"testing"
	"time"
)

// BenchmarkTakeFree takes and frees in a /8 with a million leases used, a quarter of a
// million of them with gaps between.
func BenchmarkTakeFree(b *testing.B) {
	p, _ := make4(b, 0, "10.0.0.0/8")
	var list []netip.Prefix
	for i := range 1 << 20 {
		l, err := p.Take(start)
		if err != nil {
			b.Fatal(err)
		}
		if i%4 == 0 {
			list = append(list, l)
		}
	}
	now := start
	for i := 0; b.Loop(); i++ {
		now = now.Add(time.Microsecond)
		p.Free(list[i%len(list)], now)
		list[i%len(list)], _ = p.Take(now)
	}
}

// BenchmarkTakeOfFull takes the last lease of a /12 again and again: the search crosses
// all that is used.
func BenchmarkTakeOfFull(b *testing.B) {
	p, _ := make4(b, 0, "10.0.0.0/12")
	var last netip.Prefix
	for p.Counters().Free > 0 {
		last, _ = p.Take(start)
	}
	for b.Loop() {
		p.Free(last, start)
		if _, err := p.Take(start); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMemory says how many octets a lease takes of a million in a /32 of IPv6.
func BenchmarkMemory(b *testing.B) {
	const leases = 1 << 20
	for b.Loop() {
		before := heap()
		s := Settings{Length: 64, Ranges: []Range{PrefixRange(netip.MustParsePrefix("2001:db8::/32"))}}
		p, err := New(s, 12345)
		if err != nil {
			b.Fatal(err)
		}
		for range leases {
			if _, err := p.Take(start); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(heap()-before)/leases, "B/lease")
		runtime.KeepAlive(p)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
