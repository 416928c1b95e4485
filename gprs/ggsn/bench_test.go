// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// crowd is a world with n contexts of IPv6, as many as fit.
func crowd(b *testing.B, n int) *world {
	w := newWorld(b, func(s *Settings) {
		s.Limits.Contexts, s.Limits.Requests = n+10, 1<<30
		s.APNs[1].Pools6 = prefixes("2001:db8:8000::/34")
	})
	for i := range n {
		w.open(i+1, "inet6", gtp.PDPTypeIPv6)
		if i%1000 == 0 {
			w.now = w.now.Add(time.Second)
		}
	}
	return w
}

// BenchmarkCreateDelete makes and ends a context while 100,000 others are held. What is
// asked is written beforehand but for sequence numbers and the TEID of the delete.
func BenchmarkCreateDelete(b *testing.B) {
	w := crowd(b, 100_000)
	const ring = 4096
	var creates, deletes [ring][]byte
	for i := range ring {
		h := gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: uint16(i)}
		creates[i] = w.encode(h, w.createRequest(testIMSI(200_000+i), "inet6", gtp.PDPTypeIPv6))
		deletes[i] = w.encode(h, &gtp.DeleteRequest{NSAPI: 5, Teardown: gtp.Some(true)})
	}
	from := netip.AddrPortFrom(sgsn, 40000)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		w.now = w.now.Add(time.Millisecond)
		w.out.Reset()
		binary.BigEndian.PutUint16(creates[i%ring][8:], uint16(i)) // or it came before
		w.e.HandleUDP(SocketControl, from, 0, creates[i%ring], w.now, &w.out)
		answer, err := gtp.ParseHeader(w.out.UDP[0].Payload)
		if err != nil {
			b.Fatal(err)
		}
		e, _ := gtp.ParseElements(&answer)
		teid, _ := e.Find(gtp.ElementTEIDControl, 0)
		copy(deletes[i%ring][4:8], teid)
		w.e.HandleUDP(SocketControl, from, 0, deletes[i%ring], w.now, &w.out)
		i++
	}
	if w.e.contexts.used() != 100_000 {
		b.Fatalf("%d contexts", w.e.contexts.used())
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
}

// BenchmarkMemory says how many octets a context takes, of 100,000, with all that belongs to
// it: session, indexes, timers and leases.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		before := heap()
		w := crowd(b, 100_000)
		w.out = Output{}
		b.ReportMetric(float64(heap()-before)/100_000, "B/context")
		runtime.KeepAlive(w)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func benchmarkUser(b *testing.B, size int, down bool) {
	w := crowd(b, 100_000)
	var c [1024]context
	i := 0
	w.e.Contexts(Selection{}, 0, len(c), func(info ContextInfo) bool {
		c[i].TEIDData.Value = info.TEIDData
		c[i].EndUserAddress.Value.IPv6 = info.Prefix6.Addr()
		i++
		return true
	})
	var packets [len(c)][]byte
	for n := range packets {
		if down {
			packets[n] = udp6(host6, c[n].six(), 255, size-48)
			continue
		}
		packets[n], _ = gtp.Encapsulate(nil, &gtp.Header{Version: gtp.V1, Type: gtp.TypeGPDU, TEID: c[n].TEIDData.Value}, udp6(c[n].six(), host6, 255, size-48))
	}
	from := netip.AddrPortFrom(sgsn, gtp.PortUser)
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; b.Loop(); n++ {
		if n%64 == 0 {
			w.out.Reset()
		}
		p := packets[n%len(packets)]
		if down {
			p[7] = 255
			w.e.HandleIP(0, p, w.now, &w.out)
		} else {
			p[8+7] = 255
			w.e.HandleUDP(SocketUser, from, 0, p, w.now, &w.out)
		}
	}
	if s := w.e.stats; s.Up.Packets+s.Down.Packets < uint64(b.N) {
		b.Fatalf("dropped %v", w.dropped())
	}
}

func BenchmarkUplink64(b *testing.B)     { benchmarkUser(b, 64, false) }
func BenchmarkUplink1280(b *testing.B)   { benchmarkUser(b, 1280, false) }
func BenchmarkDownlink64(b *testing.B)   { benchmarkUser(b, 64, true) }
func BenchmarkDownlink1280(b *testing.B) { benchmarkUser(b, 1280, true) }
