// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
)

// TestDropRules: who may come in, and what (RFC 6146 sections 3.4, 3.5).
func TestDropRules(t *testing.T) {
	b := engine(t, nil)
	udp := udpMsg(1500, 53, 4)
	for _, tt := range []struct {
		name string
		p    pkt
		why  Reason
	}{
		{"IPv6 destination outside of pool6", pkt{src: clientA, dst: "2001:db8:9::1", proto: udpProto, payload: udp}, NotPool6},
		{"IPv4 destination outside of pool4", pkt{src: server4, dst: "203.0.113.2", proto: udpProto, payload: udp}, NotPool4},
		{"IPv6 source in pool6", pkt{src: other6, dst: server6, proto: udpProto, payload: udp}, SourceInPool6},
		{"IPv6 source that is a link's", pkt{src: "fe80::1", dst: server6, proto: udpProto, payload: udp}, Reason(translate.ReasonIllegalSource)},
		{"IPv6 loopback source", pkt{src: "::1", dst: server6, proto: udpProto, payload: udp}, Reason(translate.ReasonIllegalSource)},
		{"IPv4 loopback source", pkt{src: "127.0.0.1", dst: poolIP, proto: udpProto, payload: udp}, Reason(translate.ReasonIllegalSource)},
		{"IPv4 multicast in the destination", pkt{src: clientA, dst: "2001:db8:64::224.0.0.1", proto: udpProto, payload: udp}, Reason(translate.ReasonIllegalDestination)},
		{"IPv4 loopback in the destination", pkt{src: clientA, dst: "2001:db8:64::127.0.0.1", proto: udpProto, payload: udp}, Reason(translate.ReasonIllegalDestination)},
		{"neighbour solicitation", pkt{src: clientA, dst: server6, proto: icmp6Proto, payload: icmpMsg(135, 0, 0)}, Reason(translate.ReasonICMPType)},
		{"IPv4 timestamp", pkt{src: server4, dst: poolIP, proto: icmpProto, payload: icmpMsg(13, 0, 0)}, Reason(translate.ReasonICMPType)},
		{"cut TCP header", pkt{src: clientA, dst: server6, proto: tcpProto, payload: filling(19)}, Reason(translate.ReasonTransport)},
		{"cut UDP header", pkt{src: server4, dst: poolIP, proto: udpProto, payload: filling(7)}, Reason(translate.ReasonTransport)},
		{"cut query", pkt{src: clientA, dst: server6, proto: icmp6Proto, payload: echoMsg(128, 1, 0)[:6]}, Reason(translate.ReasonTransport)},
	} {
		t.Run(tt.name, func(t *testing.T) { b.refused(tt.p, tt.why) })
	}
	if n := b.Engine.Sizes(); n != (Sizes{}) {
		t.Errorf("state came of it: %+v", n)
	}
}

func TestPoliciesOfICMP(t *testing.T) {
	b := engine(t, func(s *Settings) { s.DropICMPInfo = true })
	b.refused(pkt{src: clientA, dst: server6, proto: icmp6Proto, payload: echoMsg(128, 1, 4)}, ICMPInfo)
}

