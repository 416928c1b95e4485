// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

const detourText = "fd00:1:2:3::/64"

func detoured(s *Settings) { s.DetourPrefix = netip.MustParsePrefix(detourText) }

// TestDetour follows a control connection to the proxy and back, and the proxy's own to the
// server.
func TestDetour(t *testing.T) {
	b := engine(t, func(s *Settings) { detoured(s); s.SessionEvents = true })
	const own, alias, dial = "fd00:1:2:3::1", "fd00:1:2:3:0:1::", "fd00:1:2:3:0:2::"
	b.wants(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 21, flagSYN, 0)}),
		pkt{src: alias, dst: own, hop: 63, proto: tcpProto, payload: tcpMsg(1500, 21, flagSYN, 0)})
	b.wants(b.in(pkt{src: own, dst: alias, proto: tcpProto, payload: tcpMsg(21, 1500, synACK, 0)}),
		pkt{src: server6, dst: clientA, hop: 63, proto: tcpProto, payload: tcpMsg(21, 1500, synACK, 0)})
	got, ok := b.Alias(0)
	if want := (Alias{Client: netip.MustParseAddrPort("[" + clientA + "]:1500"), Server: netip.MustParseAddrPort("[" + server6 + "]:21")}); !ok || got != want {
		t.Fatalf("alias %+v, %t; want %+v", got, ok, want)
	}
	// The proxy's connection to the server has the T of the client.
	data := b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1501, 80, flagSYN, 0)}))
	out := b.one(b.in(pkt{src: dial, dst: server6, hop: DetourHops, proto: tcpProto, payload: tcpMsg(4000, 21, flagSYN, 0)}))
	of := netip.MustParseAddrPort("[" + clientA + "]:1500")
	if got := b.events(SessionStart); len(got) != 1 || got[0].Inside != of || !got[0].Client.Contains(of.Addr()) {
		t.Errorf("the log has %+v, want one session of %s", got, of)
	}
	b.wants([][]byte{out}, pkt{src: srcAddr(data), dst: server4, hop: DetourHops - 1, proto: tcpProto, payload: tcpMsg(srcPort(out), 21, flagSYN, 0)})
	b.wants(b.in(pkt{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(21, srcPort(out), synACK, 0)}),
		pkt{src: server6, dst: dial, hop: 63, proto: tcpProto, payload: tcpMsg(21, 4000, synACK, 0)})
	if n := b.Engine.Sizes(); n.Subscribers != 1 || n.Aliases != 1 {
		t.Errorf("sizes %+v; the proxy is no client of its own", n)
	}
	// Lists tell the client, and its own port.
	var sessions, bindings int
	only := Selection{Inside: netip.PrefixFrom(of.Addr(), 128), Outside: netip.AddrPortFrom(netip.MustParseAddr(poolIP), srcPort(out))}
	b.Engine.Sessions(only, 0, 100, b.now, func(s SessionInfo) bool {
		sessions++
		if s.Inside != of {
			t.Errorf("session of %s, want %s", s.Inside, of)
		}
		return true
	})
	b.Engine.Bindings(only, 0, 100, func(i BindingInfo) bool {
		bindings++
		if i.Inside != of {
			t.Errorf("binding of %s, want %s", i.Inside, of)
		}
		return true
	})
	if sessions != 1 || bindings != 1 {
		t.Errorf("%d sessions and %d bindings of the client to the server's port 21, want 1 and 1", sessions, bindings)
	}
	// Other ports, other clients' connections: their own numbers.
	if got := b.one(b.in(pkt{src: clientB, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 21, flagSYN, 0)})); got[23] != 1 {
		t.Errorf("source %x", got[8:24])
	}
}

