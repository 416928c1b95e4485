// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

const (
	victim     = "2001:db8:1:2::d"
	victimPeer = "198.51.100.53"
	peer6      = "2001:db8:64::198.51.100.53"
	burst      = 320 // more than there is room for
)

const newcomersFlood = "networks of clients that no one has"

// flood is an attack on the memory for fragments: its n-th packet.
type flood struct {
	name   string
	length int // of clients
	packet func(n int) pkt
}

// hostIn returns the n-th address of an IPv6 prefix, counted in steps of a prefix length.
func hostIn(prefix string, length, n int) string {
	a := netip.MustParseAddr(prefix).As16()
	half := a[:8]
	if length > 64 {
		half, length = a[8:], length-64
	}
	binary.BigEndian.PutUint64(half, binary.BigEndian.Uint64(half)+uint64(n+1)<<(64-length))
	return netip.AddrFrom16(a).String()
}

// forged4 returns the n-th of many IPv4 addresses.
func forged4(n int) string {
	return netip.AddrFrom4([4]byte{byte(20 + n>>24), byte(n >> 16), byte(n >> 8), byte(n)}).String()
}

// later is a fragment in the middle of a packet, of 8 octets.
func later(p pkt, n int) pkt {
	p.id, p.offset, p.more, p.payload = uint32(n), 64, true, filling(8)
	return p
}

// firstOf is the first fragment of a packet, and no other will come.
func firstOf(p pkt, n int) pkt {
	p.id, p.more = uint32(n), true
	return p
}

var floods = []flood{
	{"one client, fragments of 56 octets of few packets", 64, func(n int) pkt {
		p := later(pkt{src: clientA, dst: server6, proto: udpProto}, n/16)
		p.offset = 8 + n%16*8
		return p
	}},
	{"one client, a packet and an address each", 64, func(n int) pkt {
		return later(pkt{src: hostIn("2001:db8:1:9::", 128, n), dst: server6, proto: udpProto}, n)
	}},
	{"one client, large fragments", 64, func(n int) pkt {
		p := later(pkt{src: clientA, dst: server6, proto: udpProto}, n/6)
		p.offset, p.payload = 8+n%6*1400, filling(1400)
		return p
	}},
	{"one client, first fragments alone", 64, func(n int) pkt {
		return firstOf(pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1500, 53, 8)}, n)
	}},
	{"one client, pings without an end", 64, func(n int) pkt {
		return firstOf(pkt{src: clientA, dst: server6, proto: icmp6Proto, payload: echoMsg(128, 7, 8)}, n)
	}},
	{"one client, overlapping fragments", 64, func(n int) pkt {
		p := later(pkt{src: clientA, dst: server6, proto: udpProto}, n/2)
		p.offset += n % 2 * 8
		p.payload = filling(16)
		return p
	}},
	{"one client turns round to another", 64, func(n int) pkt {
		return firstOf(pkt{src: clientA, dst: poolIn6, proto: udpProto, payload: udpMsg(1500, 5000, 8)}, n)
	}},
	{"networks of one /48 that is a client", 48, func(n int) pkt {
		return later(pkt{src: hostIn("2001:db8:7::1", 64, n%65000), dst: server6, proto: udpProto}, n)
	}},
	{"addresses of one /64 that are clients", 128, func(n int) pkt {
		return later(pkt{src: hostIn("2001:db8:1:9::", 128, n), dst: server6, proto: udpProto}, n)
	}},
	{"addresses of the victim's /64 that are clients", 128, func(n int) pkt {
		return later(pkt{src: hostIn("2001:db8:1:2::ffff", 128, n), dst: server6, proto: udpProto}, n)
	}},
	{"few addresses of the victim's /64 that are clients", 128, func(n int) pkt {
		return later(pkt{src: hostIn("2001:db8:1:2::ffff", 128, n%20), dst: server6, proto: udpProto}, n)
	}},
	{newcomersFlood, 64, func(n int) pkt {
		return later(pkt{src: hostIn("2001:db8:7::1", 64, n%65000), dst: server6, proto: udpProto}, n)
	}},
	{"sources that are not clients", 64, func(n int) pkt {
		return later(pkt{src: hostIn("2001:db9::1", 64, n), dst: server6, proto: udpProto}, n)
	}},
	{"forged IPv4 sources, fragments of 28 octets", 64, func(n int) pkt {
		return later(pkt{src: forged4(n), dst: poolIP, proto: udpProto}, n&0xffff)
	}},
	{"forged IPv4 sources, large fragments", 64, func(n int) pkt {
		p := later(pkt{src: forged4(n), dst: poolIP, proto: udpProto}, n&0xffff)
		p.payload = filling(1400)
		return p
	}},
	{"forged IPv4 sources, first fragments for no one", 64, func(n int) pkt {
		return firstOf(pkt{src: forged4(n), dst: poolIP, proto: udpProto, payload: udpMsg(53, uint16(1024+n%3000), 8)}, n&0xffff)
	}},
	{"forged IPv4 sources, first fragments for another client", 64, func(n int) pkt {
		return firstOf(pkt{src: forged4(n), dst: poolIP, proto: udpProto, payload: udpMsg(53, 5000, 8)}, n&0xffff)
	}},
	{"forged IPv4 sources, pings without an end for another client", 64, func(n int) pkt {
		return firstOf(pkt{src: forged4(n), dst: poolIP, proto: icmpProto, payload: echoMsg(8, 5000, 8)}, n&0xffff)
	}},
	{"forged IPv4 sources, pings without an end for no one", 64, func(n int) pkt {
		return firstOf(pkt{src: forged4(n), dst: poolIP, proto: icmpProto, payload: echoMsg(8, uint16(6000+n%3000), 8)}, n&0xffff)
	}},
	{"forged IPv4 sources, UDP without a checksum and an end", 64, func(n int) pkt {
		return firstOf(pkt{src: forged4(n), dst: poolIP, proto: udpProto, payload: udpMsg(53, 5000, 8), keepSum: true}, n&0xffff)
	}},
	{"a forged peer of another client", 64, func(n int) pkt {
		return later(pkt{src: server4, dst: poolIP, proto: udpProto}, n&0xffff)
	}},
}

