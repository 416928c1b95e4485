// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf_test

import (
	"encoding/binary"
	"fmt"
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

// errorTo6 makes an ICMP error of a router about a packet that left to the flow's server:
// type, code, second word, and as much of the packet as is quoted.
func (w *natWorld) errorTo6(f flow, typ, code byte, word uint32, quote []byte) []byte {
	m := binary.BigEndian.AppendUint32([]byte{typ, code, 0, 0}, word)
	m = append(m, quote...)
	ip := []byte{0x45, 0xc0, 0, 0, 0, 7, 0, 0, 60, 1, 0, 0}
	binary.BigEndian.PutUint16(ip[2:], uint16(20+len(m)))
	ip = append(append(ip, translatebpftest.RouterAddr4.AsSlice()...), f.pool.AsSlice()...)
	return translatebpftest.Seal4(translatebpftest.Seal(append(ip, m...)))
}

// errorTo4 is the same of an IPv6 router, about a packet to the flow's client.
func (w *natWorld) errorTo4(f flow, typ, code byte, word uint32, quote []byte) []byte {
	m := binary.BigEndian.AppendUint32([]byte{typ, code, 0, 0}, word)
	m = append(m, quote...)
	ip := packet.AppendIPv6Header(nil, 58, 60, len(m), translatebpftest.RouterAddr6, w.peer6(f))
	return translatebpftest.Seal(append(ip, m...))
}

// sent4 is the packet of n bytes of transport that left to the flow's server.
func (w *natWorld) sent4(f flow, n int) []byte {
	var out packet.Batch
	b := translate.Binding{Outer: w.to4(f)}
	w.trans.IPv6Bound(w.packet6(f, n), &b, translate.Path{}, &out)
	return out.IP[0]
}

// sent6 is the packet that left to the flow's client.
func (w *natWorld) sent6(f flow, n int) []byte {
	var out packet.Batch
	b := translate.Binding{Outer: w.to6(f)}
	w.trans.IPv4Bound(w.packet4(f, n), &b, translate.Path{}, &out)
	return out.IP[0]
}

// errorBinding6 and errorBinding4 are what an error about the flow becomes.
func (w *natWorld) errorBinding6(f flow) translate.Binding {
	inner := translate.Endpoints{Src: f.client, Dst: w.peer6(f), Ports: true, SrcPort: translatebpftest.ClientPort, DstPort: translatebpftest.ServerPort}
	return translate.Binding{Outer: translate.Endpoints{Src: w.prefix[f.prefix].Embed(translatebpftest.RouterAddr4), Dst: f.client}, Inner: inner}
}

func (w *natWorld) errorBinding4(f flow) translate.Binding {
	inner := translate.Endpoints{Src: f.peer, Dst: f.pool, Ports: true, SrcPort: translatebpftest.ServerPort, DstPort: f.poolPort}
	if f.transport == state.ICMP {
		inner.SrcPort = f.poolPort
	}
	return translate.Binding{Outer: translate.Endpoints{Src: f.pool, Dst: f.peer}, Inner: inner}
}

// errors gives an error to a hook: what the codec translates must leave so, all else as it
// came.
func (w *natWorld) errors(t *testing.T, at runtest.Hook, ip []byte, b translate.Binding, want string) {
	t.Helper()
	verdict, out := w.translateAt(t, at, w.Frame(ip))
	if diff := cmp.Diff(map[string]uint64{want: 1}, w.counted(t)); diff != "" {
		t.Fatalf("%s; counters (-want +got):\n%s", verdict, diff)
	}
	if verdict == fastpath.Forward {
		w.equal(t, out, ip, b)
	} else if string(out) != string(w.Frame(ip)) {
		t.Errorf("it was changed:\n%x\n%x", w.Frame(ip), out)
	}
}

// All types, codes and pointers of errors, with quoted packets of each transport.
func TestNAT64Errors(t *testing.T) {
	w := newNATWorld(t)
	for _, transport := range transports {
		w.open(t, usual(transport))
	}
	words := []uint32{0, 1500, 1 << 24}
	for pointer := range uint32(48) {
		words = append(words, pointer, pointer<<24)
	}
	for _, at := range runtest.Hooks {
		for i, transport := range transports {
			f := usual(transport)
			quote4, quote6 := w.sent4(f, 24), w.sent6(f, 24)
			for typ := range byte(16) {
				for code := range byte(17) {
					some := words[:3]
					if typ == 4 || typ == 12 {
						some = words
					}
					for _, word := range some {
						if i != int(code)%3 && code > 4 {
							continue // a third of them is enough
						}
						w.matrix(t, at, w.errorTo6(f, typ, code, word, quote4), w.errorBinding6(f))
						w.matrix(t, at, w.errorTo4(f, typ, code, word, quote6), w.errorBinding4(f))
						if t.Failed() {
							t.Fatalf("at %s, %s: type %d code %d word %#x", at, transport, typ, code, word)
						}
					}
				}
			}
		}
	}
}

// matrix holds one error against the codec: what that translates leaves, but for a router
// that reports no MTU and an RFC 4884 length; what it drops stays.
func (w *natWorld) matrix(t *testing.T, at runtest.Hook, ip []byte, b translate.Binding) {
	t.Helper()
	var batch packet.Batch
	path := translate.Path{MTU4: 1500, MTU6: 1500}
	m := ip[20:]
	var known bool
	if ip[0]>>4 == 4 {
		known = w.trans.IPv4Bound(ip, &b, path, &batch).Verdict == translate.Translated
		known = known && m[5] == 0 && !(m[0] == 3 && m[1] == 4 && m[6]|m[7] == 0)
		known = known && (m[0] == 3 || m[0] == 11 || m[0] == 12)
	} else {
		m = ip[40:]
		known = m[0] >= 1 && m[0] <= 4 && w.trans.IPv6Bound(ip, &b, path, &batch).Verdict == translate.Translated
		known = known && (m[4] == 0 || m[0] == 2 || m[0] == 4)
	}
	verdict, out := w.translateAt(t, at, w.Frame(ip))
	if (verdict == fastpath.Forward) != known {
		t.Errorf("%s, and the codec translates: %v (%v)\n%x", verdict, known, w.counted(t), ip)
		return
	}
	if known {
		w.equal(t, out, ip, b)
	} else if string(out) != string(w.Frame(ip)) {
		t.Errorf("it was changed:\n%x\n%x", w.Frame(ip), out)
	}
}

// Quoted packets of all sizes, up to what an error may hold, and odd ones.
func TestNAT64QuotedPackets(t *testing.T) {
	w := newNATWorld(t)
	for _, transport := range transports {
		w.open(t, usual(transport))
		f := usual(transport)
		f.pool, f.poolPort, f.client = translatebpftest.OwnAddr, translatebpftest.OwnPort, netip.MustParseAddr("2001:db8:1::6")
		w.open(t, f)
	}
	for _, transport := range transports {
		f := usual(transport)
		type row struct {
			name        string
			four, six   func() []byte
			want, want6 string
		}
		rows := []row{{"own address", func() []byte {
			f := f
			f.pool, f.poolPort, f.client = translatebpftest.OwnAddr, translatebpftest.OwnPort, netip.MustParseAddr("2001:db8:1::6")
			return w.errorTo6(f, 3, 1, 0, w.sent4(f, 30))
		}, nil, "to6_forwarded", ""}}
		for _, quoted := range []int{8, 9, 16, 17, 18, 20, 21, 100} {
			rows = append(rows, row{fmt.Sprintf("%d bytes", quoted),
				func() []byte { return w.errorTo6(f, 3, 1, 0, w.sent4(f, 600)[:20+quoted]) },
				func() []byte { return w.errorTo4(f, 1, 4, 0, w.sent6(f, 600)[:40+quoted]) },
				"to6_forwarded", "to4_forwarded"})
		}
		rows = append(rows,
			row{"as large as may be", func() []byte { return w.errorTo6(f, 11, 0, 0, w.sent4(f, 1400)[:1240-28]) },
				func() []byte { return w.errorTo4(f, 3, 0, 0, w.sent6(f, 1400)[:616-48]) }, "to6_forwarded", "to4_forwarded"},
			row{"larger", func() []byte { return w.errorTo6(f, 11, 0, 0, w.sent4(f, 1400)[:1241-28]) },
				func() []byte { return w.errorTo4(f, 3, 0, 0, w.sent6(f, 1400)[:617-48]) }, "too_big", "too_big"},
			row{"7 bytes", func() []byte { return w.errorTo6(f, 3, 1, 0, w.sent4(f, 600)[:27]) },
				func() []byte { return w.errorTo4(f, 1, 4, 0, w.sent6(f, 600)[:47]) }, "icmp_inner", "icmp_inner"},
			row{"wrong checksum", func() []byte { return translatebpftest.Put(60, 0xaa)(w.errorTo6(f, 3, 1, 0, w.sent4(f, 100))) },
				func() []byte { return translatebpftest.Put(100, 0xaa)(w.errorTo4(f, 1, 4, 0, w.sent6(f, 100))) }, "bad_icmp_checksum", "bad_icmp_checksum"},
			row{"wrong header checksum", func() []byte { return translatebpftest.Put(8, 9)(w.errorTo6(f, 3, 1, 0, w.sent4(f, 100))) },
				nil, "bad_header_checksum", ""},
			row{"one hop left", func() []byte { return translatebpftest.Header(8, 1)(w.errorTo6(f, 3, 1, 0, w.sent4(f, 100))) },
				func() []byte { return translatebpftest.Put(7, 1)(w.errorTo4(f, 1, 4, 0, w.sent6(f, 100))) }, "hop_limit_exceeded", "hop_limit_exceeded"},
			row{"two hops left", func() []byte { return translatebpftest.Header(8, 2)(w.errorTo6(f, 3, 1, 0, w.sent4(f, 100))) },
				func() []byte { return translatebpftest.Put(7, 2)(w.errorTo4(f, 1, 4, 0, w.sent6(f, 100))) }, "to6_forwarded", "to4_forwarded"},
			row{"extension", func() []byte { return w.errorTo6(f, 11, 0, 32<<16, w.sent4(f, 200)) },
				func() []byte { return w.errorTo4(f, 3, 0, 16<<24, w.sent6(f, 200)) }, "icmp_inner", "icmp_inner"},
			row{"quoted fragment", func() []byte { return w.errorTo6(f, 11, 1, 0, translatebpftest.Header(6, 0x20)(w.sent4(f, 100))) },
				func() []byte { return w.errorTo4(f, 3, 1, 0, translatebpftest.Put(6, 44)(w.sent6(f, 100))) }, "icmp_inner", "icmp_inner"},
			row{"quoted options", func() []byte { return w.errorTo6(f, 11, 0, 0, translatebpftest.Header(0, 0x46)(w.sent4(f, 100))) },
				func() []byte { return w.errorTo4(f, 3, 0, 0, translatebpftest.Put(6, 60)(w.sent6(f, 100))) }, "icmp_inner", "icmp_inner"},
			row{"quoted packet of nobody", func() []byte {
				return w.errorTo6(f, 11, 0, 0, translatebpftest.Put(16, 198, 51, 100, 9)(w.sent4(f, 100)))
			},
				func() []byte { return w.errorTo4(f, 3, 0, 0, translatebpftest.Put(39, 9)(w.sent6(f, 100))) }, "no_session", "no_session"},
			row{"quoted packet of another address", func() []byte {
				return w.errorTo6(f, 11, 0, 0, translatebpftest.Put(12, 192, 0, 2, 140)(w.sent4(f, 100)))
			},
				func() []byte { return w.errorTo4(f, 3, 0, 0, translatebpftest.Put(23, 9)(w.sent6(f, 100))) }, "icmp_inner", "icmp_inner"},
			row{"quoted error", func() []byte {
				q := w.sent4(f, 100)
				q[9], q[20] = 1, 3
				return w.errorTo6(f, 11, 0, 0, q)
			}, func() []byte {
				q := w.sent6(f, 100)
				q[6], q[40] = 58, 1
				return w.errorTo4(f, 3, 0, 0, q)
			}, "icmp_inner", "icmp_inner"},
			row{"needs fragmentation", func() []byte { return w.errorTo6(f, 3, 4, 1400, w.sent4(f, 100)) },
				func() []byte { return w.errorTo4(f, 2, 0, 1400, w.sent6(f, 100)) }, "to6_forwarded", "to4_forwarded"},
			row{"needs much fragmentation", func() []byte { return w.errorTo6(f, 3, 4, 300, w.sent4(f, 100)) },
				func() []byte { return w.errorTo4(f, 2, 0, 40, w.sent6(f, 100)) }, "to6_forwarded", "to4_forwarded"},
			row{"fits links larger than ours", func() []byte { return w.errorTo6(f, 3, 4, 9000, w.sent4(f, 100)) },
				func() []byte { return w.errorTo4(f, 2, 0, 1<<31, w.sent6(f, 100)) }, "to6_forwarded", "to4_forwarded"},
			row{"no MTU", func() []byte { return w.errorTo6(f, 3, 4, 0, w.sent4(f, 100)) }, nil, "icmp_type", ""},
		)
		for _, at := range runtest.Hooks {
			for _, tt := range rows {
				t.Run(fmt.Sprintf("%s/%s/%s", at, transport, tt.name), func(t *testing.T) {
					b := w.errorBinding6(f)
					if tt.name == "own address" {
						own := f
						own.client, own.poolPort = netip.MustParseAddr("2001:db8:1::6"), translatebpftest.OwnPort
						b = w.errorBinding6(own)
					}
					w.errors(t, at, tt.four(), b, tt.want)
					if tt.six != nil {
						w.errors(t, at, tt.six(), w.errorBinding4(f), tt.want6)
					}
				})
			}
		}
	}
}

// An error about what the host has sent itself is the host's, and padding is no part of
// any.
func TestNAT64ErrorsOfTheHost(t *testing.T) {
	w := newNATWorld(t)
	f := usual(state.UDP)
	w.open(t, f)
	host := f
	host.pool, host.poolPort = translatebpftest.OwnAddr, 53
	for _, at := range runtest.Hooks {
		for _, ip := range [][]byte{
			w.errorTo6(host, 3, 3, 0, w.sent4(host, 40)),
			w.errorTo6(host, 3, 3, 0, w.sent4(host, 40)[:24]),
			w.errorTo6(flow{pool: netip.MustParseAddr("192.0.2.50")}, 3, 3, 0, w.sent4(host, 40)),
		} {
			if verdict, _ := w.translateAt(t, at, w.Frame(ip)); verdict != fastpath.Punt {
				t.Errorf("at %s: %s", at, verdict)
			}
			if got := w.counted(t); len(got) != 0 {
				t.Errorf("at %s counted: %v", at, got)
			}
		}
		for _, ip := range [][]byte{w.errorTo6(f, 3, 3, 0, w.sent4(f, 8)), w.errorTo4(f, 1, 4, 0, w.sent6(f, 8))} {
			b := w.errorBinding6(f)
			if ip[0]>>4 == 6 {
				b = w.errorBinding4(f)
			}
			_, out := w.translateAt(t, at, append(w.Frame(ip), 1, 2, 3, 4, 5))
			w.equal(t, out, ip, b)
		}
		w.counted(t)
	}
}

// The source of a translated error is the router, unless its address has no form in the
// prefix, or the settings want the address that the client sent to.
func TestNAT64ErrorSources(t *testing.T) {
	for _, tt := range []struct {
		name   string
		letter bool
		flow   flow
		router netip.Addr
	}{
		{"the router", false, usual(state.UDP), translatebpftest.RouterAddr4},
		{"by the letter", true, usual(state.UDP), translatebpftest.ServerAddr},
		{"not global", false, flow{state.UDP, translatebpftest.ClientAddr, translatebpftest.PoolAddr, translatebpftest.GlobalAddr, 1, translatebpftest.PoolPort}, translatebpftest.GlobalAddr},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newNATWorld(t, func(s *nat64bpf.Settings, _ *translate.Settings) { s.InnerSource = tt.letter })
			w.open(t, tt.flow)
			b := w.errorBinding6(tt.flow)
			b.Outer.Src = w.prefix[tt.flow.prefix].Embed(tt.router)
			for _, at := range runtest.Hooks {
				w.errors(t, at, w.errorTo6(tt.flow, 11, 0, 0, w.sent4(tt.flow, 40)), b, "to6_forwarded")
			}
		})
	}
}