// TestWellKnownPrefix: not for addresses that are not global, unless the operator says so
// (RFC 6052 section 3.1).
func TestWellKnownPrefix(t *testing.T) {
	wellKnown := func(s *Settings) { s.Translate.Prefixes = []translate.Prefix{prefix6(t, "64:ff9b::/96")} }
	const to = "64:ff9b::10.1.2.3"
	p := pkt{src: clientA, dst: to, proto: udpProto, payload: udpMsg(1500, 53, 4)}
	sum := udpMsg(1500, 53, 64)
	for _, tt := range []struct {
		name string
		in   pkt
		told bool // by ICMPv6, so that no one waits
	}{
		{"a datagram", p, true},
		{"a connection", pkt{src: clientA, dst: to, proto: tcpProto, payload: tcpMsg(1500, 22, flagSYN, 0)}, true},
		{"a ping", pkt{src: clientA, dst: to, proto: icmp6Proto, payload: echoMsg(128, 1, 4)}, true},
		{"a first fragment", pkt{src: clientA, dst: to, proto: udpProto, frag: true, more: true, id: 7, payload: sum[:16]}, true},
		{"an ICMPv6 error", pkt{src: clientA, dst: to, proto: icmp6Proto, payload: make([]byte, 56)}, false},
		{"of a stranger", pkt{src: "2001:db8:f::1", dst: to, proto: udpProto, payload: udpMsg(1500, 53, 4)}, false},
	} {
		b := engine(t, wellKnown)
		told := false
		for _, got := range b.in(tt.in) {
			p := packet.IPv6(got)
			told = p.Dst() == netip.MustParseAddr(tt.in.src) && p.NextHeader() == packet.ProtoICMPv6 && p.Payload()[0] == packet.ICMPv6Unreachable && p.Payload()[1] == codeProhibited6
		}
		if told != tt.told || b.stats.Dropped[translate.ReasonNonGlobal] != 1 {
			t.Errorf("%s: told %t, want %t; dropped %v", tt.name, told, tt.told, b.drops())
		}
	}
	b := engine(t, func(s *Settings) { wellKnown(s); s.Translate.NonGlobal = true })
	if got := b.one(b.in(p)); got[0]>>4 != 4 {
		t.Errorf("came out %x", got)
	}
	b = engine(t, wellKnown)
	if err := b.AddStatic(static(t, "udp", "["+clientA+"]:80", poolIP+":8080")); err != nil {
		t.Fatal(err)
	}
	b.refused(pkt{src: "10.1.2.3", dst: poolIP, proto: udpProto, payload: udpMsg(9, 8080, 4)}, Reason(translate.ReasonNonGlobal))
	// Beside another prefix, which stands for such hosts whatever the client uses.
	b = engine(t, func(s *Settings) {
		wellKnown(s)
		s.Translate.Prefixes = append(s.Translate.Prefixes, prefix6(t, pool6Text))
	})
	port := b.openUDP(clientA, 1500, "64:ff9b::8.8.8.8")
	b.wants(b.in(pkt{src: "10.1.2.3", dst: poolIP, proto: udpProto, payload: udpMsg(9, port, 4)}),
		pkt{src: "2001:db8:64::10.1.2.3", dst: clientA, hop: 63, proto: udpProto, payload: udpMsg(9, 1500, 4)})
}

// TestSeveralPrefixes: each session keeps the one that the client chose; a length of all
// six, longest match first.
func TestSeveralPrefixes(t *testing.T) {
	b := engine(t, func(s *Settings) {
		s.Translate.Prefixes = nil
		for _, p := range []string{"2001:db8:64::/96", "2001:db8:122:344::/64", "2001:db8:122::/48", "2001:db9::/32", "2001:dba:100::/40", "2001:dbb:122:300::/56"} {
			s.Translate.Prefixes = append(s.Translate.Prefixes, prefix6(t, p))
		}
	})
	for i, by := range []struct{ server, other string }{
		{server6, other6},
		{"2001:db8:122:344:c6:3364:200:0", "2001:db8:122:344:c6:3364:900:0"},
		{"2001:db8:122:c633:64:200::", "2001:db8:122:c633:64:900::"},
		{"2001:db9:c633:6402::", "2001:db9:c633:6409::"},
		{"2001:dba:1c6:3364:2::", "2001:dba:1c6:3364:9::"},
		{"2001:dbb:122:3c6:33:6402::", "2001:dbb:122:3c6:33:6409::"},
	} {
		port := b.openUDP(clientA, uint16(1500+i), by.server)
		// A newcomer comes by the prefix that the client has used there.
		for from4, from6 := range map[string]string{server4: by.server, other4: by.other} {
			b.wants(b.in(pkt{src: from4, dst: poolIP, proto: udpProto, payload: udpMsg(53, port, 4)}),
				pkt{src: from6, dst: clientA, hop: 63, proto: udpProto, payload: udpMsg(53, uint16(1500+i), 4)})
		}
	}
	// The same port to the same host by a second prefix is one session on the IPv4 side:
	// it passes, and answers come by the first prefix.
	port := b.openUDP(clientA, 1500, "2001:db8:122:344:c6:3364:200:0")
	got := b.one(b.in(pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(53, port, 4)}))
	if src := netip.AddrFrom16([16]byte(got[8:24])); src != netip.MustParseAddr(server6) {
		t.Errorf("answer from %s", src)
	}
}

