// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// TestSearch finds the size of a path of any MTU, by RFC 8899's sizes.
func TestSearch(t *testing.T) {
	for _, c := range []struct{ mtu, most, want int }{
		{1500, 1500, 1500}, {1500, 9000, 1500}, {9000, 9000, 9000}, {1492, 1500, 1492}, {1450, 1500, 1440},
		{1280, 1500, 1280}, {1399, 1500, 1280}, {65535, 65535, 65535}, {1500, 1280, 1280},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			par := Defaults()
			par.MaxMTU = c.most
			w := newWorld(t, dual(), par)
			w.mtu = func(Pair) int { return c.mtu }
			w.connect(w.hosts[1].end.config.Addresses...)
			w.run(time.Minute)
			for _, h := range w.hosts {
				for _, p := range h.a.paths {
					if p.mtu != c.want {
						t.Errorf("the MTU of %v is taken for %d", p.Pair, p.mtu)
					}
				}
			}
			h := w.hosts[0]
			if c.want > 1280 && h.end.Counters.MTUProbes > 4*12 {
				t.Errorf("%d probes for four paths", h.end.Counters.MTUProbes)
			}
			w.expectSizes(c.want)
		})
	}
}

// TestSearchElsewhere looks for the size with IPv4, and in UDP, whose header counts (RFC 8899 section 6.2.2.2).
func TestSearchElsewhere(t *testing.T) {
	ipv4 := [2][]netip.Addr{addresses("192.0.2.1", "198.51.100.1"), addresses("192.0.2.2", "198.51.100.2")}
	for name, c := range map[string]struct {
		at  [2][]netip.Addr
		udp uint16
	}{"IPv4": {ipv4, 0}, "UDP": {dual(), 9899}, "UDP in IPv4": {ipv4, 9899}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.at, Defaults())
			w.udp = c.udp
			w.mtu = func(Pair) int { return 1420 }
			w.connect(c.at[1]...)
			w.run(time.Minute)
			w.expectSizes(1420)
		})
	}
}

// TestSizesOfPaths has two networks that take packets of different sizes: each is known by itself, and messages are cut for
// the smaller one, so that either path can take what the other has lost (RFC 9260 section 7.3).
func TestSizesOfPaths(t *testing.T) {
	w := newWorld(t, dual(), Defaults())
	w.mtu = func(p Pair) int {
		if path1(p) {
			return 1500
		}
		return 1400
	}
	w.connect(w.hosts[1].end.config.Addresses...)
	w.run(time.Minute)
	for _, p := range w.hosts[0].a.paths {
		if p.mtu != w.mtu(p.Pair) {
			t.Errorf("the MTU of %v is taken for %d", p.Pair, p.mtu)
		}
	}
	if !path1(w.hosts[0].a.primary.Pair) {
		t.Fatal("data goes by the path of the smaller packets")
	}
	w.expectSizes(1400)
}

// TestDataConfirmsNoSize has data be acknowledged that was cut for larger packets than the path is known to take now, and
// goes in fragments: only probes confirm sizes, of which none comes through (RFC 8899 section 4.2).
func TestDataConfirmsNoSize(t *testing.T) {
	w := pair(t, Defaults())
	w.run(10 * time.Second)
	h := w.hosts[0]
	w.lost = func(int, Packet) bool { return true }
	h.say(0, make([]byte, 1400), false)
	good := chunk.Begin(nil, chunk.Header{Source: 5000, Destination: 5000, Tag: h.a.peerTag})
	for _, p := range h.a.paths {
		h.end.HandleICMP(ICMP{p.Pair, TooBig, 1280, good}, w.now, &h.out)
	}
	h.flush()
	fragments := 0
	w.lost = func(_ int, p Packet) bool {
		if p.Fragment {
			fragments++
		}
		return has(p, chunk.TypePad)
	}
	w.run(20 * time.Second)
	if fragments == 0 || len(w.hosts[1].got) != 1 || h.a.sent.length > 0 {
		t.Fatalf("%d packets in fragments, %d messages have come", fragments, len(w.hosts[1].got))
	}
	for _, p := range h.a.paths {
		if p.mtu != 1280 {
			t.Errorf("the MTU of %v is taken for %d", p.Pair, p.mtu)
		}
	}
}

// TestSmallPath has a path of IPv4 that takes less than the base size: the state ERROR of RFC 8899 section 5.2.
func TestSmallPath(t *testing.T) {
	at := [2][]netip.Addr{addresses("192.0.2.1"), addresses("192.0.2.2")}
	w := newWorld(t, at, Defaults())
	w.mtu = func(Pair) int { return 600 }
	w.connect(at[1]...)
	w.run(time.Minute)
	w.expectSizes(576)
}