func TestDetourRefused(t *testing.T) {
	b := engine(t, detoured)
	for _, tt := range []struct {
		name string
		p    pkt
		why  Reason
	}{
		{"the reset of a connection that is not known", pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 21, flagRST, 0)}, DetourUnknown},
		{"a stranger in the middle of one", pkt{src: "2001:db8:2::1", dst: server6, proto: tcpProto, payload: tcpMsg(1500, 21, flagACK, 0)}, NotClient},
		{"a stranger", pkt{src: "2001:db8:2::1", dst: server6, proto: tcpProto, payload: tcpMsg(1500, 21, flagSYN, 0)}, NotClient},
		{"the proxy to a number that nobody has", pkt{src: "fd00:1:2:3::1", dst: "fd00:1:2:3:0:1::7", proto: tcpProto, payload: tcpMsg(21, 1500, flagACK, 0)}, DetourUnknown},
		{"the proxy in the name of nobody", pkt{src: "fd00:1:2:3:0:2::7", dst: server6, proto: tcpProto, payload: tcpMsg(4000, 21, flagSYN, 0)}, DetourUnknown},
		{"a client to the proxy's side", pkt{src: clientA, dst: "fd00:1:2:3:0:1::", proto: tcpProto, payload: tcpMsg(21, 1500, flagACK, 0)}, DetourUnknown},
		{"a client in the proxy's name", pkt{src: "fd00:1:2:3::1", dst: server6, proto: udpProto, payload: udpMsg(1500, 53, 4)}, DetourUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) { b.refused(tt.p, tt.why) })
	}
}

// TestDetourReset: a connection from before a crash ends at once (RFC 9293 section 3.5.2).
func TestDetourReset(t *testing.T) {
	segment := func(src, dst uint16, seq, ack uint32, flags byte, data int) []byte {
		m := tcpMsg(src, dst, flags, data)
		binary.BigEndian.PutUint32(m[4:], seq)
		binary.BigEndian.PutUint32(m[8:], ack)
		return m
	}
	b := engine(t, detoured)
	for _, tt := range []struct {
		name     string
		in, want []byte
	}{
		{"data", segment(1500, 21, 1000, 5000, flagACK, 7), segment(21, 1500, 5000, 0, flagRST, 0)},
		{"the end", segment(1500, 21, 1000, 5000, flagFIN|flagACK, 0), segment(21, 1500, 5000, 0, flagRST, 0)},
		{"data without acknowledgment", segment(1500, 21, 1000, 0, 0, 7), segment(21, 1500, 0, 1007, flagRST|flagACK, 0)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.want[14], tt.want[15] = 0, 0 // window
			b.wants(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tt.in}),
				pkt{src: server6, dst: clientA, proto: tcpProto, payload: tt.want})
		})
	}
	for range 1000 {
		b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 21, flagACK, 0)})
	}
	if s := b.Stats(); s.ErrorsSent[ErrorUnreachable] > 30 || s.ErrorsWithheld[ErrorUnreachable] == 0 {
		t.Errorf("%d resets for a flood", s.ErrorsSent[ErrorUnreachable])
	}
}

// TestDetourForged: what comes from the network in the proxy's name has one hop less at most,
// and gets nothing on the account of a client.
func TestDetourForged(t *testing.T) {
	const alias = "fd00:1:2:3:0:2::"
	b := engine(t, detoured)
	b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 21, flagSYN, 0)}))
	b.one(b.in(pkt{src: alias, dst: server6, hop: DetourHops, proto: tcpProto, payload: tcpMsg(4000, 21, flagSYN, 0)}))
	sessions := b.Engine.Sizes().Sessions
	for name, p := range map[string]pkt{
		"a new connection":              {src: alias, dst: server6, hop: DetourHops - 1, proto: tcpProto, payload: tcpMsg(4001, 21, flagSYN, 0)},
		"one from the proxy's port":     {src: alias, dst: other6, hop: DetourHops - 1, proto: tcpProto, payload: tcpMsg(4000, 21, flagSYN, 0)},
		"the proxy's own, opened again": {src: alias, dst: server6, hop: DetourHops - 1, proto: tcpProto, payload: tcpMsg(4000, 21, flagSYN, 0)},
		"a segment without a session":   {src: alias, dst: other6, hop: DetourHops - 1, proto: tcpProto, payload: tcpMsg(4000, 21, flagACK, 0)},
		"another port":                  {src: alias, dst: server6, hop: DetourHops, proto: tcpProto, payload: tcpMsg(4000, 80, flagSYN, 0)},
		"UDP":                           {src: alias, dst: server6, hop: DetourHops, proto: udpProto, payload: udpMsg(4000, 21, 4)},
		"a ping":                        {src: alias, dst: server6, hop: DetourHops, proto: 58, payload: []byte{128, 0, 0, 0, 0, 1, 0, 1}},
	} {
		t.Run(name, func(t *testing.T) { b.refused(p, DetourForged) })
	}
	// The kernel answers with its usual hop limit when the proxy is gone.
	b.one(b.in(pkt{src: alias, dst: server6, proto: tcpProto, payload: tcpMsg(4000, 21, flagRST, 0)}))
	if got := b.Engine.Sizes().Sessions; got != sessions {
		t.Errorf("%d sessions, there were %d", got, sessions)
	}
}

