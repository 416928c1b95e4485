// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// The addresses of the first caller on the detour.
const (
	detourOwn  = "fd00:1:2:3::1"
	callerFrom = "fd00:1:2:3:0:1::1000" // the client's, towards the proxy
	callerDial = "fd00:1:2:3:0:2::1000" // the proxy's, towards the server
	calledTo   = "fd00:1:2:3:0:3::1000" // the server's, towards the proxy
	outsideFTP = 2121
)

// called is a gateway with an FTP server behind it, client A, that is bound to an address of
// the pool; change may be nil.
func called(t testing.TB, change func(*Settings)) *bench {
	t.Helper()
	b := engine(t, func(s *Settings) {
		detoured(s)
		if change != nil {
			change(s)
		}
	})
	if err := b.AddStatic(static(t, "tcp", "["+clientA+"]:21", fmt.Sprintf("%s:%d", poolIP, outsideFTP))); err != nil {
		t.Fatal(err)
	}
	return b
}

// fromCaller sends a segment of the IPv4 client, fromProxyToCaller the proxy's answer; dial and
// fromServer are what proxy and server say.
func (b *bench) fromCaller(flags byte) [][]byte {
	return b.in(pkt{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(1500, outsideFTP, flags, 0)})
}

func (b *bench) toCaller(flags byte) [][]byte {
	return b.in(pkt{src: detourOwn, dst: callerFrom, proto: tcpProto, payload: tcpMsg(21, 1500, flags, 0)})
}

func (b *bench) toServer(flags byte) [][]byte {
	return b.in(pkt{src: callerDial, dst: calledTo, hop: DetourHops, proto: tcpProto, payload: tcpMsg(4000, 21, flags, 0)})
}

func (b *bench) fromServer(flags byte) [][]byte {
	return b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(21, 1500, flags, 0)})
}

// established opens a control connection on both sides.
func (b *bench) established() {
	b.t.Helper()
	b.one(b.fromCaller(flagSYN))
	b.one(b.toCaller(synACK))
	b.one(b.fromCaller(flagACK))
	b.one(b.toServer(flagSYN))
	b.one(b.fromServer(synACK))
	b.one(b.toServer(flagACK))
	if got := b.status(); got != state.Established {
		b.t.Fatalf("the session is %s", got)
	}
}

// TestCallers follows the control connection of an IPv4 client to the proxy, and that of the
// proxy to the server.
func TestCallers(t *testing.T) {
	b := called(t, nil)
	b.wants(b.fromCaller(flagSYN), pkt{src: callerFrom, dst: detourOwn, hop: 63, proto: tcpProto, payload: tcpMsg(1500, 21, flagSYN, 0)})
	b.wants(b.toCaller(synACK), pkt{src: poolIP, dst: server4, hop: 63, proto: tcpProto, payload: tcpMsg(outsideFTP, 1500, synACK, 0)})
	b.wants(b.fromCaller(flagACK), pkt{src: callerFrom, dst: detourOwn, hop: 63, proto: tcpProto, payload: tcpMsg(1500, 21, flagACK, 0)})
	b.wants(b.toServer(flagSYN), pkt{src: server6, dst: clientA, hop: DetourHops - 1, proto: tcpProto, payload: tcpMsg(1500, 21, flagSYN, 0)})
	b.wants(b.fromServer(synACK), pkt{src: calledTo, dst: callerDial, hop: 63, proto: tcpProto, payload: tcpMsg(21, 4000, synACK, 0)})
	got, ok := b.Alias(firstCaller)
	want := Alias{
		Number: firstCaller,
		Client: netip.MustParseAddrPort(server4 + ":1500"), Server: netip.AddrPortFrom(netip.MustParseAddr(poolIP), outsideFTP),
		Inside: netip.MustParseAddrPort("[" + clientA + "]:21"), Seen: netip.MustParseAddr(server6),
	}
	if !ok || got != want {
		t.Errorf("alias %+v, %t; want %+v", got, ok, want)
	}
	// In lists it is the one session that it would be without the proxy.
	sessions := 0
	b.Engine.Sessions(Selection{}, 0, 1<<20, b.now, func(s SessionInfo) bool {
		sessions++
		if s.Inside != want.Inside || s.Outside != want.Server || s.Peer != want.Client || s.Status != state.Established {
			t.Errorf("session %+v", s)
		}
		return true
	})
	if n := b.Engine.Sizes(); sessions != 1 || n.Aliases != 1 || n.Subscribers != 0 {
		t.Errorf("%d sessions, sizes %+v", sessions, n)
	}
	// It is over when client and server say so, and begins again from the same port.
	b.one(b.fromCaller(flagFIN | flagACK))
	b.one(b.fromServer(flagFIN | flagACK))
	if got := b.status(); got != state.BothFin {
		t.Errorf("after the ends of both it is %s", got)
	}
	b.pass(time.Second)
	b.established()
	b.pass(3 * time.Hour)
	if n := b.Engine.Sizes(); n.Sessions != 0 || n.Aliases != 0 || n.Bindings != 1 {
		t.Errorf("sizes %+v when all is over", n)
	}
}