// expectSizes sends a large message and compares the size of its packets.
func (w *world) expectSizes(mtu int) {
	w.t.Helper()
	largest := 0
	w.trace = func(from int, p Packet) {
		if _, data := firstTSN(p); data && from == 0 {
			largest = max(largest, w.size(p))
		}
		if p.Fragment {
			w.t.Error("a packet is to be fragmented")
		}
	}
	w.hosts[0].say(0, bytes.Repeat([]byte("x"), 100_000), false)
	w.run(10 * time.Second)
	if largest > mtu || largest < mtu-3 {
		w.t.Errorf("packets have %d octets at most, the path takes %d", largest, mtu)
	}
	if n := len(w.hosts[1].got); n != 1 {
		w.t.Errorf("%d messages have come", n)
	}
}

// TestRaise has a path take larger packets after a while: the search begins again after PMTU_RAISE_TIMER.
func TestRaise(t *testing.T) {
	w := newWorld(t, dual(), Defaults())
	mtu := 1400
	w.mtu = func(Pair) int { return mtu }
	w.connect(w.hosts[1].end.config.Addresses...)
	w.run(time.Minute)
	if got := w.hosts[0].a.primary.mtu; got != 1400 {
		t.Fatal(got)
	}
	mtu = 1500
	w.run(raiseTimer)
	if got := w.hosts[0].a.primary.mtu; got != 1500 {
		t.Errorf("the MTU is taken for %d after it was raised", got)
	}
}

// TestBlackHole has the ways take smaller packets than they did, and nobody says so. What was cut for larger ones
// arrives fragmented.
func TestBlackHole(t *testing.T) {
	for _, told := range []bool{false, true} {
		t.Run(fmt.Sprint(told), func(t *testing.T) { testBlackHole(t, told) })
	}
}

func testBlackHole(t *testing.T, told bool) {
	w := newWorld(t, dual(), Defaults())
	mtu := 1500
	w.mtu = func(Pair) int { return mtu }
	w.connect(w.hosts[1].end.config.Addresses...)
	w.run(10 * time.Second)
	h := w.hosts[0]
	if told {
		w.lost = func(from int, p Packet) bool {
			large := w.size(p) > mtu && !p.Fragment
			if large {
				w.hosts[from].end.HandleICMP(ICMP{Pair: p.Pair, Kind: TooBig, MTU: mtu, Quoted: p.Octets[:8]}, w.now, &w.hosts[from].out)
			}
			return large
		}
	}
	mtu = 1400
	fragments := 0
	w.trace = func(_ int, p Packet) {
		if p.Fragment {
			fragments++
		}
	}
	var want []string
	for i := range 20 {
		octets := fmt.Appendf(nil, "%d %020000d", i, i)
		want = append(want, "0:"+string(octets))
		h.say(0, octets, false)
	}
	w.run(5 * time.Minute)
	w.expect(1, want)
	if fragments == 0 || h.end.Counters.BlackHoles == 0 {
		t.Errorf("%d packets were to be fragmented, %d black holes", fragments, h.end.Counters.BlackHoles)
	}
	if got := h.a.primary.mtu; got != 1400 {
		t.Errorf("the MTU is taken for %d", got)
	}
	fragments, w.hosts[1].got = 0, nil
	w.expectSizes(1400)
	if told && h.end.Counters.Timeouts > 0 {
		t.Errorf("%d timeouts, though the routers say what they take", h.end.Counters.Timeouts)
	}
}

// TestForgedICMP has somebody who cannot see the packets send ICMP messages.
func TestForgedICMP(t *testing.T) {
	w := pair(t, Defaults())
	w.run(10 * time.Second)
	h := w.hosts[0]
	quote := func(source, destination uint16, tag uint32) []byte {
		b := binary.BigEndian.AppendUint16(nil, source)
		b = binary.BigEndian.AppendUint16(b, destination)
		return binary.BigEndian.AppendUint32(b, tag)
	}
	good := quote(5000, 5000, h.a.peerTag)
	to := h.a.primary.Pair
	for name, m := range map[string]ICMP{
		"wrong tag":          {to, TooBig, 1300, quote(5000, 5000, h.a.peerTag+1)},
		"no tag":             {to, NoProtocol, 0, quote(5000, 5000, 0)},
		"our own tag":        {to, NoProtocol, 0, quote(5000, 5000, h.a.tag)},
		"wrong port":         {to, TooBig, 1300, quote(5000, 5001, h.a.peerTag)},
		"not our port":       {to, TooBig, 1300, quote(5001, 5000, h.a.peerTag)},
		"short":              {to, NoProtocol, 0, good[:7]},
		"nothing quoted":     {to, NoProtocol, 0, nil},
		"below the least":    {to, TooBig, 1279, good},
		"above what is used": {to, TooBig, 1500, good},
		"a stranger":         {Pair{to.Local, addresses("2001:db8:66::1")[0]}, NoProtocol, 0, good},
		"an INIT, later":     {to, NoProtocol, 0, append(quote(5000, 5000, 0), 0, 0, 0, 0, byte(chunk.TypeInit), 0, 0, 20, 0, 0, 0, 0)},
	} {
		before := h.end.Counters.BadICMP
		h.end.HandleICMP(m, w.now, &h.out)
		h.flush()
		if h.end.Counters.BadICMP != before+1 || h.a.state != established || h.a.primary.mtu != 1500 {
			t.Errorf("%s: state %v, MTU %d, %d counted", name, h.a.state, h.a.primary.mtu, h.end.Counters.BadICMP-before)
		}
	}
}

