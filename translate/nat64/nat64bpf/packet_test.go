// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/special"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/nat64bpf"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
	"github.com/isthmus-net/isthmus/translate/translatebpf/translatebpftest"
)

// Packets of sessions leave as the codec makes them, all of them and at either hook.
func TestNAT64Forwards(t *testing.T) {
	w := newNATWorld(t)
	for _, transport := range transports {
		w.open(t, usual(transport))
		for i := range translatebpftest.Pool6 {
			f := usual(transport)
			f.prefix, f.peer = i, netip.AddrFrom4([4]byte{198, 51, 100, byte(100 + i)})
			if i == 1 {
				f.peer = translatebpftest.GlobalAddr
			}
			w.open(t, f)
		}
	}
	for _, transport := range transports {
		proto6, proto4 := protocolOf(transport, true), protocolOf(transport, false)
		type row struct {
			name string
			size int // of the message
			six  []translatebpftest.Change
			four []translatebpftest.Change
		}
		rows := []row{
			{"plain", 100, nil, nil},
			{"odd length", 101, nil, nil},
			{"smallest", map[byte]int{6: 20, 17: 8, 58: 8}[proto6], nil, nil},
			{"largest without DF", 1240, nil, nil},
			{"one more", 1241, nil, nil},
			{"largest", 1460, nil, nil},
			{"traffic class and flow label", 64, []translatebpftest.Change{translatebpftest.Put(0, 0x6b, 0x9f, 0xed, 0xcb)}, []translatebpftest.Change{translatebpftest.Header(1, 0xb9)}},
			{"without DF", 64, nil, []translatebpftest.Change{translatebpftest.Header(6, 0)}},
			{"two hops left", 64, []translatebpftest.Change{translatebpftest.Put(7, 2)}, []translatebpftest.Change{translatebpftest.Header(8, 2)}},
			{"255 hops left", 64, []translatebpftest.Change{translatebpftest.Put(7, 255)}, []translatebpftest.Change{translatebpftest.Header(8, 255)}},
			{"wrong checksum", 64, []translatebpftest.Change{translatebpftest.Put(40+60, 0xee)}, []translatebpftest.Change{translatebpftest.Put(20+60, 0xee)}},
			{"UDP without a checksum", 64, []translatebpftest.Change{func(ip []byte) []byte {
				if ip[6] == 17 {
					ip[46], ip[47] = 0, 0
				}
				return ip
			}}, nil},
			{"reply, or FIN", 64, []translatebpftest.Change{func(ip []byte) []byte {
				if proto6 == 58 {
					return translatebpftest.Body(40, 129)(ip)
				}
				return translatebpftest.Body(53, 0x11)(ip)
			}}, []translatebpftest.Change{func(ip []byte) []byte {
				if proto4 == 1 {
					return translatebpftest.Body(20, 0)(ip)
				}
				return translatebpftest.Body(33, 0x12)(ip)
			}}},
			{"code of an echo", 64, []translatebpftest.Change{translatebpftest.Body(41, 7)}, []translatebpftest.Change{translatebpftest.Body(21, 7)}},
		}
		for _, at := range translatebpftest.Hooks {
			f := usual(transport)
			for _, tt := range rows {
				six, four := w.packet6(f, tt.size), w.packet4(f, tt.size)
				if tt.name == "code of an echo" && transport != state.ICMP {
					continue // would be a port
				}
				for _, c := range tt.six {
					six = c(six)
				}
				for _, c := range tt.four {
					four = c(four)
				}
				t.Run(fmt.Sprintf("%s/%s/%s", at, transport, tt.name), func(t *testing.T) {
					w.forwards(t, at, six, translate.Binding{Outer: w.to4(f)}, "to4_forwarded")
					w.forwards(t, at, four, translate.Binding{Outer: w.to6(f)}, "to6_forwarded")
				})
			}
			for i := range translatebpftest.Pool6 {
				f.prefix, f.peer = i, netip.AddrFrom4([4]byte{198, 51, 100, byte(100 + i)})
				if i == 1 {
					f.peer = translatebpftest.GlobalAddr
				}
				t.Run(fmt.Sprintf("%s/%s/prefix %s", at, transport, translatebpftest.Pool6[i]), func(t *testing.T) {
					w.forwards(t, at, w.packet6(f, 99), translate.Binding{Outer: w.to4(f)}, "to4_forwarded")
					w.forwards(t, at, w.packet4(f, 99), translate.Binding{Outer: w.to6(f)}, "to6_forwarded")
				})
			}
		}
	}
}