// TestDetourAges: numbers of connections that are over are given again. No client has all
// of them.
func TestDetourAges(t *testing.T) {
	b := engine(t, detoured)
	for i := range maxAliases {
		client := fmt.Sprintf("2001:db8:1:%x::c", i/maxOfClient)
		b.one(b.in(pkt{src: client, dst: server6, proto: tcpProto, payload: tcpMsg(uint16(1024+i), 21, flagSYN, 0)}))
		if i == maxOfClient-1 {
			b.refused(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1000, 21, flagSYN, 0)}, DetourFull)
		}
	}
	b.refused(pkt{src: "2001:db8:1:ff::c", dst: server6, proto: tcpProto, payload: tcpMsg(1000, 21, flagSYN, 0)}, DetourFull)
	for n := range uint16(2) {
		b.in(pkt{src: "fd00:1:2:3::1", dst: fmt.Sprintf("fd00:1:2:3:0:1::%x", n), proto: tcpProto, payload: tcpMsg(21, 1024+n, synACK, 0)})
	}
	b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1024, 21, flagACK, 0)})
	b.pass(halfOpen + 10*time.Second)
	if n := b.Engine.Sizes().Aliases; n != 1 {
		t.Errorf("%d connections, want the one that both sides have made", n)
	}
	b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1000, 21, flagSYN, 0)}))
}

// TestDetourFlood fills all numbers by SYNs that are answered in vain. Soon others have
// theirs, but not those of connections that are made.
func TestDetourFlood(t *testing.T) {
	b := engine(t, detoured)
	syn := func(i int) pkt {
		return pkt{src: fmt.Sprintf("2001:db8:1:%x::c", i/maxOfClient), dst: server6, proto: tcpProto, payload: tcpMsg(uint16(1024+i), 21, flagSYN, 0)}
	}
	for i := range maxAliases {
		b.one(b.in(syn(i)))
		b.in(pkt{src: "fd00:1:2:3::1", dst: fmt.Sprintf("fd00:1:2:3:0:1::%x", i), proto: tcpProto, payload: tcpMsg(21, uint16(1024+i), synACK, 0)})
		if i < 10 {
			p := syn(i)
			p.payload = tcpMsg(uint16(1024+i), 21, flagACK, 0)
			b.one(b.in(p))
		}
	}
	b.refused(pkt{src: "2001:db8:1:ff::c", dst: server6, proto: tcpProto, payload: tcpMsg(1000, 21, flagSYN, 0)}, DetourFull)
	b.pass(leastAge + time.Second)
	for i := range maxOfClient {
		b.one(b.in(pkt{src: "2001:db8:1:ff::c", dst: server6, proto: tcpProto, payload: tcpMsg(uint16(1000+i), 21, flagSYN, 0)}))
	}
	for i := range uint16(10) {
		if a, ok := b.Alias(i); !ok || a.Client.Port() != 1024+i {
			t.Errorf("connection %d has lost its number to %+v", i, a)
		}
	}
	if n := b.Engine.Sizes().Aliases; n != maxAliases || len(b.aliases.held) > maxAliases/maxOfClient+1 {
		t.Errorf("%d connections of %d clients", n, len(b.aliases.held))
	}
}

func TestDetourNumbers(t *testing.T) {
	p := netip.MustParsePrefix(detourText)
	for _, tt := range []struct {
		addr string
		kind DetourKind
		n    uint16
	}{
		{"fd00:1:2:3::1", DetourOwn, 1}, {"fd00:1:2:3:0:1::fff", DetourAlias, 0xfff}, {"fd00:1:2:3:0:2::", DetourDial, 0},
		{"fd00:1:2:3:0:3::1000", DetourServer, firstCaller},
		{"fd00:1:2:3::2", DetourNone, 0}, {"fd00:1:2:3:0:4::1", DetourNone, 0}, {"fd00:1:2:3:0:ff::1", DetourNone, 0}, {"fd00:1:2:3:1:1::1", DetourNone, 0}, {"fd00:1:2:4::1", DetourNone, 0},
	} {
		if kind, n := DetourNumber(p, netip.MustParseAddr(tt.addr)); kind != tt.kind || n != tt.n {
			t.Errorf("%s: %d, %d", tt.addr, kind, n)
		}
		if tt.kind != DetourNone && DetourAddress(p, tt.kind, tt.n) != netip.MustParseAddr(tt.addr) {
			t.Errorf("%s comes out as %s", tt.addr, DetourAddress(p, tt.kind, tt.n))
		}
	}
}