// TestOwedErrors: what the engine owes, and that it owes nothing about errors.
func TestOwedErrors(t *testing.T) {
	sctp := filling(20)
	for _, tt := range []struct {
		name   string
		change func(*bench)
		in     pkt
		typ    byte
		code   byte
		why    Reason
	}{
		{"unknown protocol from IPv6 (3.4)", nil, pkt{src: clientA, dst: server6, proto: 132, payload: sctp}, 1, 4, Protocol},
		{"unknown protocol from IPv4 (3.4)", nil, pkt{src: server4, dst: poolIP, proto: 132, payload: sctp}, 3, 2, Protocol},
		{"hop limit used up", nil, pkt{src: clientA, dst: server6, hop: 1, proto: udpProto, payload: udpMsg(1, 2, 3)}, 3, 0, Reason(translate.ReasonHopLimit)},
		{"TTL used up", nil, pkt{src: server4, dst: poolIP, hop: 1, proto: udpProto, payload: udpMsg(1, 2, 3)}, 11, 0, Reason(translate.ReasonHopLimit)},
		{"filtered, where that is on", func(b *bench) {
			b.settings.Errors.Off[ErrorFiltered] = false
			b.settings.FilterUDP = AddressDependent
			if err := b.AddStatic(static(b.t, "udp", "["+clientB+"]:80", poolIP+":8080")); err != nil {
				b.t.Fatal(err)
			}
		}, pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(1, 8080, 3)}, 3, 13, Filtered},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := engine(t, nil)
			if tt.change != nil {
				tt.change(b)
			}
			want := answer6(tt.in.src, tt.typ, tt.code, tt.in.bytes())
			if netip.MustParseAddr(tt.in.src).Is4() {
				want = answer4(tt.in.src, tt.typ, tt.code, tt.in.bytes())
			}
			b.wants(b.in(tt.in), want)
			if b.Stats().Dropped[tt.why] != 1 {
				t.Errorf("dropped %v", b.drops())
			}
			if n := b.Engine.Sizes(); n.Sessions != 0 {
				t.Errorf("a session came of it")
			}
		})
	}
	t.Run("too big for IPv4", func(t *testing.T) {
		b := engine(t, nil)
		b.path.MTU4 = 1400
		got := b.one(b.in(pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1, 2, 1400)}))
		if got[40] != 2 || int(got[46])<<8|int(got[47]) != 1420 {
			t.Errorf("came out %x", got)
		}
	})
	t.Run("too big for IPv6", func(t *testing.T) {
		b := engine(t, nil)
		port := b.openUDP(clientA, 1500, server6)
		b.path.MTU6 = 1400
		got := b.one(b.in(pkt{src: server4, dst: poolIP, df: true, proto: udpProto, payload: udpMsg(53, port, 1400)}))
		if got[20] != 3 || got[21] != 4 || int(got[26])<<8|int(got[27]) != 1380 {
			t.Errorf("came out %x", got)
		}
	})
}

func TestErrorLimits(t *testing.T) {
	bad := pkt{src: clientA, dst: server6, proto: 132, payload: filling(20)}
	from := func(src string) pkt { p := bad; p.src = src; return p }
	t.Run("one source", func(t *testing.T) {
		b := engine(t, func(s *Settings) { s.Errors.SourceRate, s.Errors.SourceBurst = 1, 2 })
		b.one(b.in(bad))
		b.one(b.in(bad))
		b.refused(bad, Protocol)
		b.one(b.in(from(clientB)))
		if got := b.Stats(); got.ErrorsWithheld[ErrorProtocol] != 1 || got.ErrorsSent[ErrorProtocol] != 3 {
			t.Errorf("sent %v, withheld %v", got.ErrorsSent, got.ErrorsWithheld)
		}
		b.now = b.now.Add(time.Second)
		b.one(b.in(bad))
	})
	t.Run("one class", func(t *testing.T) {
		b := engine(t, func(s *Settings) { s.Errors.Rate, s.Errors.Burst = 1, 2 })
		b.one(b.in(bad))
		b.one(b.in(from(clientB)))
		b.refused(from("2001:db8:1:3::1"), Protocol)
		b.one(b.in(pkt{src: clientA, dst: server6, hop: 1, proto: udpProto, payload: udpMsg(1, 2, 3)})) // another class
	})
}