// forwards fails unless a packet leaves as the codec makes it, padded or not.
func (w *natWorld) forwards(t *testing.T, at translatebpftest.Hook, ip []byte, b translate.Binding, reason string) {
	t.Helper()
	for _, padding := range []int{0, 7} {
		verdict, out := w.translateAt(t, at, append(w.Frame(ip), make([]byte, padding)...))
		if diff := cmp.Diff(map[string]uint64{reason: 1}, w.counted(t)); diff != "" || verdict != fastpath.Forward {
			t.Fatalf("%s; counters (-want +got):\n%s", verdict, diff)
		}
		w.equal(t, out, ip, b)
	}
}

// Random payloads meet all values of a checksum that are special.
func TestNAT64Checksums(t *testing.T) {
	w := newNATWorld(t)
	r := rand.New(rand.NewPCG(1, 2))
	for _, transport := range transports {
		f := usual(transport)
		w.open(t, f)
		for i := range 600 {
			six, four := w.packet6(f, 40), w.packet4(f, 40)
			word := []byte{byte(r.Uint32()), byte(r.Uint32())}
			six, four = translatebpftest.Body(40+30, word...)(six), translatebpftest.Body(20+30, word...)(four)
			if i%3 == 0 {
				// Have the new checksum be zero, or its twin.
				six, four = w.aim(six, w.to4(f)), w.aim(four, w.to6(f))
			}
			at := translatebpftest.Hooks[i%2]
			_, out := w.translateAt(t, at, w.Frame(six))
			w.equal(t, out, six, translate.Binding{Outer: w.to4(f)})
			_, out = w.translateAt(t, at, w.Frame(four))
			w.equal(t, out, four, translate.Binding{Outer: w.to6(f)})
			if t.Failed() {
				t.Fatalf("%s, packet %d", at, i)
			}
		}
	}
}

// aim changes a word of the payload so that the translated checksum becomes zero.
func (w *natWorld) aim(ip []byte, to translate.Endpoints) []byte {
	var out packet.Batch
	b := translate.Binding{Outer: to}
	header, old := 20, 40
	if ip[0]>>4 == 4 {
		w.trans.IPv4Bound(ip, &b, translate.Path{}, &out)
		header, old = 40, 20
	} else {
		w.trans.IPv6Bound(ip, &b, translate.Path{}, &out)
	}
	proto := out.IP[0][9]
	if header == 40 {
		proto = out.IP[0][6]
	}
	at := map[byte]int{6: 16, 17: 6, 1: 2, 58: 2}[proto]
	sum := binary.BigEndian.Uint16(out.IP[0][header+at:])
	word := ip[old+32 : old+34]
	binary.BigEndian.PutUint16(word, packet.Fold(uint64(binary.BigEndian.Uint16(word))+uint64(sum)))
	return translatebpftest.Seal(ip)
}