// TestCallersJudged: what may not open a connection without the proxy may not with it, and
// ports that are not FTP's never meet it.
func TestCallersJudged(t *testing.T) {
	syn := pkt{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(1500, outsideFTP, flagSYN, 0)}
	with := func(p pkt, payload []byte) pkt {
		p.payload = payload
		return p
	}
	for _, tt := range []struct {
		name   string
		change func(*Settings)
		p      pkt
		why    Reason
	}{
		{"connections from IPv4 are not wanted", func(s *Settings) { s.DropExternalTCP = true }, syn, ExternalTCP},
		{"a stranger where addresses are filtered", func(s *Settings) { s.FilterTCP = AddressDependent }, syn, StoredSYN},
		{"nothing is bound", nil, with(syn, tcpMsg(1500, outsideFTP+1, flagSYN, 0)), StoredSYN},
		{"the middle of none, where that is dropped", func(s *Settings) { s.DropUnmatchedTCP = true }, with(syn, tcpMsg(1500, outsideFTP, flagACK, 0)), NoSession},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := called(t, tt.change)
			b.refused(tt.p, tt.why)
			if n := b.Engine.Sizes(); n.Sessions != 0 || n.Aliases != 0 {
				t.Errorf("sizes %+v", n)
			}
		})
	}
	b := called(t, nil)
	b.wants(b.in(with(syn, tcpMsg(1500, outsideFTP, flagACK, 0))), pkt{src: server6, dst: clientA, hop: 63, proto: tcpProto, payload: tcpMsg(1500, 21, flagACK, 0)})
	b = called(t, func(s *Settings) { s.DetourPrefix = netip.Prefix{} })
	b.wants(b.in(syn), pkt{src: server6, dst: clientA, hop: 63, proto: tcpProto, payload: tcpMsg(1500, 21, flagSYN, 0)})
	b.wants(b.fromServer(synACK), pkt{src: poolIP, dst: server4, hop: 63, proto: tcpProto, payload: tcpMsg(outsideFTP, 1500, synACK, 0)})
}

// TestCallersOfClients: a client that has opened a connection from port 21 is called there, too;
// what it has opened itself stays its own.
func TestCallersOfClients(t *testing.T) {
	b := engine(t, detoured)
	out := b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(21, 80, flagSYN, 0)}))
	b.wants(b.in(pkt{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(80, srcPort(out), synACK, 0)}),
		pkt{src: server6, dst: clientA, hop: 63, proto: tcpProto, payload: tcpMsg(80, 21, synACK, 0)})
	b.wants(b.in(pkt{src: other4, dst: poolIP, proto: tcpProto, payload: tcpMsg(80, srcPort(out), flagSYN, 0)}),
		pkt{src: callerFrom, dst: detourOwn, hop: 63, proto: tcpProto, payload: tcpMsg(80, 21, flagSYN, 0)})
}

