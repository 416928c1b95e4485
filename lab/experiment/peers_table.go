// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	mathrand "math/rand/v2"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
	"github.com/isthmus-net/isthmus/teredo/relay"
)

// The peer table and the engine around it, without sockets, in virtual time.

// peerBatch is how many operations are timed together: the most that a relay
// does at a time, and enough that the clock does not count.
const peerBatch = port.MaxBatch

// peerStale is after how much silence a peer may lose its place.
const peerStale = 30 * time.Second

// clientOf is the i-th of many clients behind the NATs 203.0.113.1 to .250.
func clientOf(i int) (address [16]byte, mapped netip.AddrPort) {
	nat := netip.AddrFrom4([4]byte{203, 0, 113, byte(1 + i%250)})
	server := netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i/7%250)})
	return strangerOf(i/250, nat, server)
}

// strangerOf is the i-th client of that NAT and server.
func strangerOf(i int, nat, server netip.Addr) (address [16]byte, mapped netip.AddrPort) {
	mapped = netip.AddrPortFrom(nat, uint16(1024+i%64000))
	return teredo.Addr{Prefix: teredo.Prefix, Server: server, Mapped: mapped}.IP().As16(), mapped
}

// tableTimes are nanoseconds an operation, one value a batch.
type tableTimes struct{ insert, lookup, evict []float64 }

// measureTable fills a table of n peers, looks all up at random, and replaces
// stale ones.
func measureTable(n int) (tableTimes, error) {
	var times tableTimes
	memory, free, err := port.Memory(peer.HotBytes(n))
	if err != nil {
		return times, err
	}
	defer free()
	hot, err := peer.NewHot(memory, n, [][4]byte{[4]byte(teredo.Prefix.Addr().AsSlice())}, rand.Reader)
	if err != nil {
		return times, err
	}
	failed := 0
	insert := func(i int, at peer.Instant) {
		key, mapped := clientOf(i)
		if hot.Insert(&key, mapped, at, peerStale, false) != peer.Accepted {
			failed++
		}
	}
	for first := 0; first+peerBatch <= n; first += peerBatch {
		times.insert = append(times.insert, perItem(peerBatch, func() {
			for i := first; i < first+peerBatch; i++ {
				insert(i, 0)
			}
		}))
	}
	filled, _ := hot.Len()
	rng := mathrand.New(mathrand.NewPCG(1, 2))
	keys := make([][16]byte, peerBatch)
	lost := 0
	for range n / peerBatch {
		for i := range keys {
			keys[i], _ = clientOf(rng.IntN(filled))
		}
		times.lookup = append(times.lookup, perItem(peerBatch, func() {
			for i := range keys {
				if _, ok := hot.Lookup(&keys[i]); !ok {
					lost++
				}
			}
		}))
	}
	for first := n; first < n+n/4; first += peerBatch {
		times.evict = append(times.evict, perItem(peerBatch, func() {
			for i := first; i < first+peerBatch; i++ {
				insert(i, peer.Instant(time.Minute))
			}
		}))
	}
	if failed > 0 || lost > 0 {
		return times, fmt.Errorf("%d of %d insertions failed, %d peers were not found", failed, n+n/4, lost)
	}
	return times, nil
}

// perItem times work on n items, in nanoseconds each.
func perItem(n int, work func()) float64 {
	start := time.Now()
	work()
	return float64(time.Since(start).Nanoseconds()) / float64(n)
}

// percentile returns the value below which p in a hundred of the samples lie.
func percentile(samples []float64, p float64) float64 {
	s := slices.Sorted(slices.Values(samples))
	return s[min(int(p/100*float64(len(s))), len(s)-1)]
}

// pauses are the longest times for which the engine kept others waiting, by what
// it did: processor time of its thread, so that other programs do not count.
type pauses struct{ fill, traffic, sweep, list time.Duration }

// measurePauses lets an engine meet n peers, have traffic with all, list them, and
// forget them all at once.
func measurePauses(n int) (p pauses, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	memory, free, err := port.Memory(peer.HotBytes(n))
	if err != nil {
		return p, err
	}
	defer free()
	now := time.Unix(0, 0)
	r, err := relay.New(relay.Config{
		Prefixes: []netip.Prefix{teredo.Prefix}, Serve: []netip.Prefix{netip.MustParsePrefix("2000::/3")},
		Port: relayPort, MTU: teredo.MTU, MaxPeers: n, PeerTimeout: peerStale, Memory: memory,
		QueuePackets: 1, QueueBytes: teredo.MTU, QueueTotalBytes: peerBatch * teredo.MTU,
	}, now, rand.Reader)
	if err != nil {
		return p, err
	}
	var out packet.Batch
	packets, answers := make([][]byte, peerBatch), make([][]byte, peerBatch)
	froms := make([]netip.AddrPort, peerBatch)
	batches := func(worst *time.Duration) {
		for first := 0; first < n; first += peerBatch {
			for i := range packets {
				var key [16]byte
				key, froms[i] = clientOf(min(first+i, n-1))
				client := netip.AddrFrom16(key)
				packets[i] = packet.AppendIPv6Header(packets[i][:0], packet.ProtoUDP, 64, 0, hostAddr, client)
				answers[i] = packet.AppendIPv6Header(answers[i][:0], packet.ProtoUDP, 64, 0, client, hostAddr)
			}
			longest(worst, func() {
				out.Reset()
				for i := range packets {
					r.HandleIP(packets[i], now, &out)
				}
			})
			longest(worst, func() {
				out.Reset()
				for i := range answers {
					r.HandleUDP(froms[i], answers[i], now, &out)
				}
			})
			r.Publish()
		}
	}
	batches(&p.fill)
	now = now.Add(time.Second)
	batches(&p.traffic)
	if s := r.Sizes(); s.Trusted != n {
		return p, fmt.Errorf("the engine knows %d of %d peers", s.Trusted, n)
	}
	list := relay.Listing{Limit: n}
	for done := false; !done; {
		list.Peers = list.Peers[:0] // what it grows by is not the engine's affair
		longest(&p.list, func() { done = r.List(&list, now) })
	}
	now = now.Add(time.Hour)
	for !r.Next().IsZero() {
		longest(&p.sweep, func() { r.Tick(now, &out) })
		now = now.Add(time.Second)
	}
	return p, nil
}

// worst is the longest of all.
func (p pauses) worst() time.Duration { return max(p.fill, p.traffic, p.sweep, p.list) }

// longest runs work and keeps its time if it is the longest so far.
func longest(worst *time.Duration, work func()) {
	start := threadTime()
	work()
	*worst = max(*worst, threadTime()-start)
}

// threadTime is how long the calling thread has run.
func threadTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano())
}