// routerPools are the families in which pools stand for routers.
var routerPools = []struct{ four, six bool }{{}, {four: true}, {six: true}, {four: true, six: true}}

// The engine distinguishes the routers that router_pool4 stands for (RFC 6791); what the client
// says itself is the programs' still.
func TestNAT64ErrorsOfRouters(t *testing.T) {
	f := usual(state.UDP)
	for _, pool := range routerPools {
		w := newNATWorld(t, func(s *nat64bpf.Settings, _ *translate.Settings) { s.RouterPool4, s.RouterPool6 = pool.four, pool.six })
		w.open(t, f)
		want := "to4_forwarded"
		if pool.four {
			want = "icmp_type"
		}
		for _, at := range runtest.Hooks {
			ip := w.errorTo4(f, 3, 0, 0, w.sent6(f, 40))
			w.errors(t, at, ip, w.errorBinding4(f), want)
			near := f.client.As16()
			near[15] ^= 1
			w.errors(t, at, translatebpftest.Seal(translatebpftest.Body(8, near[:]...)(ip)), w.errorBinding4(f), want)
			w.errors(t, at, translatebpftest.Seal(translatebpftest.Body(8, f.client.AsSlice()...)(ip)), w.errorBinding4(f), "to4_forwarded")
		}
	}
}

