// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// TestExpectCaller: an IPv4 client opens a passive data connection to a port of its server, on
// the address that it has called, whatever address the server has otherwise.
func TestExpectCaller(t *testing.T) {
	for _, home := range []string{"the same address", "another address", "another address, by calculation"} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, strict %t", home, strict), func(t *testing.T) {
				change := func(s *Settings) {
					if home == "another address, by calculation" {
						s.Deterministic = &Deterministic{Compression: 16, Dynamic: 2, Reserved: 1024}
					}
				}
				b := called(t, nil)
				if home != "the same address" {
					b = twoAddresses(t, change)
				}
				b.established()
				if strict { // what is open goes on
					s := b.settings
					s.FilterTCP, s.DropExternalTCP = AddressDependent, true
					if err := b.Reconfigure(s); err != nil {
						t.Fatal(err)
					}
				}
				b.out.Reset()
				at, err := b.ExpectCaller(firstCaller, 50000, b.now, &b.out)
				if err != nil || at.Addr() != netip.MustParseAddr(poolIP) || at.Port() < 1024 {
					t.Fatalf("%v, %v", at, err)
				}
				if home == "another address" {
					got := b.events(BlockStart)
					if len(got) != 1 || got[0].Pool != at.Addr() || got[0].First != at.Port() || got[0].Last != at.Port() || !got[0].Client.Contains(netip.MustParseAddr(clientA)) {
						t.Errorf("the log has %+v of port %d", got, at.Port())
					}
				}
				if again, err := b.ExpectCaller(firstCaller, 50000, b.now, &b.out); err != nil || again != at {
					t.Errorf("%v the second time (%v), %v the first", again, err, at)
				}
				b.pass(29 * time.Second)
				b.wants(b.in(pkt{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(1600, at.Port(), flagSYN, 0)}),
					pkt{src: server6, dst: clientA, hop: 63, proto: tcpProto, payload: tcpMsg(1600, 50000, flagSYN, 0)})
				b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(50000, 1600, synACK, 0)}))
				b.pass(time.Hour)
				b.one(b.in(pkt{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(1600, at.Port(), flagACK, 5)}))
				if strict {
					b.refused(pkt{src: other4, dst: poolIP, proto: tcpProto, payload: tcpMsg(1600, at.Port(), flagSYN, 0)}, ExternalTCP)
				}
				b.pass(3 * time.Hour)
				if got := b.events(BlockStop); home == "another address" {
					found := false
					for _, ev := range got {
						found = found || ev.Pool == at.Addr() && ev.First == at.Port() && ev.Last == at.Port()
					}
					if !found {
						t.Errorf("the log has %+v, and no end of port %d", got, at.Port())
					}
				}
				if n := b.Engine.Sizes(); n.Sessions != 0 || n.Bindings != 1 {
					t.Errorf("sizes %+v when all is over", n)
				}
			})
		}
	}
}

// TestExpectedCallersEnd: what was expected of a control connection ends with the next that is,
// and by itself; what has come does not.
func TestExpectedCallersEnd(t *testing.T) {
	b := called(t, nil)
	b.established()
	expect := func(port uint16) uint16 {
		t.Helper()
		at, err := b.ExpectCaller(firstCaller, port, b.now, &b.out)
		if err != nil {
			t.Fatal(err)
		}
		return at.Port()
	}
	for port := range uint16(100) {
		expect(50000 + port)
	}
	if n := b.Engine.Sizes(); n.Sessions != 2 || n.Bindings != 2 {
		t.Errorf("sizes %+v after a hundred, want one that is expected", n)
	}
	at := expect(50099)
	b.one(b.in(pkt{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(20, at, flagSYN, 0)}))
	expect(50100)
	if n := b.Engine.Sizes(); n.Sessions != 3 || n.Bindings != 3 {
		t.Errorf("sizes %+v, want one that has come and one that is expected", n)
	}
	b.pass(40 * time.Second)
	if n := b.Engine.Sizes(); n.Sessions != 2 || n.Bindings != 2 {
		t.Errorf("sizes %+v after the hold", n)
	}
	for name, port := range map[string]uint16{"no port": 0, "SSH": 22, "the last system port": 1023} {
		if _, err := b.ExpectCaller(firstCaller, port, b.now, &b.out); err == nil {
			t.Errorf("%s is to be reached", name)
		}
	}
	for _, number := range []uint16{0, firstCaller + 1, 65535} {
		if _, err := b.ExpectCaller(number, 50000, b.now, &b.out); err == nil {
			t.Errorf("somebody is expected for connection %d", number)
		}
	}
}