// TestErrorsSwitchedOff has each class of errors switched off, and every class provoked: that
// one is withheld, the others are sent.
func TestErrorsSwitchedOff(t *testing.T) {
	one := func(p pkt) func(*bench) { return func(b *bench) { b.in(p) } }
	provoked := [numErrorClasses]func(*bench){
		ErrorHopLimit: one(pkt{src: clientA, dst: server6, hop: 1, proto: udpProto, payload: udpMsg(1, 2, 3)}),
		ErrorTooBig: func(b *bench) {
			b.path.MTU4 = 1400
			b.in(pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1, 2, 1400)})
		},
		ErrorParameter:   one(pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1, 2, 3), first: 43, headers: []byte{17, 0, 0, 1, 0, 0, 0, 0}}),
		ErrorProhibited:  one(pkt{src: clientA, dst: server6, frag: true, more: true, proto: 60, payload: []byte{17, 0, 1, 4, 0, 0, 0, 0}}),
		ErrorProtocol:    one(pkt{src: clientA, dst: server6, proto: 132, payload: filling(20)}),
		ErrorUnreachable: one(pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(1, 8081, 3)}),
		ErrorFiltered:    one(pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(1, 8080, 3)}),
		ErrorAddress: func(b *bench) {
			for port := range uint16(2) {
				b.in(pkt{src: clientB, dst: server6, proto: udpProto, payload: udpMsg(1000+port, 53, 3)})
			}
		},
		ErrorStoredSYN: func(b *bench) {
			b.in(synTo(5000))
			b.pass(7 * time.Second)
		},
	}
	for off := range numErrorClasses {
		for class, provoke := range provoked {
			t.Run(off.String()+" off, "+ErrorClass(class).String(), func(t *testing.T) {
				b := engine(t, func(s *Settings) {
					clear(s.Errors.Off[:])
					s.Errors.Off[off] = true
					s.FilterUDP, s.FilterTCP, s.Limits.ClientSessions = AddressDependent, AddressDependent, 1
				})
				if err := b.AddStatic(static(t, "udp", "["+clientB+"]:80", poolIP+":8080")); err != nil {
					t.Fatal(err)
				}
				provoke(b)
				var sent, withheld [numErrorClasses]uint64
				if int(off) == class {
					withheld[class] = 1
				} else {
					sent[class] = 1
				}
				if got := b.Stats(); got.ErrorsSent != sent || got.ErrorsWithheld != withheld {
					t.Errorf("sent %v, withheld %v; dropped %v", got.ErrorsSent, got.ErrorsWithheld, b.drops())
				}
			})
		}
	}
}

// TestCutForIPv6: what has no DF is cut to the least IPv6 MTU.
func TestCutForIPv6(t *testing.T) {
	b := engine(t, nil)
	port := b.openUDP(clientA, 1500, server6)
	got := b.in(pkt{src: server4, dst: poolIP, proto: udpProto, id: 5, payload: udpMsg(53, port, 2000)})
	b.wants(got, fragmentsOf(pkt{src: server6, dst: clientA, hop: 63, proto: udpProto, id: 5, payload: udpMsg(53, 1500, 2000)}, 1232)...)
}

// TestOddInputs hands in what no stack sends; nothing may come of it but a counter.
func TestOddInputs(t *testing.T) {
	b := engine(t, nil)
	port := b.openUDP(clientA, 1500, server6)
	sound := [][]byte{
		pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1500, 53, 40)}.bytes(),
		pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(53, port, 40)}.bytes(),
		pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 53, flagSYN, 40)}.bytes(),
		pkt{src: router4, dst: poolIP, proto: icmpProto, payload: icmpMsg(3, 1, 0, pkt{src: poolIP, dst: server4, proto: udpProto, payload: udpMsg(port, 53, 9)}.bytes())}.bytes(),
	}
	for _, ip := range sound {
		for n := range ip {
			b.out.Reset()
			b.HandleIPv6(ip[:n], b.path, b.now, &b.out)
			b.HandleIPv4(ip[:n], b.path, b.now, &b.out)
			if len(b.out.IP) != 0 {
				t.Fatalf("%d octets of %x came out as %x", n, ip, b.out.IP)
			}
		}
	}
	for _, fill := range []byte{0, 0x45, 0x60, 0xff} {
		huge := make([]byte, 65536)
		for i := range huge {
			huge[i] = fill
		}
		b.out.Reset()
		b.HandleIPv6(huge, b.path, b.now, &b.out)
		b.HandleIPv4(huge, b.path, b.now, &b.out)
	}
}

