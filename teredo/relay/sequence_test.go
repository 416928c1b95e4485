// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
)

// TestSequences lets relays with tight limits live through random lives. At each
// step every packet must be accounted for, the bounds must hold, and behind a
// tick nothing may be due, or the timer would spin.
func TestSequences(t *testing.T) {
	testutil.OneThread(t)
	for seed := range uint64(300) {
		l := newLife(t, seed)
		for range 200 {
			l.step()
		}
	}
}

// life is one relay with some clients, an IPv6 host, and chance.
type life struct {
	*bench
	seed    uint64
	rand    *rand.Rand
	clients []netip.AddrPort
	bubble  netip.Addr // source of the last bubble
}

const lifeQueue = 400 // bytes that may wait in all

func newLife(t *testing.T, seed uint64) *life {
	l := &life{seed: seed, rand: rand.New(rand.NewPCG(seed, 1)), bubble: addr("fe80::1")}
	for i := range byte(12) {
		l.clients = append(l.clients, netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, 20 + i}), 4000))
	}
	l.bench = newBench(t, func(c *Config) {
		c.MaxPeers = 1 + l.rand.IntN(14)
		c.QueuePackets, c.QueueBytes, c.QueueTotalBytes = 1+l.rand.IntN(4), lifeQueue/2, lifeQueue
		c.BubbleRate = []int{0, 5, 100}[l.rand.IntN(3)]
		c.ICMPRate = []int{0, 2}[l.rand.IntN(2)]
		c.Host, c.BehindNAT = l.rand.IntN(2) == 0, l.rand.IntN(2) == 0
	})
	return l
}

// step lets one thing happen and checks the relay.
func (l *life) step() {
	from := l.clients[l.rand.IntN(len(l.clients))]
	c := teredoAddr(server, from)
	switch l.rand.IntN(10) {
	case 0, 1, 2:
		l.ip(l.hops(data(host, c, "payload")))
	case 3:
		l.ip(echoReply(host, c, byte(l.rand.IntN(2))))
	case 4:
		l.udp(from, bubble(c, l.bubble))
	case 5:
		l.udp(from, l.hops(data(c, host, "payload")))
	case 6:
		l.udp(foreign, bubble(c, l.bubbleSource(c)))
	case 7:
		l.udp(foreign, bytes.Repeat([]byte{byte(l.rand.IntN(256))}, l.rand.IntN(60)))
	default:
		l.pass()
	}
	l.check()
}

// hops gives a packet few hops, or none.
func (l *life) hops(p []byte) []byte {
	packet.IPv6(p).SetHopLimit(byte(l.rand.IntN(4)))
	return p
}

// pass lets time pass, a step of the clock back included.
func (l *life) pass() {
	steps := []time.Duration{0, time.Millisecond, time.Second, 2 * time.Second, 23 * time.Second, 31 * time.Second, 400 * time.Second, -time.Second}
	l.wait(steps[l.rand.IntN(len(steps))])
	if next := l.r.Next(); next.After(l.now) && l.rand.IntN(2) == 0 {
		l.now = next
	}
	l.out.Reset()
	l.r.Tick(l.now, &l.out)
	if next := l.r.Next(); !next.IsZero() && !next.After(l.now) {
		l.t.Fatalf("life %d: something is due %v before now, behind a tick", l.seed, l.now.Sub(next))
	}
}

func (l *life) check() {
	l.t.Helper()
	for _, d := range l.out.UDP {
		if !l.r.cfg.Global.OK(d.To.Addr()) || d.To.Port() == 0 {
			l.t.Fatalf("life %d: sent to %s", l.seed, d.To)
		}
		if p, err := teredo.Parse(d.Payload); err == nil && teredo.IsBubble(p.IPv6) {
			l.bubble = p.IPv6.Src()
		}
	}
	s := l.r.Sizes()
	if s.Trusted > l.r.cfg.MaxPeers || s.Trusted > s.Peers || s.QueuedBytes < 0 || s.QueuedBytes > lifeQueue {
		l.t.Fatalf("life %d: %+v", l.seed, s)
	}
	stats := l.r.Stats()
	in, done := stats.FromIPv6+stats.FromUDP, stats.ToUDP+stats.ToIPv6+stats.BubblesReceived
	for _, p := range l.peers(1 << 10) {
		done += uint64(p.Queued)
	}
	stats.EachDropped(func(_ Reason, n uint64) { done += n })
	if in != done {
		l.t.Fatalf("life %d: %d packets came, %d are accounted for: %+v", l.seed, in, done, stats)
	}
}