// The same of IPv4 routers whose address the prefix may not represent, and router_pool6.
func TestNAT64ErrorsOfPrivateRouters(t *testing.T) {
	f := flow{state.UDP, translatebpftest.ClientAddr, translatebpftest.PoolAddr, translatebpftest.GlobalAddr, 1, translatebpftest.PoolPort}
	for _, pool := range routerPools {
		w := newNATWorld(t, func(s *nat64bpf.Settings, _ *translate.Settings) { s.RouterPool4, s.RouterPool6 = pool.four, pool.six })
		w.open(t, f)
		want := "to6_forwarded"
		if pool.six {
			want = "icmp_type"
		}
		b := w.errorBinding6(f)
		b.Outer.Src = w.prefix[f.prefix].Embed(translatebpftest.GlobalAddr)
		for _, at := range runtest.Hooks {
			w.errors(t, at, w.errorTo6(f, 11, 0, 0, w.sent4(f, 40)), b, want)
		}
	}
}

// While FTP control connections take a detour, the engine has what comes from private
// addresses, one of which the detour's are.
func TestNAT64ErrorsOfTheDetour(t *testing.T) {
	w := newNATWorld(t, func(s *nat64bpf.Settings, _ *translate.Settings) { s.Detour = true })
	f := usual(state.UDP)
	w.open(t, f)
	for _, at := range runtest.Hooks {
		ip := w.errorTo4(f, 1, 4, 0, w.sent6(f, 40))
		w.errors(t, at, ip, w.errorBinding4(f), "to4_forwarded")
		w.errors(t, at, translatebpftest.From6("fd00:64::5")(ip), w.errorBinding4(f), "detour")
	}
	f.transport = state.TCP
	ftp := w.packet6(f, 40)
	for _, at := range runtest.Hooks {
		verdict, _ := w.translateAt(t, at, w.Frame(translatebpftest.Body(42, 0, 21)(ftp)))
		if diff := cmp.Diff(map[string]uint64{"detour": 1}, w.counted(t)); diff != "" || verdict != fastpath.Punt {
			t.Errorf("a control connection: %s; counters (-want +got):\n%s", verdict, diff)
		}
	}
}

// Errors prolong nothing and change no state.
func TestNAT64ErrorsChangeNothing(t *testing.T) {
	w := newNATWorld(t)
	f := usual(state.TCP)
	w.open(t, f)
	key := state.Key6{Client: f.client.As16(), Peer: f.peer.As4(), ClientPort: translatebpftest.ClientPort, PeerPort: translatebpftest.ServerPort, Transport: state.TCP}
	var before, after state.Session
	if !w.table.Find6(&key, &before) || !w.table.Step(&before, state.V6Init, 0, before.Word.Stamp()-100) || !w.table.Find6(&key, &before) {
		t.Fatal("no session to begin with")
	}
	for _, at := range runtest.Hooks {
		w.errors(t, at, w.errorTo6(f, 3, 3, 0, w.sent4(f, 40)), w.errorBinding6(f), "to6_forwarded")
		w.errors(t, at, w.errorTo4(f, 1, 4, 0, w.sent6(f, 40)), w.errorBinding4(f), "to4_forwarded")
	}
	if !w.table.Find6(&key, &after) || after != before {
		t.Errorf("the session was %+v, is %+v", before, after)
	}
}
