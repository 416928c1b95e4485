// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// fuzzEngine has sessions that a packet may belong to: static bindings, so that they are
// where the seeds say.
func fuzzEngine(t testing.TB) *bench {
	b := engineOver(t, newTable(t, state.Sizes{Sessions: 64, Subscribers: 8, Addresses: 2, BlockWords: 4, SubscriberLength: 64}),
		func(s *Settings) {
			s.Limits = Limits{ClientSessions: 32, ClientBlocks: 2, StoredSYNs: 4, StoredSYNsSource: 2, FragmentPackets: 4, FragmentPacketsSource: 4, FragmentMemory: 1 << 14, FragmentMemorySource: 1 << 13, SweepSlice: 64}
			s.DetourPrefix = netip.MustParsePrefix(detourText)
			s.SessionEvents = true
		})
	for _, s := range []string{"udp", "tcp", "icmp"} {
		if err := b.AddStatic(static(t, s, "["+clientA+"]:1500", poolIP+":5000")); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.AddStatic(static(t, "tcp", "["+clientA+"]:21", poolIP+":2121")); err != nil {
		t.Fatal(err)
	}
	return b
}

// judge hands a packet in twice, with what follows in between, and looks at what comes out.
func judge(t *testing.T, ip []byte, second []byte) {
	b := fuzzEngine(t)
	b.path = translate.Path{MTU4: 1500, MTU6: 1500}
	for _, p := range [][]byte{ip, second, ip} {
		b.out.Reset()
		if len(p) > 0 && p[0]>>4 == 4 {
			b.HandleIPv4(p, b.path, b.now, &b.out)
		} else {
			b.HandleIPv6(p, b.path, b.now, &b.out)
		}
		for _, got := range b.out.IP {
			sound(t, p, got)
		}
		b.sane()
		b.now = b.now.Add(time.Second)
		b.out.Reset()
		b.Tick(b.now, &b.out)
	}
	b.sane()
	if n := b.Engine.Sizes(); n.Sessions > 64 || n.Assemblies > 8 || n.StoredSYNs > 4 {
		t.Errorf("sizes %+v", n)
	}
	for range 8 { // a sweep looks at all of so small a table
		b.now = b.now.Add(time.Hour)
		b.out.Reset()
		b.Tick(b.now, &b.out)
	}
	if n := b.Engine.Sizes(); n.Sessions != 0 || n.Bindings != 4 || n.Subscribers != 0 || n.Assemblies != 0 || n.StoredSYNs != 0 || n.Aliases != 0 {
		t.Errorf("sizes %+v when all is over", n)
	}
}

// sound checks that a packet can be sent: lengths and the header's checksum are right.
func sound(t *testing.T, in, got []byte) {
	if got[0]>>4 == 4 {
		v, r := translate.ViewIPv4(got)
		if r != translate.ReasonNone || len(got) != totalLength4(got) || !v.Src.IsValid() {
			t.Errorf("%x came out as %x: %v", in, got, r)
		}
		return
	}
	if p, rest, ok := packet.ParseIPv6(got); !ok || len(rest) != 0 || p.HopLimit() == 0 {
		t.Errorf("%x came out as %x", in, got)
	}
}

func FuzzHandleIPv6(f *testing.F) {
	udp := pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1500, 53, 20)}
	quoted := pkt{src: server6, dst: clientA, proto: udpProto, payload: udpMsg(53, 1500, 9)}
	for _, p := range []pkt{
		udp,
		{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 80, flagSYN, 0)},
		{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 21, flagSYN, 0)},
		{src: clientA, dst: poolIn6, proto: udpProto, payload: udpMsg(1600, 5000, 4)},
		{src: clientA, dst: poolIn6, proto: tcpProto, payload: tcpMsg(1600, 6000, flagSYN, 4)},
		{src: clientA, dst: server6, proto: icmp6Proto, payload: echoMsg(128, 1500, 9)},
		{src: clientA, dst: server6, proto: icmp6Proto, payload: icmpMsg(1, 4, 0, quoted.bytes())},
		{src: clientA, dst: server6, proto: icmp6Proto, payload: icmpMsg(2, 0, 1280, quoted.bytes())},
		{src: clientA, dst: server6, proto: 132, payload: filling(20)},
		{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(21, 1500, synACK, 0)},
		{src: callerDial, dst: calledTo, hop: DetourHops, proto: tcpProto, payload: tcpMsg(4000, 21, flagSYN, 0)},
		{src: "fd00:1:2:3::1", dst: "fd00:1:2:3:0:1::", proto: tcpProto, payload: tcpMsg(21, 1500, synACK, 0)},
		{src: clientA, dst: server6, proto: udpProto, headers: []byte{17, 0, 1, 4, 0, 0, 0, 0}, first: 60, payload: udpMsg(1500, 53, 20)},
	} {
		f.Add(p.bytes(), udp.bytes())
	}
	for _, proto := range []pkt{udp, {src: clientA, dst: server6, proto: icmp6Proto, id: 7, payload: echoMsg(128, 1500, 90)}, {src: clientA, dst: poolIn6, proto: udpProto, id: 3, payload: udpMsg(1600, 5000, 60)}} {
		pieces := proto.cut(24)
		f.Add(pieces[0], pieces[1])
		f.Add(pieces[1], pieces[0])
	}
	f.Fuzz(func(t *testing.T, ip, second []byte) { judge(t, ip, second) })
}

func FuzzHandleIPv4(f *testing.F) {
	udp := pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(53, 5000, 20)}
	quoted := pkt{src: poolIP, dst: server4, proto: udpProto, payload: udpMsg(5000, 53, 9)}
	for _, p := range []pkt{
		udp,
		{src: server4, dst: poolIP, proto: udpProto, keepSum: true, payload: udpMsg(53, 5000, 20)},
		{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(80, 5000, flagSYN, 0)},
		{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(80, 6000, flagSYN, 0)},
		{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(1500, outsideFTP, flagSYN, 0)},
		{src: server4, dst: poolIP, proto: icmpProto, payload: echoMsg(8, 5000, 9)},
		{src: router4, dst: poolIP, proto: icmpProto, payload: icmpMsg(3, 4, 1400, quoted.bytes())},
		{src: router4, dst: poolIP, proto: icmpProto, payload: icmpMsg(12, 0, 8<<24, quoted.bytes())},
		{src: server4, dst: poolIP, proto: 132, payload: filling(20)},
		{src: server4, dst: poolIP, hop: 1, proto: udpProto, payload: udpMsg(53, 5000, 20)},
	} {
		f.Add(p.bytes(), udp.bytes())
	}
	for _, p := range []pkt{udp, {src: server4, dst: poolIP, proto: icmpProto, id: 7, payload: echoMsg(8, 5000, 90)}, {src: server4, dst: poolIP, id: 8, keepSum: true, proto: udpProto, payload: udpMsg(53, 5000, 50)}} {
		pieces := p.cut(24)
		f.Add(pieces[0], pieces[1])
		f.Add(pieces[1], pieces[0])
	}
	f.Fuzz(func(t *testing.T, ip, second []byte) { judge(t, ip, second) })
}