// besieged is a gateway with an attacker's client and a victim that both have sessions.
func besieged(t *testing.T, length int) (b *bench, port, id uint16) {
	sizes := testSizes
	sizes.SubscriberLength, sizes.Sessions = length, 1<<15
	b = engineOver(t, newTable(t, sizes), func(s *Settings) {
		s.Clients = []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}
		s.Limits.ClientSessions = 4096
		l := &s.Limits // a sixteenth of the usual
		l.FragmentPackets, l.FragmentPacketsSource, l.FragmentMemory, l.FragmentMemorySource = 256, 32, 256<<10, 32<<10
	})
	for _, transport := range []string{"udp", "icmp"} {
		if err := b.AddStatic(static(t, transport, "["+clientA+"]:1500", poolIP+":5000")); err != nil {
			t.Fatal(err)
		}
	}
	b.openUDP(clientA, 1500, server6)
	port = b.openUDP(victim, 1600, peer6)
	id = srcPort(b.one(b.in(pkt{src: victim, dst: peer6, proto: icmp6Proto, payload: echoMsg(128, 77, 3)})))
	return b, port, id
}

// TestFragmentFloods: whoever fills the memory for fragments, a client within its share is
// served, in both directions, whatever the order of its fragments and however much comes
// between them.
func TestFragmentFloods(t *testing.T) {
	testutil.OneThread(t)
	for _, attack := range floods {
		t.Run(attack.name, func(t *testing.T) {
			b, port, id := besieged(t, attack.length)
			victims := []struct {
				name   string
				packet pkt
			}{
				{"UDP to IPv4", pkt{src: victim, dst: peer6, proto: udpProto, payload: udpMsg(1600, 53, 2000)}},
				{"UDP to IPv6", pkt{src: victimPeer, dst: poolIP, proto: udpProto, payload: udpMsg(53, port, 2000)}},
				{"ping to IPv4", pkt{src: victim, dst: peer6, proto: icmp6Proto, payload: echoMsg(128, 77, 2000)}},
				{"ping to IPv6", pkt{src: victimPeer, dst: poolIP, proto: icmpProto, payload: echoMsg(0, id, 2000)}},
				{"UDP turned round", pkt{src: victim, dst: poolIn6, proto: udpProto, payload: udpMsg(1600, 5000, 2000)}},
			}
			sent := 0
			assault := func() {
				for range burst {
					b.in(attack.packet(sent))
					sent++
				}
				b.pass(50 * time.Millisecond)
			}
			assault()
			for _, v := range victims {
				passed, packets := 0, 0
				for name, order := range orders {
					packets++
					v.packet.id = uint32(60000 + packets)
					got := 0
					for _, i := range order {
						got += octetsOf(b.raw(v.packet.cut(800)[i]))
						assault()
					}
					if got == 2008 {
						passed++
					} else {
						t.Logf("%s, %s: %d octets came out", v.name, name, got)
					}
					b.sane()
				}
				if passed != packets {
					t.Errorf("%s: %d of %d packets passed; dropped %v", v.name, passed, packets, b.drops())
				}
			}
			b.pass(3 * time.Second)
			if n := b.Engine.Sizes().Assemblies; n != 0 {
				t.Errorf("%d assemblies are left", n)
			}
			b.sane()
		})
	}
}

// octetsOf counts the octets of packets without the headers of IP.
func octetsOf(packets [][]byte) (n int) {
	for _, ip := range packets {
		switch {
		case ip[0]>>4 == 4:
			n += len(ip) - 20
		case ip[6] == 44:
			n += len(ip) - 48
		default:
			n += len(ip) - 40
		}
	}
	return n
}

// sane checks that accounts hold what assemblies and memory say.
func (b *bench) sane() {
	b.t.Helper()
	for side, f := range map[string]*assemblies{"IPv6": &b.fragments6, "IPv4": &b.fragments4} {
		if err := f.sane(); err != nil {
			b.t.Fatalf("fragments from %s: %v", side, err)
		}
	}
}