// TestCallersForged: no one speaks in the proxy's name, nor of connections that are not there.
func TestCallersForged(t *testing.T) {
	b := called(t, nil)
	b.one(b.fromCaller(flagSYN))
	dial := pkt{src: callerDial, dst: calledTo, hop: DetourHops, proto: tcpProto, payload: tcpMsg(4000, 21, flagSYN, 0)}
	with := func(change func(*pkt)) pkt {
		p := dial
		change(&p)
		return p
	}
	early := with(func(p *pkt) { p.payload = tcpMsg(4000, 21, flagACK, 0) })
	b.refused(early, DetourUnknown)
	b.one(b.in(dial))
	for _, tt := range []struct {
		name string
		p    pkt
		why  Reason
	}{
		{"a call that was forwarded", with(func(p *pkt) { p.hop = DetourHops - 1 }), DetourForged},
		{"the server of another", with(func(p *pkt) { p.dst = "fd00:1:2:3:0:3::1001" }), DetourUnknown},
		{"a number that nobody has", with(func(p *pkt) { p.src, p.dst = "fd00:1:2:3:0:2::1001", "fd00:1:2:3:0:3::1001" }), DetourUnknown},
		{"the number of an IPv6 client", with(func(p *pkt) { p.src, p.dst = "fd00:1:2:3:0:2::", "fd00:1:2:3:0:3::" }), DetourUnknown},
		{"another port of the server", with(func(p *pkt) { p.payload = tcpMsg(4000, 22, flagACK, 0) }), DetourUnknown},
		{"another port of the proxy", with(func(p *pkt) { p.payload = tcpMsg(4001, 21, flagACK, 0) }), DetourUnknown},
		{"an IPv4 server, by the address for an IPv6 one", with(func(p *pkt) { p.dst = server6 }), DetourUnknown},
		{"UDP", with(func(p *pkt) { p.proto, p.payload = udpProto, udpMsg(4000, 21, 4) }), DetourUnknown},
		{"a client as the server of the proxy", pkt{src: clientA, dst: calledTo, proto: tcpProto, payload: tcpMsg(21, 4000, flagACK, 0)}, DetourUnknown},
		{"a client as the proxy", pkt{src: clientA, dst: callerFrom, proto: tcpProto, payload: tcpMsg(21, 1500, flagACK, 0)}, DetourUnknown},
		{"the proxy to another port of the client", pkt{src: detourOwn, dst: callerFrom, proto: tcpProto, payload: tcpMsg(21, 1501, flagACK, 0)}, DetourUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) { b.refused(tt.p, tt.why) })
	}
	// Without the binding nothing goes to the server any more.
	if err := b.RemoveStatic(static(t, "tcp", "["+clientA+"]:21", fmt.Sprintf("%s:%d", poolIP, outsideFTP)), b.now, &b.out); err != nil {
		t.Fatal(err)
	}
	b.refused(early, DetourUnknown)
}

