// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// laneIP and laneUDP hand a packet to a lane and return what came out, or "slow".
func (b *bench) laneIP(l *Lane, p []byte) []string {
	b.out.Reset()
	in := bytes.Clone(p)
	if !l.HandleIP(in, b.now, &b.out) {
		return b.left(p, in)
	}
	l.Done()
	return b.show()
}

func (b *bench) laneUDP(l *Lane, from netip.AddrPort, p []byte) []string {
	b.out.Reset()
	in := bytes.Clone(p)
	if !l.HandleUDP(from, in, b.now, &b.out) {
		return b.left(p, in)
	}
	l.Done()
	return b.show()
}

// left checks that a packet which a lane did not take is as it was.
func (b *bench) left(want, got []byte) []string {
	b.t.Helper()
	if !bytes.Equal(want, got) || len(b.out.UDP)+len(b.out.IP) > 0 {
		b.t.Errorf("a lane left %x, was %x; %d datagrams, %d packets came out", got, want, len(b.out.UDP), len(b.out.IP))
	}
	return []string{"slow"}
}

func TestLaneTakesTrustedTraffic(t *testing.T) {
	b := newBench(t)
	l := b.r.NewLane()
	b.want("unknown client", b.laneIP(l, data(host, client, "x")), "slow")
	b.trust()
	b.want("its queue may not be sent yet", b.laneIP(l, data(host, client, "x")), "slow")
	b.want("data behind the bubble", b.udp(mapped, data(client, host, "x")), "ip x hop 63")
	b.want("nor behind that", b.laneIP(l, data(host, client, "x")), "slow")
	b.r.Publish()
	b.want("to a client", b.laneIP(l, data(host, client, "hello")), "udp 198.51.100.7:40000 hello hop 63")
	b.want("from a client", b.laneUDP(l, mapped, data(client, host, "hello")), "ip hello hop 63")
	b.want("a bubble", b.laneUDP(l, mapped, bubble(client, host)))
	for _, tt := range []struct {
		name string
		got  []string
	}{
		{"last hop", b.laneIP(l, hop(1, data(host, client, "x")))},
		{"too big", b.laneIP(l, big(1281))},
		{"bad source", b.laneIP(l, data(addr("fe80::1"), client, "x"))},
		{"no packet", b.laneIP(l, []byte{0x60})},
		{"last hop from a client", b.laneUDP(l, mapped, hop(1, data(client, host, "x")))},
		{"not served", b.laneUDP(l, mapped, data(client, addr("fd00::1"), "x"))},
		{"foreign mapping", b.laneUDP(l, foreign, data(client, host, "x"))},
		{"no datagram", b.laneUDP(l, mapped, nil)},
	} {
		b.want(tt.name, tt.got, "slow")
	}
	s := b.r.Stats()
	if s.FromIPv6 != 2 || s.ToUDP != 2 || s.FromUDP != 4 || s.ToIPv6 != 2 || s.BubblesReceived != 2 {
		t.Errorf("counted %+v", s)
	}
	b.wait(23 * time.Second)
	b.want("heard 23 s ago", b.laneIP(l, data(host, client, "x")), "slow")
	b.want("the engine tests it", b.ip(data(host, client, "x")), toServer, "udp 198.51.100.7:40000 x hop 63")
	b.want("under test", b.laneUDP(l, mapped, bubble(client, host)), "slow")
	b.want("the answer", b.udp(mapped, bubble(client, host)))
	b.want("then", b.laneIP(l, data(host, client, "x")), "udp 198.51.100.7:40000 x hop 63")
}

func TestLaneLeavesSymmetricClients(t *testing.T) {
	b := newBench(t)
	l := b.r.NewLane()
	b.ip(data(host, client, "one"))
	b.udp(foreign, bubble(client, b.bubbleSource(client)))
	b.r.Publish()
	b.want("to it", b.laneIP(l, data(host, client, "x")), "slow")
	b.want("from it", b.laneUDP(l, foreign, data(client, host, "x")), "slow")
	if s := b.r.Sizes(); s.Foreign != 1 {
		t.Errorf("%+v", s)
	}
}

// A peer that is under test again when its queue was flushed stays with the
// engine; one that lost its place in the tests goes back to the lanes.
func TestPublish(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxPeers = 4 })
	l := b.r.NewLane()
	b.trust()
	b.wait(23 * time.Second)
	b.ip(data(host, client, "x"))
	b.r.Publish()
	b.want("under test", b.laneIP(l, data(host, client, "x")), "slow")
	for n := range 3 { // room for one trusted and one other
		c, _ := nth(n)
		b.ip(data(host, c, "x"))
	}
	if s := b.r.Sizes(); s.Trusted != 1 || s.Peers != 2 {
		t.Errorf("%+v", s)
	}
	b.want("the answer", b.udp(mapped, bubble(client, host)))
	b.want("then", b.laneIP(l, data(host, client, "x")), "udp 198.51.100.7:40000 x hop 63")
}

// Lanes beside the engine, for the race detector: what a lane takes of a peer's
// packets never overtakes what waited.
func TestLanesBesideEngine(t *testing.T) {
	b := newBench(t, func(c *Config) { c.BubbleRate, c.QueuePackets = 0, 64 })
	const clients = 50
	for n := range clients {
		c, m := nth(n)
		b.ip(data(host, c, "x"))
		b.udp(m, bubble(c, b.bubbleSource(c)))
	}
	b.r.Publish()
	var workers sync.WaitGroup
	for range 2 {
		l := b.r.NewLane()
		workers.Add(1)
		go func() {
			defer workers.Done()
			var out packet.Batch
			for i := range 20_000 {
				out.Reset()
				c, m := nth(i % clients)
				l.HandleIP(data(host, c, "x"), start, &out)
				l.HandleUDP(m, data(c, host, "x"), start, &out)
				l.Done()
			}
		}()
	}
	for i := range 2_000 {
		c, m := nth(clients + i)
		b.ip(data(host, c, "x"))
		b.udp(m, bubble(c, b.bubbleSource(c)))
		b.r.Publish()
		if err := b.r.Reconfigure(testConfig()); err != nil {
			t.Fatal(err)
		}
	}
	workers.Wait()
	s := b.r.Stats()
	if min(s.ToUDP, s.ToIPv6) < 30_000 {
		t.Errorf("lanes carried little: %+v", s)
	}
}