// TestLargest translates packets of the largest sizes.
func TestLargest(t *testing.T) {
	b := engine(t, nil)
	port := b.openUDP(clientA, 1500, server6)
	got := b.in(pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(53, port, 65535-20-8)})
	total := 0
	for _, f := range got {
		total += len(f) - 48
	}
	if total != 65535-20 {
		t.Errorf("%d octets came out in %d fragments", total, len(got))
	}
	got = b.in(pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1500, 53, 65535-8)})
	if ip := b.one(got); ip[40] != 2 {
		t.Errorf("came out %x", ip[:60])
	}
}

// TestNoAllocation: a packet of a session takes no memory, whatever its transport.
func TestNoAllocation(t *testing.T) {
	b := engine(t, nil)
	port := b.openUDP(clientA, 1500, server6)
	tcp := srcPort(b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 80, flagSYN, 0)})))
	id := srcPort(b.one(b.in(pkt{src: clientA, dst: server6, proto: icmp6Proto, payload: echoMsg(128, 7, 3)})))
	quoted := pkt{src: poolIP, dst: server4, proto: udpProto, payload: udpMsg(port, 53, 9)}
	fragment := udpFragments(1)[0]
	for name, ip := range map[string][]byte{
		"UDP out":   pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1500, 53, 400)}.bytes(),
		"UDP in":    pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(53, port, 400)}.bytes(),
		"TCP out":   pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 80, flagACK, 400)}.bytes(),
		"TCP in":    pkt{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(80, tcp, synACK, 0)}.bytes(),
		"query out": pkt{src: clientA, dst: server6, proto: icmp6Proto, payload: echoMsg(128, 7, 3)}.bytes(),
		"query in":  pkt{src: server4, dst: poolIP, proto: icmpProto, payload: echoMsg(0, id, 3)}.bytes(),
		"error in":  pkt{src: router4, dst: poolIP, proto: icmpProto, payload: icmpMsg(3, 1, 0, quoted.bytes())}.bytes(),
		"fragment":  fragment,
		"dropped":   pkt{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(80, tcp^1, flagACK, 0)}.bytes(),
	} {
		t.Run(name, func(t *testing.T) {
			b.raw(ip)
			allocated := testing.AllocsPerRun(100, func() {
				b.out.Reset()
				if ip[0]>>4 == 4 {
					b.HandleIPv4(ip, b.path, b.now, &b.out)
				} else {
					b.HandleIPv6(ip, b.path, b.now, &b.out)
				}
			})
			if allocated != 0 {
				t.Errorf("%.1f allocations", allocated)
			}
		})
	}
}

func TestReasonNames(t *testing.T) {
	seen := make(map[string]Reason)
	for r := range Reason(NumReasons) {
		name := r.String()
		if other, ok := seen[name]; ok || name == "" || name == "unknown" {
			t.Errorf("reason %d is called %q, as is %d", r, name, other)
		}
		seen[name] = r
	}
	if got := Reason(NumReasons).String(); got != "unknown" {
		t.Errorf("no reason is called %q", got)
	}
}

// TestDropEvents: fragments that hide what they carry are told once a minute (RFC 7915
// section 5.1.1), other drops are not.
func TestDropEvents(t *testing.T) {
	b := engine(t, nil)
	hidden := pkt{src: clientA, dst: server6, id: 1, frag: true, more: true, proto: 51, payload: filling(24)}
	for i, want := range []int{1, 0, 0} {
		b.in(hidden)
		told := b.events(PacketDropped)
		if len(told) != want || want == 1 && (told[0].Reason != Reason(translate.ReasonFragmentExtension) || told[0].Dropped.Src.Addr().String() != clientA) {
			t.Errorf("packet %d: told %+v", i, told)
		}
	}
	b.in(pkt{src: clientA, dst: server6, hop: 1, proto: udpProto, payload: udpMsg(1, 2, 3)})
	dropped := b.Stats().Dropped
	if dropped[translate.ReasonFragmentExtension] != 3 || dropped[translate.ReasonHopLimit] != 1 {
		t.Errorf("dropped %v", b.drops())
	}
	if told := b.events(PacketDropped); told != nil {
		t.Errorf("hop limit: told %+v", told)
	}
}
