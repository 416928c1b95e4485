// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

const (
	toServer    = "udp 203.0.113.1:3544 bubble"
	unreachable = "ip error 1/3 2001:db8::beef -> 2001:db8::1"
)

// expect lets the next timer run and checks when it was due and what it did.
func (b *bench) expect(after time.Duration, want ...string) {
	b.t.Helper()
	d, got := b.tick()
	if d != after {
		b.t.Errorf("due after %s, want %s", d, after)
	}
	b.want(fmt.Sprintf("after %s", b.now.Sub(start)), got, want...)
}

func TestNoAnswer(t *testing.T) {
	b := newBench(t)
	b.want("first packet", b.ip(data(host, client, "one")), toServer)
	b.want("second packet waits without another bubble", b.ip(data(host, client, "two")))
	b.expect(2*time.Second, toServer)
	b.expect(2*time.Second, toServer)
	b.expect(2*time.Second, toServer)
	b.expect(2*time.Second, unreachable, unreachable)
	b.want("drops", b.dropped(), "no_answer 2")
	if n := b.r.Sizes().QueuedBytes; n != 0 {
		t.Errorf("%d bytes still wait", n)
	}

	b.want("a packet to the silent peer", b.ip(data(host, client, "three")), unreachable)
	b.want("drops", b.dropped(), "peer_silent 1", "no_answer 2")
	b.expect(292 * time.Second)
	if s := b.r.Sizes(); s.Peers != 0 {
		t.Errorf("%d peers are left", s.Peers)
	}
	if !b.r.Next().IsZero() {
		t.Error("an empty relay has something to do")
	}
	b.want("after that", b.ip(data(host, client, "four")), toServer)
}

func TestSilentPeerSpeaks(t *testing.T) {
	b := newBench(t)
	b.ip(data(host, client, "one"))
	for range bubbleTries {
		b.tick()
	}
	b.want("its packet", b.udp(mapped, data(client, host, "hello")), "ip hello hop 63")
	b.want("now", b.ip(data(host, client, "two")), "udp 198.51.100.7:40000 two hop 63")
	if stats := b.r.Stats(); stats.PeersUnanswered != 1 {
		t.Errorf("%d peers unanswered", stats.PeersUnanswered)
	}
}

func TestFlushInOrder(t *testing.T) {
	b := newBench(t)
	for _, s := range []string{"one", "two", "three", "four", "five"} {
		b.ip(data(host, client, s))
	}
	b.want("drops", b.dropped(), "queue_full 1")
	b.wait(3 * time.Second)
	b.want("the answer", b.udp(mapped, bubble(client, b.bubbleSource(client))),
		"udp 198.51.100.7:40000 one hop 63", "udp 198.51.100.7:40000 two hop 63",
		"udp 198.51.100.7:40000 three hop 63", "udp 198.51.100.7:40000 four hop 63")
	b.want("and then", b.ip(data(host, client, "six")), "udp 198.51.100.7:40000 six hop 63")
	if n := b.r.Sizes().QueuedBytes; n != 0 {
		t.Errorf("%d bytes still wait", n)
	}
}

func TestDataIsAnAnswerToo(t *testing.T) {
	b := newBench(t)
	b.ip(data(host, client, "one"))
	b.want("a data packet", b.udp(mapped, data(client, host, "hello")), "udp 198.51.100.7:40000 one hop 63", "ip hello hop 63")
}

// The 30 s of RFC 4380 section 5.2.4 count from the last reception, in stamps.
func TestValidity(t *testing.T) {
	b := newBench(t)
	b.trust()
	b.wait(22 * time.Second)
	b.want("heard 22 s ago", b.ip(data(host, client, "a")), "udp 198.51.100.7:40000 a hop 63")
	b.wait(time.Second)
	b.want("heard 23 s ago: a test beside the traffic", b.ip(data(host, client, "b")), toServer, "udp 198.51.100.7:40000 b hop 63")
	b.want("one test only", b.ip(data(host, client, "c")), "udp 198.51.100.7:40000 c hop 63")
	b.wait(7*time.Second - peer.StampUnit)
	b.want("just valid", b.ip(data(host, client, "d")), "udp 198.51.100.7:40000 d hop 63")
	b.wait(2 * peer.StampUnit)
	b.want("heard 30 s ago", b.ip(data(host, client, "e")))
	b.want("the answer", b.udp(mapped, bubble(client, b.bubbleSource(client))), "udp 198.51.100.7:40000 e hop 63")
	b.want("valid again", b.ip(data(host, client, "f")), "udp 198.51.100.7:40000 f hop 63")
}