// TestExpectCalled: a server opens an active data connection from its port 20 on the address
// that its client has called.
func TestExpectCalled(t *testing.T) {
	for _, two := range []bool{false, true} {
		b := called(t, nil)
		if two {
			b = twoAddresses(t, nil)
		}
		b.established()
		if err := b.ExpectCalled(firstCaller, 1700, b.now, &b.out); err != nil {
			t.Fatal(err)
		}
		out := b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(20, 1700, flagSYN, 0)}))
		b.wants([][]byte{out}, pkt{src: poolIP, dst: server4, hop: 63, proto: tcpProto, payload: tcpMsg(srcPort(out), 1700, flagSYN, 0)})
		b.wants(b.in(pkt{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(1700, srcPort(out), synACK, 0)}),
			pkt{src: server6, dst: clientA, hop: 63, proto: tcpProto, payload: tcpMsg(1700, 20, synACK, 0)})
		b.pass(time.Minute)
		b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(20, 1700, flagACK, 9)}))
		if err := b.ExpectCalled(firstCaller, 0, b.now, &b.out); err == nil {
			t.Error("port 0 is expected")
		}
	}
}

// TestCallersPrefix: the server sees one address of its client, on all connections.
func TestCallersPrefix(t *testing.T) {
	b := called(t, func(s *Settings) { s.Translate.Prefixes = append(s.Translate.Prefixes, prefix6(t, "2001:db8:65::/96")) })
	b.established()
	second := "2001:db8:65::198.51.100.9" // from here on the newest session of port 20 has the other prefix
	b.one(b.in(pkt{src: clientA, dst: second, proto: tcpProto, payload: tcpMsg(20, 80, flagSYN, 0)}))
	if err := b.ExpectCalled(firstCaller, 1700, b.now, &b.out); err != nil {
		t.Fatal(err)
	}
	var seen netip.Addr
	b.Engine.Sessions(Selection{}, 0, 1<<20, b.now, func(s SessionInfo) bool {
		if s.Peer.Port() == 1700 {
			seen = s.Peer6
		}
		return true
	})
	if seen != netip.MustParseAddr(server6) {
		t.Errorf("the client is %s on the data connection, %s on the control connection", seen, server6)
	}
}

// TestHairpinnedCallers: a client calls the FTP server of another by its address of the pool;
// that goes through the proxy twice, and not more often.
func TestHairpinnedCallers(t *testing.T) {
	b := called(t, nil)
	b.wants(b.in(pkt{src: clientB, dst: poolIn6, proto: tcpProto, payload: tcpMsg(1500, 21, flagSYN, 0)}),
		pkt{src: "fd00:1:2:3:0:1::", dst: detourOwn, hop: 63, proto: tcpProto, payload: tcpMsg(1500, 21, flagSYN, 0)})
	if err := b.RemoveStatic(static(t, "tcp", "["+clientA+"]:21", fmt.Sprintf("%s:%d", poolIP, outsideFTP)), b.now, &b.out); err != nil {
		t.Fatal(err)
	}
	s := b.settings
	s.Pool4 = []Range{{Prefix: netip.MustParsePrefix(poolIP + "/32"), First: 1, Last: 65535}}
	if err := b.Reconfigure(s); err != nil {
		t.Fatal(err)
	}
	if err := b.AddStatic(static(t, "tcp", "["+clientA+"]:21", poolIP+":21")); err != nil {
		t.Fatal(err)
	}
	second := b.one(b.in(pkt{src: "fd00:1:2:3:0:2::", dst: poolIn6, hop: DetourHops, proto: tcpProto, payload: tcpMsg(4000, 21, flagSYN, 0)}))
	if src := netip.AddrFrom16([16]byte(second[8:24])); src != netip.MustParseAddr(callerFrom) {
		t.Fatalf("the second time it comes from %s", src)
	}
	b.wants(b.toServer(flagSYN), pkt{src: "2001:db8:64::" + poolIP, dst: clientA, hop: DetourHops - 1, proto: tcpProto, payload: tcpMsg(uint16(second[40])<<8|uint16(second[41]), 21, flagSYN, 0)})
}