// TestCallersWithoutProxy: where the proxy was restarted, or is switched off, it knows no
// connection of before: both sides are told, in numbers that they know, and may begin again.
func TestCallersWithoutProxy(t *testing.T) {
	for _, again := range []bool{true, false} {
		t.Run(fmt.Sprintf("switched on again %t", again), func(t *testing.T) {
			b := called(t, nil)
			b.established()
			for _, on := range []bool{false, again} {
				s := testSettings(t)
				if on {
					detoured(&s)
				}
				if err := b.Reconfigure(s); err != nil {
					t.Fatal(err)
				}
			}
			reset := func(src, dst uint16) []byte {
				m := tcpMsg(src, dst, flagRST, 0)
				m[7], m[11], m[14] = 2, 0, 0 // it has the number that the segment acknowledges
				return m
			}
			b.wants(b.fromServer(flagACK), pkt{src: server6, dst: clientA, hop: probeTTL, proto: tcpProto, payload: reset(1500, 21)})
			b.wants(b.fromCaller(flagACK), pkt{src: poolIP, dst: server4, hop: probeTTL - 1, proto: tcpProto, payload: reset(outsideFTP, 1500)})
			if n := b.Engine.Sizes().Sessions; n != 0 {
				t.Errorf("%d sessions are left", n)
			}
			if again {
				b.established()
				return
			}
			b.wants(b.fromCaller(flagSYN), pkt{src: server6, dst: clientA, hop: 63, proto: tcpProto, payload: tcpMsg(1500, 21, flagSYN, 0)})
			b.wants(b.fromServer(synACK), pkt{src: poolIP, dst: server4, hop: 63, proto: tcpProto, payload: tcpMsg(outsideFTP, 1500, synACK, 0)})
		})
	}
}

// TestCallersBegunBefore: a connection of before the gateway was switched on goes on by
// translation, with the proxy on and off.
func TestCallersBegunBefore(t *testing.T) {
	b := called(t, func(s *Settings) { s.DetourPrefix = netip.Prefix{} })
	b.one(b.fromCaller(flagSYN))
	b.one(b.fromServer(synACK))
	s := testSettings(t)
	detoured(&s)
	if err := b.Reconfigure(s); err != nil {
		t.Fatal(err)
	}
	b.wants(b.fromCaller(flagACK), pkt{src: server6, dst: clientA, hop: 63, proto: tcpProto, payload: tcpMsg(1500, 21, flagACK, 0)})
	b.wants(b.fromServer(flagACK), pkt{src: poolIP, dst: server4, hop: 63, proto: tcpProto, payload: tcpMsg(outsideFTP, 1500, flagACK, 0)})
}

// TestCallersReopened: a session of the proxy that is opened again after it was switched off is
// the server's own.
func TestCallersReopened(t *testing.T) {
	b := called(t, nil)
	b.established()
	b.one(b.fromCaller(flagFIN | flagACK))
	b.one(b.fromServer(flagFIN | flagACK))
	if err := b.Reconfigure(testSettings(t)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b.wants(b.fromCaller(flagSYN), pkt{src: server6, dst: clientA, hop: 63, proto: tcpProto, payload: tcpMsg(1500, 21, flagSYN, 0)})
	}
	b.wants(b.fromServer(synACK), pkt{src: poolIP, dst: server4, hop: 63, proto: tcpProto, payload: tcpMsg(outsideFTP, 1500, synACK, 0)})
}

// TestCallersFlood: forged IPv4 addresses take no number of clients, one address has its
// share, and mere SYNs give way to others soon.
func TestCallersFlood(t *testing.T) {
	sizes := testSizes
	sizes.Sessions = 16384
	b := engineOver(t, newTable(t, sizes), detoured)
	if err := b.AddStatic(static(t, "tcp", "["+clientA+"]:21", fmt.Sprintf("%s:%d", poolIP, outsideFTP))); err != nil {
		t.Fatal(err)
	}
	syn := func(from int, port int) pkt {
		return pkt{src: netip.AddrFrom4([4]byte{198, 51, 100, byte(from)}).String(), dst: poolIP, proto: tcpProto, payload: tcpMsg(uint16(port), outsideFTP, flagSYN, 0)}
	}
	for i := range maxAliases {
		b.one(b.in(syn(1+i/maxOfClient, 1024+i)))
		if i == maxOfClient-1 {
			b.refused(syn(1, 999), DetourFull)
		}
	}
	b.refused(syn(200, 999), DetourFull)
	b.one(b.in(pkt{src: clientB, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 21, flagSYN, 0)}))
	b.pass(leastAge + time.Second)
	b.one(b.in(syn(200, 999)))
	if n := b.Engine.Sizes().Aliases; n != maxAliases+1 {
		t.Errorf("%d connections", n)
	}
	b.pass(halfOpen + 10*time.Second)
	if n := b.Engine.Sizes().Aliases; n != 0 {
		t.Errorf("%d connections when no one has gone on", n)
	}
}