// What the programs do not handle passes as it came, counted by its reason.
func TestNAT64Leaves(t *testing.T) {
	w := newNATWorld(t)
	for _, transport := range transports {
		w.open(t, usual(transport))
		f := usual(transport)
		f.peer = translatebpftest.SlimServer
		w.open(t, f)
		f = usual(transport)
		f.client, f.poolPort = translatebpftest.SlimClient, translatebpftest.PoolPort+1
		w.open(t, f)
		f = usual(transport)
		f.pool, f.poolPort, f.client = translatebpftest.OwnAddr, translatebpftest.OwnPort, netip.MustParseAddr("2001:db8:1::6")
		w.open(t, f)
	}
	udp, tcp := usual(state.UDP), usual(state.TCP)
	flows := map[uint8]flow{packet.ProtoUDP: udp, packet.ProtoTCP: tcp, packet.ProtoICMPv6: usual(state.ICMP)}
	slim6, slim4 := usual(state.UDP), usual(state.UDP)
	slim6.client, slim6.poolPort = translatebpftest.SlimClient, translatebpftest.PoolPort+1
	slim4.peer = translatebpftest.SlimServer
	lost := usual(state.UDP)
	lost.peer = translatebpftest.LostServer
	own := usual(state.UDP)
	own.pool, own.poolPort = translatebpftest.OwnAddr, translatebpftest.OwnPort
	hostPort, ownEcho, ownReply := own, own, own
	hostPort.poolPort = 53
	ownEcho.transport, ownReply.transport = state.ICMP, state.ICMP

	for _, tt := range append(translatebpftest.OddForms(func(proto uint8) (six, four []byte) {
		return w.packet6(flows[proto], 40), w.packet4(flows[proto], 40)
	}), []translatebpftest.LeftRow{
		{Name: "IPv6 to elsewhere", Packet: w.packet6(udp, 40), Change: translatebpftest.To6("2001:db8:1::9"), Want: ""},
		{Name: "IPv4 to elsewhere", Packet: w.packet4(udp, 40), Change: translatebpftest.To4("192.0.2.150"), Want: ""},
		{Name: "IPv4 to a port of the host", Packet: w.packet4(hostPort, 40), Change: nil, Want: ""},
		{Name: "ping of the host", Packet: w.packet4(ownEcho, 40), Change: nil, Want: ""},
		{Name: "reply to a ping of the host", Packet: w.packet4(ownReply, 40), Change: translatebpftest.Body(20, 0, 0, 0, 0, 0, 9), Want: ""},
		{Name: "options, to the host", Packet: w.packet4(own, 40), Change: translatebpftest.Header(0, 0x46), Want: ""},
		{Name: "fragment, to the host", Packet: w.packet4(own, 40), Change: translatebpftest.Header(6, 0x20), Want: ""},
		{Name: "another protocol, to the host", Packet: w.packet4(own, 40), Change: translatebpftest.Header(9, 47), Want: ""},
		{Name: "from pool4", Packet: w.packet4(udp, 40), Change: translatebpftest.From4("192.0.2.140"), Want: "illegal_address"},
		{Name: "from the host, by a wire", Packet: w.packet4(udp, 40), Change: translatebpftest.From4("192.0.2.1"), Want: "illegal_address"},
		{Name: "well-known prefix, private address", Packet: w.packet6(udp, 40), Change: translatebpftest.To6("64:ff9b::10.0.0.1"), Want: "well_known_prefix_non_global"},
		{Name: "well-known prefix, shared address", Packet: w.packet6(udp, 40), Change: translatebpftest.To6("64:ff9b::100.64.0.1"), Want: "well_known_prefix_non_global"},
		{Name: "well-known prefix, documentation", Packet: w.packet6(udp, 40), Change: translatebpftest.To6("64:ff9b::198.51.100.7"), Want: "well_known_prefix_non_global"},
		{Name: "from pool6", Packet: w.packet6(udp, 40), Change: translatebpftest.From6("3fff:100::1"), Want: "source_in_pool6"},
		{Name: "to a client by way of pool4", Packet: w.packet6(udp, 40), Change: translatebpftest.To6("2001:db8:64::192.0.2.140"), Want: "hairpin"},
		{Name: "to the host by way of pool6", Packet: w.packet6(udp, 40), Change: translatebpftest.To6("2001:db8:64::192.0.2.1"), Want: "hairpin"},
		{Name: "without a route", Packet: w.packet6(lost, 40), Change: nil, Want: "no_next_hop"},
		{Name: "too big for the link", Packet: w.packet6(slim4, 1000), Change: nil, Want: "too_big"},
		{Name: "too big for the IPv6 link", Packet: w.packet4(slim6, 1280), Change: nil, Want: "too_big"},
		{Name: "too big for IPv6 without DF", Packet: w.packet4(udp, 1241), Change: translatebpftest.Header(6, 0), Want: "too_big"},
		{Name: "of an unknown client", Packet: w.packet6(udp, 40), Change: translatebpftest.From6("2001:db8:3::5"), Want: "no_client"},
		{Name: "to a free port of the pool", Packet: w.packet4(udp, 40), Change: translatebpftest.Body(22, 200, 1), Want: "no_binding"},
		{Name: "segment of no connection", Packet: w.packet6(tcp, 40), Change: translatebpftest.Body(42, 200, 1), Want: "no_session"},
		{Name: "segment of no connection in IPv4", Packet: w.packet4(tcp, 40), Change: translatebpftest.Body(20, 200, 1), Want: "no_session"},
	}...) {
		for _, at := range translatebpftest.Hooks {
			t.Run(string(at)+"/"+tt.Name, func(t *testing.T) {
				ip := append([]byte{}, tt.Packet...)
				if tt.Change != nil {
					ip = tt.Change(ip)
				}
				frame := w.Frame(ip)
				verdict, out := w.translateAt(t, at, frame)
				want, counters := fastpath.Punt, map[string]uint64{}
				if tt.Want != "" {
					counters[tt.Want] = 1
				}
				if tt.Want == "bad_header_checksum" {
					want = fastpath.Drop
				}
				if diff := cmp.Diff(counters, w.counted(t)); diff != "" || verdict != want {
					t.Errorf("%s, want %s; counters (-want +got):\n%s", verdict, want, diff)
				}
				if string(out) != string(frame) {
					t.Errorf("it was changed:\n%x\n%x", frame, out)
				}
			})
		}
	}
	if c := w.table.Counts(); c.Sessions != 12 {
		t.Errorf("%d sessions are there, want the 12 of before", c.Sessions)
	}
}