func TestExpired(t *testing.T) {
	b := newBench(t)
	b.trust()
	b.wait(31 * time.Second)
	b.want("heard 31 s ago", b.ip(data(host, client, "a")), toServer)
	for range 3 {
		b.expect(2*time.Second, toServer)
	}
	b.expect(2*time.Second, unreachable)
}

func TestForget(t *testing.T) {
	b := newBench(t)
	b.trust()
	b.wait(100 * time.Second)
	b.want("late, but known", b.udp(mapped, data(client, host, "hello")), "ip hello hop 63")
	b.wait(memory - peer.StampUnit)
	b.want("all but forgotten", b.udp(mapped, bubble(client, host)))
	heard := b.now
	for b.r.Sizes().Peers > 0 {
		b.wait(time.Second)
		b.out.Reset()
		b.r.Tick(b.now, &b.out)
		b.want("a sweep", b.show())
	}
	if d := b.now.Sub(heard); d < memory-peer.StampUnit || d > memory+sweepPeriod+time.Second {
		t.Errorf("forgotten after %s", d)
	}
	b.want("forgotten", b.udp(mapped, data(client, host, "hello")))
	b.want("drops", b.dropped(), "no_peer 1")
}

func TestErrorRate(t *testing.T) {
	b := newBench(t, func(c *Config) { c.ICMPRate = 16 })
	for range 4 {
		b.ip(data(host, client, "x"))
	}
	for range bubbleTries - 1 {
		b.tick()
	}
	b.expect(2*time.Second, unreachable, unreachable, unreachable)
	if stats := b.r.Stats(); stats.ErrorsSent != 3 || stats.ErrorsSuppressed != 1 {
		t.Errorf("%d errors sent, %d suppressed", stats.ErrorsSent, stats.ErrorsSuppressed)
	}
}

// Whoever asks for errors, others have theirs: hosts of a network, and its site, have a share.
func TestErrorShares(t *testing.T) {
	for _, tt := range []struct {
		name   string
		at     int // where the addresses of the flood differ
		victim string
	}{
		{"one host, another of its network", 0, "2001:db8:0:1::ff00:1"},
		{"hosts of a network, another network", 13, "2001:db8:0:2::1"},
		{"networks of a /48, another site", 6, "2001:db8:1::1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, func(c *Config) { c.ICMPRate = 100 })
			served := 0
			for ms := range 5000 {
				b.now = start.Add(time.Duration(ms) * time.Millisecond)
				flood := [16]byte{0x20, 1, 0x0d, 0xb8, 7: 1, 15: 1}
				if tt.at != 0 {
					flood[tt.at], flood[tt.at+1] = byte(ms>>8), byte(ms)
				}
				b.ip(hop(1, data(netip.AddrFrom16(flood), client, "x")))
				if ms%1000 == 999 {
					served += len(b.ip(hop(1, data(addr(tt.victim), client, "x"))))
				}
			}
			if served != 5 {
				t.Errorf("%d of 5 errors, %d in all", served, b.r.Stats().ErrorsSent)
			}
		})
	}
}

