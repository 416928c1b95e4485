// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
	"github.com/isthmus-net/isthmus/teredo"
)

// A call goes from an IPv6 UMTS to a GPRS with private IPv4, and back, and the tour tells of it.
func TestCallHandoff(t *testing.T) {
	t.Parallel()
	ctx, e := testEnvOf(t, callTour)
	e.Runs, e.Dir = 1, t.TempDir()
	var out strings.Builder
	e.Out = &out
	g, err := newCallGuide(ctx, e)
	if err != nil {
		t.Fatal(err)
	}
	r := &handoffResult{}
	err = g.tell(ctx, func() (err error) {
		if err := g.net.behind(ctx, g.net.boxes[0], true, r); err != nil {
			return err
		}
		if err := g.net.inARow(ctx, handoffRowShort, r); err != nil {
			return err
		}
		r.without, err = g.net.without(ctx)
		return err
	})
	if err == nil {
		err = finish(e, handoffReport(r))
	}
	if err == nil {
		var told *report.Report
		if told, err = g.report(r.called[0]); err == nil {
			err = finish(e, told)
		}
	}
	if err = errors.Join(err, g.close()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	mustSay(t, out.String(),
		"UMTS is lost", "GPRS: it has the private address 10.51.", "server  > ue       router advertisement", "Teredo: the terminal is qualified", "bubble",
		"ue      > host     re-INVITE, by Teredo", "host    > ue       200 to INVITE, by Teredo", "host    > ue       first media this way, by Teredo",
		"The call has moved to 2001:0:", "sip     > ue       INVITE, by Teredo", "UMTS is back", "The call has moved to 2001:db8:", "=== down",
		"D2, ms", "gap to the terminal, ms", "Called in GPRS", filepath.Join(e.Dir, "call.wav"))
}

// madeUp is a handoff to GPRS that was made up: the change at 100 ms.
type madeUp struct {
	start            time.Time
	native, own      netip.Addr
	air, host        []seen
	inside, outside  netip.AddrPort // of the terminal by IPv4, and of the Teredo server
	relay, broadcast netip.AddrPort
}

func newMadeUp() *madeUp {
	return &madeUp{
		start: time.Unix(1_700_000_000, 0), native: netip.MustParseAddr("2001:db8:6:2000::1"), own: netip.MustParseAddr("2001:0:cb00:7101::1"),
		inside: netip.MustParseAddrPort("10.51.0.1:3551"), outside: netip.AddrPortFrom(serverAddr, teredo.Port),
		relay: relayBind, broadcast: netip.MustParseAddrPort("255.255.255.255:67"),
	}
}

func (m *madeUp) at(ms int) time.Time { return m.start.Add(time.Duration(ms) * time.Millisecond) }

// sent puts a datagram on the air.
func (m *madeUp) sent(ms int, from, to netip.AddrPort, payload []byte) {
	m.air = append(m.air, seen{m.at(ms), from, to, payload})
}

// overUDP is a datagram over IPv6.
func overUDP(from, to netip.Addr, payload []byte) []byte {
	b := packet.AppendIPv6Header(nil, packet.ProtoUDP, 64, packet.UDPHeaderLen+len(payload), from, to)
	b = append(b, 0, 1, 0, 1)
	b = binary.BigEndian.AppendUint16(b, uint16(packet.UDPHeaderLen+len(payload)))
	return append(append(b, 0, 0), payload...)
}

func sound(number byte) []byte { return append([]byte{0x80, 0, 0, number}, make([]byte, 168)...) }

func signal(line, cseq string) []byte {
	return fmt.Appendf(nil, "%s\r\nVia: SIP/2.0/UDP 10.0.2.2;branch=z9hG4bKx\r\nFrom: <sip:a@example.net>;tag=1\r\n"+
		"To: <sip:b@example.net>;tag=2\r\nCall-ID: x\r\nCSeq: %s\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n", line, cseq)
}

// cold is a cold handoff, whose captures lack the packets of one stage.
func (m *madeUp) cold(without string) *handoffTrace {
	icmp := func(from, to netip.Addr, kind byte) []byte {
		return packet.AppendICMPv6(nil, from, to, 255, kind, 0, make([]byte, 12))
	}
	link, all := netip.MustParseAddr("fe80::1"), netip.MustParseAddr("ff02::2")
	m.sent(90, netip.AddrPortFrom(hostAddr, 1), netip.AddrPortFrom(m.native, 1), sound(1))
	if without != stageAttach {
		m.sent(110, netip.MustParseAddrPort("0.0.0.0:68"), m.broadcast, make([]byte, 246))
	}
	if without != stageAddress {
		m.sent(320, netip.MustParseAddrPort("10.51.0.2:67"), netip.MustParseAddrPort("255.255.255.255:68"), make([]byte, 274))
	}
	if without != stageQualify {
		m.sent(325, m.inside, m.outside, icmp(link, all, packet.ICMPv6RouterSolicitation))
		m.sent(540, m.outside, m.inside, icmp(link, link, packet.ICMPv6RouterAdvert))
	}
	if without != stageRelay {
		m.sent(545, m.inside, m.outside, icmp(m.own, hostAddr, packet.ICMPv6EchoRequest))
		m.sent(755, m.outside, m.inside, icmp(hostAddr, m.own, packet.ICMPv6EchoReply))
	}
	m.sent(756, m.inside, m.relay, teredo.AppendBubble(nil, m.own, hostAddr))
	if without != stageInvite {
		m.sent(757, m.inside, m.relay, overUDP(m.own, hostAddr, signal("INVITE sip:b@x SIP/2.0", "4 INVITE")))
		m.sent(990, m.relay, m.inside, overUDP(hostAddr, m.own, signal("SIP/2.0 200 OK", "4 INVITE")))
	}
	m.sent(760, m.inside, m.relay, overUDP(m.own, hostAddr, sound(9)))
	m.sent(1000, m.relay, m.inside, overUDP(hostAddr, m.own, sound(40)))
	slices.SortStableFunc(m.air, func(x, y seen) int { return x.at.Compare(y.at) })
	m.host = []seen{
		{m.at(95), netip.AddrPortFrom(m.native, 1), netip.AddrPortFrom(hostAddr, 1), sound(1)},
		{m.at(890), netip.AddrPortFrom(m.own, 1), netip.AddrPortFrom(hostAddr, 1), sound(9)},
	}
	t := &handoffTrace{kind: handoffCold, air: m.air}
	t.sipTrace = sipTrace{ue: unwrapped(m.air), host: m.host, from: m.native, to: m.own, peer: hostAddr, kind: sipHard, change: m.at(100), settled: m.at(1100), bindings: 1}
	return t
}

// TestHandoffStages reads a cold handoff from captures that were made up.
func TestHandoffStages(t *testing.T) {
	radio := handoffWorld{}.radio()
	m, err := newMadeUp().cold("").read(radio)
	if err != nil {
		t.Fatal(err)
	}
	invite := len(overUDP(hostAddr, hostAddr, signal("INVITE sip:b@x SIP/2.0", "4 INVITE"))) + 28
	want := []handoffStage{
		{stageAttach, 10 * time.Millisecond, nil},
		{stageAddress, 210 * time.Millisecond, []handoffDemand{{true, 274}, {false, 302}}},
		{stageQualify, 220 * time.Millisecond, []handoffDemand{{true, 84}, {false, 84}}},
		{stageRelay, 215 * time.Millisecond, []handoffDemand{{true, 84}, {false, 84}}},
		{stageInvite, 235 * time.Millisecond, []handoffDemand{{true, 68 + invite}, {false, invite - 8}}},
		{stageMedia, 10 * time.Millisecond, nil},
	}
	if fmt.Sprint(m.stages) != fmt.Sprint(want) {
		t.Errorf("%v,\nwant %v", m.stages, want)
	}
	if m.down.longest != 910*time.Millisecond || m.up.longest != 795*time.Millisecond {
		t.Errorf("gaps %v and %v", m.down, m.up)
	}
	sum := time.Duration(0)
	for _, s := range want {
		for _, d := range s.demands {
			sum += d.theory(radio)
		}
	}
	if m.theoryDown() != sum {
		t.Errorf("by theory %v, want %v", m.theoryDown(), sum)
	}
	up := sum - want[4].theory(radio) + handoffDemand{true, 68 + invite + 28 + 40 + 8 + len(sound(9))}.theory(radio)
	if m.theoryUp() != up {
		t.Errorf("by theory up %v, want %v", m.theoryUp(), up)
	}
	for _, stage := range handoffStages[:5] {
		if _, err := newMadeUp().cold(stage).read(radio); err == nil {
			t.Errorf("without %s it is read", stage)
		}
	}
}

// TestHandoffTheory says how long packets take across the radio.
func TestHandoffTheory(t *testing.T) {
	radio := lab.WireConfig{AtoB: lab.LaneConfig{Rate: 384e3, Delay: 100 * time.Millisecond}, BtoA: lab.LaneConfig{Rate: 2e6, Delay: 90 * time.Millisecond}}
	for _, row := range []struct {
		d    handoffDemand
		want time.Duration
	}{
		{handoffDemand{true, 480}, 110 * time.Millisecond},
		{handoffDemand{false, 250}, 91 * time.Millisecond},
		{handoffDemand{true, 0}, 100 * time.Millisecond},
	} {
		if got := row.d.theory(radio); got != row.want {
			t.Errorf("%+v: %v, want %v", row.d, got, row.want)
		}
	}
	s := handoffStage{demands: []handoffDemand{{true, 480}, {false, 250}}}
	if s.theory(radio) != 201*time.Millisecond || s.line(radio) != 11*time.Millisecond {
		t.Errorf("%v, %v of it on the line", s.theory(radio), s.line(radio))
	}
}

// TestHandoffFates tells of two packets from the terminal that did not come: one was sent, one was not.
func TestHandoffFates(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	peer := netip.MustParseAddr("2001:db8::1")
	sent := seen{
		start.Add(40 * time.Millisecond), netip.MustParseAddrPort("[2001:0:1::2]:4000"), netip.AddrPortFrom(peer, 5000),
		[]byte{0x80, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0},
	}
	trace := handoffTrace{sipTrace: sipTrace{ue: []seen{sent}, peer: peer, change: start}}
	got := trace.fates(sipMove{up: sipGap{lost: 2, missing: []uint16{7, 8}}})
	want := []string{
		"packet 7 from the terminal was sent 40.0 ms behind the change, from [2001:0:1::2]:4000 to [2001:db8::1]:5000, and did not come",
		"packet 8 from the terminal was not sent",
	}
	if !slices.Equal(got, want) {
		t.Errorf("it is told %q, want %q", got, want)
	}
}