// TestErrorsAboutCallers: the proxy hears what a router says of its packets to a client; what is said of
// those to a server, the client does not hear.
func TestErrorsAboutCallers(t *testing.T) {
	b := called(t, nil)
	b.established()
	said := pkt{src: poolIP, dst: server4, proto: tcpProto, payload: tcpMsg(outsideFTP, 1500, flagACK, 0)}
	quoted := pkt{src: detourOwn, dst: callerFrom, proto: tcpProto, payload: tcpMsg(21, 1500, flagACK, 0)}
	got := b.one(b.in(pkt{src: router4, dst: poolIP, proto: icmpProto, payload: icmpMsg(3, 4, 1400, said.bytes())}))
	inner := quoted.bytes()
	if src, dst := netip.AddrFrom16([16]byte(got[8:24])), netip.AddrFrom16([16]byte(got[24:40])); src != netip.MustParseAddr(router6) || dst != netip.MustParseAddr(detourOwn) {
		t.Errorf("from %s to %s", src, dst)
	}
	if got[40] != 2 || string(got[48+8:48+44]) != string(inner[8:44]) {
		t.Errorf("it says %x of %x, want of %x", got[40:48], got[48:], inner)
	}
	said = pkt{src: server6, dst: clientA, proto: tcpProto, payload: tcpMsg(1500, 21, flagACK, 0)}
	b.refused(pkt{src: routerV6, dst: server6, proto: icmp6Proto, payload: icmpMsg(2, 0, 1280, said.bytes())}, DetourUnknown)
}

// TestTooBigForTheProxy: the proxy is told of packets that no link takes, of either direction.
func TestTooBigForTheProxy(t *testing.T) {
	b := called(t, nil)
	b.established()
	b.one(b.in(pkt{src: clientB, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 21, flagSYN, 0)}))
	const dial = "fd00:1:2:3:0:2::"
	b.one(b.in(pkt{src: dial, dst: server6, hop: DetourHops, proto: tcpProto, payload: tcpMsg(4000, 21, flagSYN, 0)}))
	b.path = translate.Path{MTU4: 1300}
	for _, p := range []pkt{
		{src: detourOwn, dst: callerFrom, proto: tcpProto, payload: tcpMsg(21, 1500, flagACK, 1400)},
		{src: dial, dst: server6, hop: DetourHops, proto: tcpProto, payload: tcpMsg(4000, 21, flagACK, 1400)},
	} {
		got := b.one(b.in(p))
		if to := netip.AddrFrom16([16]byte(got[24:40])); to != netip.MustParseAddr(p.src) || got[6] != icmp6Proto || got[40] != 2 {
			t.Errorf("%s hears %x", p.src, got)
		}
	}
}

// twoAddresses has client A bound to one address of the pool and at home on the other.
func twoAddresses(t testing.TB, change func(*Settings)) *bench {
	t.Helper()
	for others := range 16 { // each draws numbers of its own
		b := called(t, func(s *Settings) {
			s.Pool4 = []Range{{Prefix: netip.MustParsePrefix("203.0.113.0/31")}}
			if change != nil {
				change(s)
			}
		})
		for i := range others {
			b.openUDP(fmt.Sprintf("2001:db8:1:a%x::1", i), 1500, other6)
		}
		out := b.one(b.in(pkt{src: clientA, dst: other6, proto: udpProto, payload: udpMsg(1500, 53, 4)}))
		if srcAddr(out) != poolIP {
			return b
		}
	}
	t.Fatal("client A is always at home on the address that it is bound to")
	return nil
}
