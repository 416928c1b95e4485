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
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/internal/packet"
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
		for _, at := range runtest.Hooks {
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
func (w *natWorld) forwards(t *testing.T, at runtest.Hook, ip []byte, b translate.Binding, reason string) {
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
			at := runtest.Hooks[i%2]
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

// Traffic class and TOS by the settings.
func TestNAT64ClassSettings(t *testing.T) {
	w := newNATWorld(t, func(s *nat64bpf.Settings, codec *translate.Settings) {
		s.ZeroClass, s.FixedTOS, s.TOS = true, true, 0x48
		codec.ZeroTrafficClass, codec.FixedTOS, codec.TOS = true, true, 0x48
	})
	f := usual(state.UDP)
	w.open(t, f)
	for _, at := range runtest.Hooks {
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
				_, out := w.translateAt(t, runtest.InXDP, w.Frame(partial))
				w.equal(t, out, tt.whole, translate.Binding{Outer: tt.to})
				w.arriveBy(t, false)
				_, out = w.translateAt(t, runtest.InXDP, w.Frame(partial))
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
	for _, at := range runtest.Hooks {
		for _, transport := range transports {
			f := usual(transport)
			if at == runtest.InTC {
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