// TestExpect: an FTP server opens a data connection to T,t that the client was promised (RFC
// 6384).
func TestExpect(t *testing.T) {
	expect := func(b *bench) netip.AddrPort {
		t.Helper()
		b.out.Reset()
		got, err := b.Expect(netip.MustParseAddrPort("["+clientA+"]:1600"), netip.MustParseAddr(server4), b.now, &b.out)
		if err != nil || got.Addr() != netip.MustParseAddr(poolIP) {
			t.Fatalf("%v, %v", got, err)
		}
		return got
	}
	syn := func(b *bench, from string, src, dst uint16) [][]byte {
		return b.in(pkt{src: from, dst: poolIP, proto: tcpProto, payload: tcpMsg(src, dst, flagSYN, 0)})
	}
	for _, strict := range []bool{false, true} {
		change := func(s *Settings) {
			if strict {
				s.FilterTCP, s.DropExternalTCP = AddressDependent, true
			}
		}
		for _, port := range []uint16{20, 2020} {
			b := engine(t, change)
			at := expect(b)
			if again := expect(b); again != at {
				t.Errorf("%s the second time, %s the first", again, at)
			}
			b.pass(29 * time.Second)
			b.wants(syn(b, server4, port, at.Port()), pkt{src: server6, dst: clientA, hop: 63, proto: tcpProto, payload: tcpMsg(port, 1600, flagSYN, 0)})
			b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1600, port, synACK, 0)}))
			b.pass(time.Hour)
			b.one(b.in(pkt{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(port, at.Port(), flagACK, 5)}))
		}
		b := engine(t, change)
		at := expect(b)
		b.pass(40 * time.Second)
		if n := b.Engine.Sizes(); n.Sessions != 0 || n.Bindings != 0 {
			t.Errorf("sizes %+v 10 s after the hold", n)
		}
		if strict {
			b.refused(pkt{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(20, at.Port(), flagSYN, 0)}, ExternalTCP)
		}
	}
	b := engine(t, nil)
	for name, who := range map[string][2]string{
		"an IPv4 client":     {poolIP + ":9", server4},
		"an IPv6 server":     {"[" + clientA + "]:9", server6},
		"port 0":             {"[" + clientA + "]:0", server4},
		"a multicast server": {"[" + clientA + "]:9", "224.0.0.1"},
		"a stranger":         {"[2001:db8:2::1]:9", server4},
	} {
		if _, err := b.Expect(netip.MustParseAddrPort(who[0]), netip.MustParseAddr(who[1]), b.now, &b.out); err == nil {
			t.Errorf("%s is expected", name)
		}
	}
}

// TestDetourAgain: a client opens a connection again from the port of one that is over.
func TestDetourAgain(t *testing.T) {
	b := engine(t, detoured)
	client := func(flags byte) {
		b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 21, flags, 0)}))
	}
	proxy := func(flags byte) {
		b.one(b.in(pkt{src: "fd00:1:2:3::1", dst: "fd00:1:2:3:0:1::", proto: tcpProto, payload: tcpMsg(21, 1500, flags, 0)}))
	}
	client(flagSYN)
	proxy(synACK)
	client(flagFIN | flagACK)
	proxy(flagFIN | flagACK)
	b.pass(time.Minute)
	client(flagSYN)
	proxy(synACK)
	client(flagACK)
	b.pass(time.Hour)
	client(flagACK)
	proxy(flagACK)
}

// TestDetourOfAnotherPort: the proxy has a connection with one port of a client alone.
func TestDetourOfAnotherPort(t *testing.T) {
	b := engine(t, detoured)
	b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 21, flagSYN, 0)}))
	for name, message := range map[string][]byte{"to another port": tcpMsg(21, 1501, synACK, 0), "from another port": tcpMsg(22, 1500, synACK, 0)} {
		t.Log(name)
		b.refused(pkt{src: "fd00:1:2:3::1", dst: "fd00:1:2:3:0:1::", proto: tcpProto, payload: message}, DetourUnknown)
	}
}