// TestNoSCTPAnyMore has the peer's host say that it has no SCTP, of an association that is set up: that is so if nothing
// comes any more, and not if a packet did not fit into a buffer.
func TestNoSCTPAnyMore(t *testing.T) {
	for name, gone := range map[string]bool{"gone": true, "there": false} {
		t.Run(name, func(t *testing.T) {
			w := pair(t, Defaults())
			w.run(10 * time.Second)
			h := w.hosts[0]
			w.lost = func(int, Packet) bool { return gone }
			p := h.a.primary
			quoted := chunk.Begin(nil, chunk.Header{Source: 5000, Destination: 5000, Tag: h.a.peerTag})
			before := p.rto
			for _, after := range []time.Duration{0, before / 2, before} {
				w.run(after)
				if h.saw(Failed) {
					t.Error("given up before an RTO has gone by")
				}
				h.end.HandleICMP(ICMP{p.Pair, NoProtocol, 0, quoted}, w.now, &h.out)
				h.flush()
			}
			if h.saw(Failed) != gone {
				t.Errorf("failed: %t", !gone)
			}
		})
	}
}

// TestNoSCTPThere has the peer's host answer an INIT that it knows no SCTP (RFC 9260 section 10, ICMP6 and ICMP8).
func TestNoSCTPThere(t *testing.T) {
	w := newWorld(t, dual(), Defaults())
	h := w.hosts[0]
	var init Packet
	w.lost = func(_ int, p Packet) bool { init = p; return true }
	if _, err := h.end.Connect(w.hosts[1].end.config.Addresses, 5000, 0, Defaults(), w.now, &h.out); err != nil {
		t.Fatal(err)
	}
	h.flush()
	h.end.HandleICMP(ICMP{init.Pair, NoProtocol, 0, init.Octets[:20]}, w.now, &h.out)
	h.flush()
	if at := len(h.events) - 1; at < 0 || h.events[at].Kind != Failed || h.events[at].Reason != ReasonNoProtocol {
		t.Errorf("%v", h.events)
	}
}

func TestChangeParameters(t *testing.T) {
	w := pair(t, Defaults())
	w.run(10 * time.Second)
	h := w.hosts[0]
	par := h.a.Parameters()
	par.RTOMin, par.RTOInitial, par.RTOMax, par.SendBuffer = 200*time.Millisecond, 200*time.Millisecond, 200*time.Millisecond, 1
	par.HeartbeatInterval = time.Second
	if err := h.a.SetParameters(par, w.now); err != nil {
		t.Fatal(err)
	}
	second := h.a.paths[3].Pair
	own := par.PathParameters
	own.HeartbeatInterval = -1
	if err := h.a.SetPathParameters(second, own, w.now); err != nil {
		t.Fatal(err)
	}
	beats := map[Pair]int{}
	w.trace = func(from int, p Packet) {
		if from == 0 && has(p, chunk.TypeHeartbeat) {
			beats[p.Pair]++
		}
	}
	w.run(11 * time.Second)
	for _, p := range h.a.Status().Paths {
		switch {
		case p.RTO != 200*time.Millisecond:
			t.Errorf("%v: RTO %v", p.Pair, p.RTO)
		case p.Pair == second && beats[p.Pair] != 0, p.Pair != second && (beats[p.Pair] < 7 || beats[p.Pair] > 11):
			t.Errorf("%v: %d heartbeats in 11 s", p.Pair, beats[p.Pair])
		}
	}
	if got := h.a.Parameters().SendBuffer; got != Defaults().SendBuffer {
		t.Errorf("the send buffer has changed to %d", got)
	}
	for name, wrong := range map[string]func(*Parameters){
		"RTO": func(p *Parameters) { p.RTOMax = p.RTOMin - 1 }, "retransmissions": func(p *Parameters) { p.PathMaxRetrans = -1 },
		"heartbeats for ever": func(p *Parameters) { p.HeartbeatInterval = math.MaxInt64 }, "cookies": func(p *Parameters) { p.CookieLife = -1 },
		"too large": func(p *Parameters) { p.ReceiveBuffer = 1 << 32 }, "tiny RTO": func(p *Parameters) { p.RTOMin = 1 },
		"delay": func(p *Parameters) { p.SACKDelay = time.Second }, "MTU": func(p *Parameters) { p.MaxMTU = 100 },
		"buffer": func(p *Parameters) { p.ReceiveBuffer = 1 }, "streams": func(p *Parameters) { p.StreamsIn = 0 },
	} {
		bad := Defaults()
		wrong(&bad)
		if h.a.SetParameters(bad, w.now) == nil {
			t.Errorf("wrong parameters are taken: %s", name)
		}
		if _, err := h.end.Connect(addresses("2001:db8:1::c"), 5000, 0, bad, w.now, &h.out); err == nil {
			t.Errorf("an association begins with wrong parameters: %s", name)
		}
	}
}