func (f *assemblies) sane() error {
	sums := make(map[int32]*[things]int32)
	chunks := 0
	for _, i := range f.index {
		a := &f.slots[i]
		chunks += a.waiting.chunks
		for at := a.account; at != noSlot; at = f.accounts.slots[at].above {
			if sums[at] == nil {
				sums[at] = new([things]int32)
			}
			sums[at][packets]++
			sums[at][memory] += int32(a.waiting.chunks)
		}
	}
	for _, i := range f.accounts.index {
		a := &f.accounts.slots[i]
		switch {
		case sums[i] == nil || *sums[i] != a.held:
			return fmt.Errorf("account %+v holds %v, want %v", a.key, a.held, sums[i])
		case a.members == noSlot && a.key.kind != ofStranger && (int(a.held[packets]) > f.accounts.share[packets] || int(a.held[memory]) > f.accounts.share[memory]):
			return fmt.Errorf("account %+v holds %v, its share is %v", a.key, a.held, f.accounts.share)
		}
	}
	switch {
	case len(sums) != len(f.accounts.index):
		return fmt.Errorf("%d accounts, want %d", len(f.accounts.index), len(sums))
	case chunks+f.memory.unused != len(f.memory.next):
		return fmt.Errorf("%d chunks of %d are used and %d not", chunks, len(f.memory.next), f.memory.unused)
	case len(f.index)+len(f.free) != len(f.slots):
		return fmt.Errorf("%d of %d slots are used and %d free", len(f.index), len(f.slots), len(f.free))
	case len(f.accounts.index)+len(f.accounts.free) != len(f.accounts.slots):
		return fmt.Errorf("%d of %d accounts are used and %d free", len(f.accounts.index), len(f.accounts.slots), len(f.accounts.free))
	}
	return nil
}

// TestFragmentsOfNewcomers: a client without a session yet is served beside floods from one
// network, and beside those from many as long as fewer come than there is room for.
func TestFragmentsOfNewcomers(t *testing.T) {
	testutil.OneThread(t)
	for _, attack := range floods {
		t.Run(attack.name, func(t *testing.T) {
			b, _, _ := besieged(t, attack.length)
			between := burst
			if attack.name == newcomersFlood {
				between = 100
			}
			sent := 0
			for n := range 20 {
				p := pkt{src: hostIn("2001:db8:500::1", 48, n), dst: peer6, proto: udpProto, id: 9, payload: udpMsg(1700, 53, 2000)}
				got := 0
				for _, i := range orders["reversed"] {
					got += octetsOf(b.raw(p.cut(800)[i]))
					for range between {
						b.in(attack.packet(sent))
						sent++
					}
				}
				if got != 2008 {
					t.Fatalf("client %d: %d octets came out; dropped %v", n, got, b.drops())
				}
			}
			b.sane()
		})
	}
}

// TestFragmentsOnce: what one sender sends at once, and then nothing, takes no room of
// others for the time that it waits. With the limits that a gateway starts from.
func TestFragmentsOnce(t *testing.T) {
	for name, attack := range map[string]struct {
		packets int
		packet  func(n int) pkt
	}{
		"8209 fragments of 56 octets of one client": {8209, func(n int) pkt {
			p := later(pkt{src: clientA, dst: server6, proto: udpProto}, n/16)
			p.offset = 8 + n%16*8
			return p
		}},
		"4096 fragments of 28 octets with forged IPv4 sources": {4096, func(n int) pkt {
			return later(pkt{src: forged4(n), dst: poolIP, proto: udpProto}, n)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := engine(t, nil)
			port := b.openUDP(victim, 1600, peer6)
			for n := range attack.packets {
				b.in(attack.packet(n))
			}
			passed := 0
			for id := range uint32(100) {
				to4 := pkt{src: victim, dst: peer6, proto: udpProto, id: id, payload: udpMsg(1600, 53, 2000)}
				to6 := pkt{src: victimPeer, dst: poolIP, proto: udpProto, id: id, payload: udpMsg(53, port, 2000)}
				for _, p := range []pkt{to4, to6} {
					for _, f := range p.cut(800)[1:] {
						b.raw(f)
					}
					if octetsOf(b.raw(p.cut(800)[0])) == 2008 {
						passed++
					}
				}
				b.pass(10 * time.Millisecond)
			}
			if passed != 200 {
				t.Errorf("%d of 200 packets of another client passed; dropped %v", passed, b.drops())
			}
		})
	}
}

// TestFloodsTakeNoMemory: nothing is allocated for a fragment, whoever gives way for it.
func TestFloodsTakeNoMemory(t *testing.T) {
	for _, attack := range floods {
		t.Run(attack.name, func(t *testing.T) {
			b, _, _ := besieged(t, attack.length)
			var sent [][]byte
			for n := range 3 * burst {
				sent = append(sent, attack.packet(n).bytes())
				b.raw(sent[n])
			}
			n := 0
			allocated := testing.AllocsPerRun(len(sent), func() {
				ip := sent[n%len(sent)]
				n++
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