// Special-purpose addresses that are forwarded are no reason to leave a packet, but for
// the well-known prefix.
func TestNAT64SpecialAddresses(t *testing.T) {
	w := newNATWorld(t)
	udp := usual(state.UDP)
	w.open(t, udp)
	for name, ip := range translatebpftest.SpecialPassed(w.packet6(udp, 40), w.packet4(udp, 40)) {
		for _, at := range translatebpftest.Hooks {
			w.translateAt(t, at, w.Frame(ip))
			if c := w.counted(t); c["illegal_address"]+c["well_known_prefix_non_global"] != 0 {
				t.Errorf("%s, %s: %v", at, name, c)
			}
		}
	}
	for _, row := range special.IPv4 {
		for _, a := range testutil.Ends(row.Prefix) {
			for _, at := range translatebpftest.Hooks {
				w.translateAt(t, at, w.Frame(translatebpftest.To6("64:ff9b::"+a.String())(w.packet6(udp, 40))))
				c := w.counted(t)
				left := c["illegal_address"]+c["well_known_prefix_non_global"] != 0
				if want := !special.Global4(a.As4()) || netip.MustParsePrefix("192.0.0.0/24").Contains(a); left != want {
					t.Errorf("%s, %s %s by the well-known prefix: %v", at, row.Name, a, c)
				}
			}
		}
	}
}