// A client behind a symmetric NAT answers from a mapping that is not in its
// address; the key it returns is good for 15 to 30 s.
func TestSymmetricClient(t *testing.T) {
	for _, tt := range []struct {
		name    string
		sent    time.Duration // when the bubble was sent, from the start
		wait    time.Duration
		from    netip.AddrPort
		answer  func(source netip.Addr) []byte
		flushed bool
		drop    string
	}{
		{name: "at once", from: foreign, flushed: true},
		{name: "after 14 s, sent at the start of a slot", wait: 29 * time.Second, sent: 15 * time.Second, from: foreign, flushed: true},
		{name: "in the third slot", wait: 30 * time.Second, sent: 15 * time.Second, from: foreign, drop: "bad_key 1"},
		{name: "in the second slot", sent: 29 * time.Second, wait: 15 * time.Second, from: foreign, flushed: true},
		{name: "16 s later, but in the third slot", sent: 29 * time.Second, wait: 16 * time.Second, from: foreign, drop: "bad_key 1"},
		{name: "key of another client", from: foreign, drop: "bad_key 1",
			answer: func(netip.Addr) []byte { return bubble(client, newBench(quiet{}).bubbleSource(another)) }},
		{name: "one bit wrong", from: foreign, drop: "bad_key 1", answer: func(source netip.Addr) []byte {
			a := source.As16()
			a[15] ^= 1
			return bubble(client, netip.AddrFrom16(a))
		}},
		{name: "data instead of a bubble", from: foreign, drop: "mapping_mismatch 1",
			answer: func(source netip.Addr) []byte { return data(client, source, "hello") }},
		{name: "right key, private mapping", from: netip.MustParseAddrPort("10.1.2.3:4"), drop: "mapped_not_global 1"},
		{name: "right key, port 0", from: netip.MustParseAddrPort("198.51.100.7:0"), drop: "mapped_not_global 1"},
		{name: "right key, our own address", from: netip.AddrPortFrom(relayIPv4, 9), drop: "own_address 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.wait(tt.sent)
			b.ip(data(host, client, "one"))
			source := netip.AddrFrom16([16]byte(b.out.UDP[0].Payload[8:24]))
			answer := bubble(client, source)
			if tt.answer != nil {
				answer = tt.answer(source)
			}
			b.wait(tt.wait) // without a tick: the test of the peer goes on
			if !tt.flushed {
				b.want("the answer", b.udp(tt.from, answer))
				b.want("drops", b.dropped(), tt.drop)
				return
			}
			b.want("the answer", b.udp(tt.from, answer), "udp 198.51.100.7:50000 one hop 63")
			b.want("data to it", b.ip(data(host, client, "two")), "udp 198.51.100.7:50000 two hop 63")
			b.want("data from it", b.udp(foreign, data(client, host, "hello")), "ip hello hop 63")
			b.want("data from the mapping in the address", b.udp(mapped, data(client, host, "hello")), "ip hello hop 63")
			b.want("moves nothing", b.ip(data(host, client, "three")), "udp 198.51.100.7:50000 three hop 63")
			b.wait(b.r.cfg.PeerTimeout + time.Second)
			b.want("behind a silence", b.udp(mapped, data(client, host, "hello")), "ip hello hop 63")
			b.want("moves the client", b.ip(data(host, client, "four")), "udp 198.51.100.7:40000 four hop 63")
			b.want("drops", b.dropped())
		})
	}
}

func TestKeyRate(t *testing.T) {
	b := newBench(t, func(c *Config) { c.BubbleRate = 4 })
	b.ip(data(host, client, "one"))
	for range 4 {
		b.udp(foreign, bubble(client, addr("fe80::1")))
	}
	b.udp(foreign, bubble(client, b.bubbleSource(client)))
	b.want("drops", b.dropped(), "bad_key 4", "key_rate 1")
	b.wait(time.Second)
	b.want("later", b.udp(foreign, bubble(client, b.bubbleSource(client))), "udp 198.51.100.7:50000 one hop 63")
}

func TestEchoThroughServer(t *testing.T) {
	ours, theirs := echoReply(host, client, 0), echoReply(host, client, 7)
	for _, tt := range []struct {
		name   string
		change func(*Config)
		packet []byte
		want   []string
	}{
		{"a test of ours", func(*Config) {}, ours, []string{toServer, "udp 203.0.113.1:3544 icmp 129"}},
		{"switched off", func(c *Config) { c.EchoThroughServer = false }, ours, []string{toServer}},
		{"a test of another kind of client", func(*Config) {}, theirs, []string{toServer}},
		{"a long echo reply", func(*Config) {}, packet.AppendICMPv6(nil, host, client, 64, packet.ICMPv6EchoReply, 0, make([]byte, 60)), []string{toServer}},
		{"an echo request", func(*Config) {}, teredo.AppendEchoTest(nil, host, client, new([16]byte)), []string{toServer}},
		{"a wrong checksum", func(*Config) {}, func() []byte { p := echoReply(host, client, 0); p[63] ^= 1; return p }(), []string{toServer}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.change)
			b.want("cold", b.ip(tt.packet), tt.want...)
			b.want("the answer", b.udp(mapped, bubble(client, b.bubbleSource(client))), "udp 198.51.100.7:40000 icmp "+fmt.Sprint(tt.packet[40]))
			b.want("then direct", b.ip(tt.packet), "udp 198.51.100.7:40000 icmp "+fmt.Sprint(tt.packet[40]))
		})
	}
}

// The answer to a connectivity test shows that a silent client is there.
func TestEchoRevivesSilentPeer(t *testing.T) {
	b := newBench(t)
	b.ip(data(host, client, "one"))
	for range bubbleTries {
		b.tick()
	}
	b.want("echo reply", b.ip(echoReply(host, client, 7)), toServer)
	b.want("another within 2 s", b.ip(echoReply(host, client, 7)))
	b.expect(2*time.Second, unreachable, unreachable)
	b.want("data", b.ip(data(host, client, "two")), unreachable)
	b.want("echo reply after 2 s", b.ip(echoReply(host, client, 7)), toServer)
	b.want("the answer", b.udp(mapped, bubble(client, b.bubbleSource(client))), "udp 198.51.100.7:40000 icmp 129")
}

// Repeated bubbles obey the common budget. The attempt ends all the same when one is
// refused, but no silence follows.
func TestRepeatWithinBudget(t *testing.T) {
	noneLeft := func(b *bench) {
		for range 3 {
			b.wait(2 * time.Second)
			spendBubbles(b)
			b.now = b.now.Add(-2 * time.Second)
			b.expect(2 * time.Second)
		}
	}
	t.Run("new client", func(t *testing.T) {
		b := newBench(t, func(c *Config) { c.BubbleRate = 16 })
		b.ip(data(host, client, "one"))
		noneLeft(b)
		b.expect(2*time.Second, unreachable)
		b.want("right after the end", b.ip(data(host, client, "two")), toServer)
		b.want("drops", b.dropped(), "no_answer 1")
	})
	t.Run("trusted client", func(t *testing.T) {
		b := newBench(t, func(c *Config) { c.BubbleRate, c.PeerTimeout = 16, time.Minute })
		b.trust()
		b.wait(46 * time.Second)
		b.r.Tick(b.now, &b.out) // sweeps
		b.want("first", b.ip(data(host, client, "one")), toServer, "udp 198.51.100.7:40000 one hop 63")
		noneLeft(b)
		b.expect(2 * time.Second)
		b.want("right after the end", b.ip(data(host, client, "two")), toServer, "udp 198.51.100.7:40000 two hop 63")
		b.want("drops", b.dropped())
	})
}

// A trusted client whose test no budget allows is sent to while it is valid, and then
// stays known.
func TestNoBubbleForTrustedClient(t *testing.T) {
	b := newBench(t, func(c *Config) { c.BubbleRate = 16 })
	b.trust()
	b.wait(23 * time.Second)
	spendBubbles(b)
	b.want("valid", b.ip(data(host, client, "one")), "udp 198.51.100.7:40000 one hop 63")
	b.wait(8 * time.Second)
	spendBubbles(b)
	b.want("no longer", b.ip(data(host, client, "two")))
	b.want("drops", b.dropped(), "bubble_rate 1")
	b.want("what it sends", b.udp(mapped, data(client, host, "hello")), "ip hello hop 63")
	b.want("valid again", b.ip(data(host, client, "three")), "udp 198.51.100.7:40000 three hop 63")
}

// The time-out of peers may be longer than silent ones are remembered.
func TestLongPeerTimeout(t *testing.T) {
	b := newBench(t, func(c *Config) { c.PeerTimeout = 10 * time.Minute })
	b.trust()
	for b.now.Before(start.Add(memory + sweepPeriod)) {
		b.tick()
	}
	b.want("to the client", b.ip(data(host, client, "one")), "udp 198.51.100.7:40000 one hop 63")
	b.want("from it", b.udp(mapped, data(client, host, "hello")), "ip hello hop 63")
}

// A symmetric client that is asked again may answer from the mapping in its address.
func TestSymmetricClientComesHome(t *testing.T) {
	b := newBench(t)
	b.ip(data(host, client, "one"))
	b.udp(foreign, bubble(client, b.bubbleSource(client)))
	b.wait(23 * time.Second)
	b.want("asked again", b.ip(data(host, client, "two")), toServer, "udp 198.51.100.7:50000 two hop 63")
	b.want("without the key", b.udp(mapped, bubble(client, host)))
	b.want("nothing moves", b.ip(data(host, client, "three")), "udp 198.51.100.7:50000 three hop 63")
	b.want("with the key", b.udp(mapped, bubble(client, b.bubbleSource(client))))
	b.want("it moves", b.ip(data(host, client, "four")), "udp 198.51.100.7:40000 four hop 63")
	b.wait(3 * time.Second)
	b.r.Tick(b.now, &b.out)
	b.want("drops", b.dropped())
	if s := b.r.Stats(); s.BubblesSent != 2 || s.ForeignMappings != 1 {
		t.Errorf("%d bubbles, %d foreign mappings", s.BubblesSent, s.ForeignMappings)
	}
}

// No more copies go to a server than bubbles.
func TestEchoCopiesOfOneAttempt(t *testing.T) {
	b := newBench(t, func(c *Config) { c.QueuePackets = 16 })
	for n := range byte(10) {
		b.ip(echoReply(netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 15: n + 1}), client, 0))
	}
	for range bubbleTries {
		b.tick()
	}
	b.ip(echoReply(host, client, 0)) // wakes it again
	b.ip(echoReply(host, client, 0))
	if s := b.r.Stats(); s.EchoCopies != bubbleTries+1 || s.BubblesSent != bubbleTries+1 {
		t.Errorf("%d copies beside %d bubbles", s.EchoCopies, s.BubblesSent)
	}
}