// Frames for others, and by devices that are not served, are not looked at.
func TestNAT64LeavesOthers(t *testing.T) {
	w := newNATWorld(t)
	f := usual(state.UDP)
	w.open(t, f)
	for _, ip := range [][]byte{w.packet6(f, 40), w.packet4(f, 40)} {
		frame := w.Frame(ip)
		frame[5]++
		for _, at := range translatebpftest.Hooks {
			if verdict, _ := w.translateAt(t, at, frame); verdict != fastpath.Punt {
				t.Errorf("at %s: %s", at, verdict)
			}
		}
		w.fast.RemoveDevice(1)
		w.fast.RemoveDevice(w.Ports[0].Index)
		for _, at := range translatebpftest.Hooks {
			if verdict, _ := w.translateAt(t, at, w.Frame(ip)); verdict != fastpath.Punt {
				t.Errorf("not served, at %s: %s", at, verdict)
			}
		}
		w.arriveBy(t, false)
		if err := w.fast.SetDevice(fastpath.Device{Index: w.Ports[0].Index, MAC: w.Ports[0].MAC, Frames: true, Packets: true}); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.counted(t); len(got) != 0 {
		t.Errorf("counted: %v", got)
	}
}

// Traffic class and TOS by the settings.
func TestNAT64ClassSettings(t *testing.T) {
	w := newNATWorld(t, func(s *nat64bpf.Settings, codec *translate.Settings) {
		s.ZeroClass, s.FixedTOS, s.TOS = true, true, 0x48
		codec.ZeroTrafficClass, codec.FixedTOS, codec.TOS = true, true, 0x48
	})
	f := usual(state.UDP)
	w.open(t, f)
	for _, at := range translatebpftest.Hooks {
		w.forwards(t, at, translatebpftest.Put(0, 0x6b, 0x90)(w.packet6(f, 40)), translate.Binding{Outer: w.to4(f)}, "to4_forwarded")
		w.forwards(t, at, translatebpftest.Header(1, 0xb9)(w.packet4(f, 40)), translate.Binding{Outer: w.to6(f)}, "to6_forwarded")
	}
}

// A frame whose checksum a local sender left to hardware gets a whole one; by a wire it
// stays as wrong as it is.
func TestNAT64FinishesChecksums(t *testing.T) {
	w := newNATWorld(t)
	for _, transport := range transports[:2] {
		f := usual(transport)
		w.open(t, f)
		for _, n := range []int{20, 101, 1400} {
			for _, tt := range []struct {
				whole  []byte
				to     translate.Endpoints
				reason string
			}{
				{w.packet6(f, n), w.to4(f), "to4_forwarded"},
				{w.packet4(f, n), w.to6(f), "to6_forwarded"},
			} {
				partial := translatebpftest.Half(append([]byte{}, tt.whole...))
				w.arriveBy(t, true)
				_, out := w.translateAt(t, translatebpftest.InXDP, w.Frame(partial))
				w.equal(t, out, tt.whole, translate.Binding{Outer: tt.to})
				w.arriveBy(t, false)
				_, out = w.translateAt(t, translatebpftest.InXDP, w.Frame(partial))
				w.equal(t, out, partial, translate.Binding{Outer: tt.to})
			}
		}
	}
}

// A packet makes its session, from either side, and is translated by it.
func TestNAT64MakesSessions(t *testing.T) {
	w := newNATWorld(t)
	client := translatebpftest.ClientAddr.As16()
	var s state.Subscriber
	if o := w.table.MakeSubscriber(&client, translatebpftest.PoolAddr.As4(), 0, &s); o != state.Made {
		t.Fatal(o)
	}
	var block state.Block
	if o := w.table.Lease(&s, state.UDP, 1, 1, &block); o != state.Made {
		t.Fatal(o)
	}
	for _, at := range translatebpftest.Hooks {
		for _, transport := range transports {
			f := usual(transport)
			if at == translatebpftest.InTC {
				f.client = netip.MustParseAddr("2001:db8:1::7")
			}
			six := w.packet6(f, 40)
			if transport == state.TCP {
				six = translatebpftest.Body(53, 2)(six)
			}
			verdict, out := w.translateAt(t, at, w.Frame(six))
			if verdict != fastpath.Forward {
				t.Fatalf("%s at %s: %s, %v", transport, at, verdict, w.counted(t))
			}
			var b state.Binding
			if !w.table.FindBinding6(&state.Inside{Client: f.client.As16(), Port: translatebpftest.ClientPort, Transport: transport}, &b) {
				t.Fatalf("%s at %s: nothing is bound", transport, at)
			}
			f.poolPort = b.PoolPort
			w.equal(t, out, six, translate.Binding{Outer: w.to4(f)})
			// Another server, which the client has not written to.
			f.peer = netip.MustParseAddr("198.51.100.99")
			four := w.packet4(f, 40)
			if transport == state.TCP {
				four = translatebpftest.Body(33, 2)(four)
			}
			if _, out = w.translateAt(t, at, w.Frame(four)); len(out) == 0 {
				t.Fatal("nothing left")
			}
			w.equal(t, out, four, translate.Binding{Outer: w.to6(f)})
		}
	}
	want := map[string]uint64{"to4_forwarded": 6, "to6_forwarded": 6}
	if diff := cmp.Diff(want, w.counted(t)); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
	if c := w.table.Counts(); c.Sessions != 12 || c.Bindings != 6 {
		t.Errorf("%d sessions and %d bindings, want 12 and 6", c.Sessions, c.Bindings)
	}
}
