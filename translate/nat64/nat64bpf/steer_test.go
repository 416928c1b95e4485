// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf_test

import (
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
	"github.com/isthmus-net/isthmus/translate/translatebpf/translatebpftest"
)

// Of the packets to the host's own address those of the pool's ports go to the TUN device,
// with one hop less, and all others stay the host's.
func TestNAT64Steers(t *testing.T) {
	w := newNATWorld(t)
	own := func(transport state.Transport) flow {
		return flow{transport: transport, client: translatebpftest.ClientAddr, pool: translatebpftest.OwnAddr, peer: translatebpftest.ServerAddr, poolPort: translatebpftest.OwnPort}
	}
	tcp, udp, icmp := own(state.TCP), own(state.UDP), own(state.ICMP)
	icmp.client = netip.MustParseAddr("2001:db8:1::6")
	w.open(t, icmp)
	host, ping := udp, icmp
	host.poolPort, ping.poolPort = 53, translatebpftest.OwnPort+1
	fleeting := w.ping(t, translatebpftest.OwnAddr)
	reply := translatebpftest.Body(20, 0)
	options := func(ip []byte) []byte { // two words of no operation
		ip = append(append(append([]byte{}, ip[:20]...), 1, 1, 1, 1, 1, 1, 1, 1), ip[20:]...)
		ip[3] += 8
		return translatebpftest.Header(0, 0x47)(ip)
	}
	for _, tt := range []struct {
		name   string
		packet []byte
		change translatebpftest.Change
		steer  bool
	}{
		{"TCP", w.packet4(tcp, 40), nil, true},
		{"UDP", w.packet4(udp, 40), nil, true},
		{"echo reply", w.packet4(icmp, 40), reply, true},
		{"echo request to a static identifier", w.packet4(icmp, 40), nil, true},
		{"reply to a client's ping", w.packet4(fleeting, 40), reply, true},
		{"UDP with options", w.packet4(udp, 40), options, true},
		{"UDP without a checksum", w.packet4(udp, 40), translatebpftest.Put(26, 0, 0), true},
		{"with one hop left", w.packet4(udp, 40), translatebpftest.Header(8, 1), true},
		{"wrong header checksum", w.packet4(udp, 40), translatebpftest.Put(10, 1, 2), true},
		{"error about TCP", w.errorTo6(tcp, 3, 1, 0, w.sent4(tcp, 40)), nil, true},
		{"error about UDP", w.errorTo6(udp, 11, 0, 0, w.sent4(udp, 40)), nil, true},
		{"error about a ping", w.errorTo6(icmp, 12, 0, 0, w.sent4(icmp, 40)), nil, true},
		{"error about a packet with options", w.errorTo6(udp, 3, 1, 0, options(w.sent4(udp, 40))), nil, true},
		{"error about a first fragment", w.errorTo6(udp, 3, 1, 0, translatebpftest.Header(6, 0x20)(w.sent4(udp, 40))), nil, true},
		{"first port", w.packet4(udp, 40), translatebpftest.Body(22, 20000>>8, 20000&255), true},
		{"last port", w.packet4(udp, 40), translatebpftest.Body(22, 29999>>8, 29999&255), true},

		{"port below", w.packet4(udp, 40), translatebpftest.Body(22, 19999>>8, 19999&255), false},
		{"port above", w.packet4(udp, 40), translatebpftest.Body(22, 30000>>8, 30000&255), false},
		{"port of the host", w.packet4(host, 40), nil, false},
		{"ping of the host", w.packet4(ping, 40), nil, false},
		{"ping of the host, by an identifier outside of the range", w.packet4(icmp, 40), translatebpftest.Body(24, 19999>>8, 19999&255), false},
		{"ping of the host, by an identifier that a client has for a while", w.packet4(fleeting, 40), nil, false},
		{"reply to the host", w.packet4(icmp, 40), translatebpftest.Body(20, 0, 0, 0, 0, 0, 9), false},
		{"reply to the host, by an identifier of the range", w.packet4(ping, 40), reply, false},
		{"error about a ping of the host", w.errorTo6(ping, 12, 0, 0, w.sent4(ping, 40)), nil, false},
		{"timestamp", w.packet4(icmp, 40), translatebpftest.Body(20, 13), false},
		{"error about what the host sent", w.errorTo6(host, 3, 3, 0, w.sent4(host, 40)), nil, false},
		{"error about what another sent", w.errorTo6(udp, 3, 3, 0, translatebpftest.Put(15, 9)(w.sent4(udp, 40))), nil, false},
		{"error about a later fragment", w.errorTo6(udp, 3, 3, 0, translatebpftest.Header(6, 0, 9)(w.sent4(udp, 40))), nil, false},
		{"error about little", w.errorTo6(udp, 3, 3, 0, w.sent4(udp, 40)[:24]), nil, false},
		{"another protocol", w.packet4(udp, 40), translatebpftest.Header(9, 47), false},
		{"routed part of the pool", w.packet4(usual(state.UDP), 40), nil, false},
		{"no hop left", w.packet4(udp, 40), translatebpftest.Header(8, 0), false},
		{"later fragment of nothing", w.packet4(udp, 40), translatebpftest.Header(6, 0, 9), false},
		{"header alone", w.packet4(udp, 40)[:20], nil, false},
		{"IPv6", w.packet6(udp, 40), nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ip := append([]byte{}, tt.packet...)
			if tt.change != nil {
				ip = tt.change(ip)
			}
			w.steers(t, ip, tt.steer)
		})
	}
}

// steers fails unless a packet is steered, or left.
func (w *natWorld) steers(t *testing.T, ip []byte, want bool) {
	t.Helper()
	frame := w.Frame(ip)
	verdict, out := w.Run(t, runtest.InTC, fastpath.Programs{Ingress: w.fast.Steer()}, frame)
	wantVerdict, left := fastpath.Punt, append([]byte{}, ip...)
	if want {
		wantVerdict = fastpath.Forward
		wrong := left[10] == 1 && left[11] == 2
		left[8]--
		if left = translatebpftest.Seal4(left); wrong {
			left[10], left[11] = 2, 2 // what the sum gains, and wrong as before
		}
	}
	if verdict != wantVerdict || string(out[14:]) != string(left) {
		t.Errorf("%s, want %s\nleft %x\nwant %x", verdict, wantVerdict, out[14:], left)
	}
}

// Later fragments follow their first one, of the same packet alone.
func TestNAT64SteersFragments(t *testing.T) {
	w := newNATWorld(t)
	own := flow{transport: state.UDP, client: translatebpftest.ClientAddr, pool: translatebpftest.OwnAddr, peer: translatebpftest.ServerAddr, poolPort: translatebpftest.OwnPort}
	w.open(t, own)
	host, unbound := own, own
	host.poolPort, unbound.poolPort = 53, translatebpftest.OwnPort+1
	first, later := translatebpftest.Header(6, 0x20), translatebpftest.Header(6, 0, 9)
	w.steers(t, later(w.packet4(own, 40)), false)
	w.steers(t, first(w.packet4(own, 40)), true)
	w.steers(t, later(w.packet4(own, 40)), true)
	w.steers(t, translatebpftest.Header(6, 0x20, 9)(w.packet4(own, 40)), true)
	w.steers(t, translatebpftest.Header(5, 0x35)(later(w.packet4(own, 40))), false)
	w.steers(t, translatebpftest.Header(9, 6)(later(w.packet4(own, 40))), false)
	w.steers(t, translatebpftest.From4("198.51.100.8")(later(w.packet4(own, 40))), false)
	w.steers(t, translatebpftest.Header(5, 0x36)(first(w.packet4(host, 40))), false)
	w.steers(t, translatebpftest.Header(5, 0x36)(later(w.packet4(host, 40))), false)
	w.steers(t, translatebpftest.Header(5, 0x37)(first(w.packet4(own, 40))), true)
	about := w.errorTo6(own, 3, 1, 0, w.sent4(own, 40))
	w.steers(t, translatebpftest.Header(5, 0x38)(first(about)), true)
	w.steers(t, translatebpftest.Header(5, 0x38)(later(about)), true)
	// Of a port that no one has nothing is kept, or anybody could push the packets of others out.
	for _, forged := range [][]byte{w.packet4(unbound, 40), w.errorTo6(unbound, 3, 1, 0, w.sent4(unbound, 40))} {
		w.steers(t, translatebpftest.Header(5, 0x39)(first(forged)), true)
		w.steers(t, translatebpftest.Header(5, 0x39)(later(forged)), false)
	}
	w.steers(t, translatebpftest.Header(5, 0x37)(later(w.packet4(own, 40))), true)
}

// While no one is there, or after that, the host has its packets.
func TestNAT64SteersNothingAsleep(t *testing.T) {
	w := newNATWorld(t)
	w.fast.Sleep()
	own := flow{transport: state.UDP, client: translatebpftest.ClientAddr, pool: translatebpftest.OwnAddr, peer: translatebpftest.ServerAddr, poolPort: translatebpftest.OwnPort}
	w.steers(t, w.packet4(own, 40), false)
}

// ping binds an identifier of a pool address as the ping of a client does.
func (w *natWorld) ping(t *testing.T, pool netip.Addr) flow {
	t.Helper()
	client := netip.MustParseAddr("2001:db8:77::1")
	prefix := netip.PrefixFrom(client, 64).Masked().Addr().As16()
	var s state.Subscriber
	if o := w.table.MakeSubscriber(&prefix, pool.As4(), 8, &s); !o.OK() {
		t.Fatalf("client: %s", o)
	}
	var block state.Block
	if o := w.table.Lease(&s, state.ICMP, 1, 1, &block); !o.OK() {
		t.Fatalf("block: %s", o)
	}
	var b state.Binding
	in := state.Inside{Client: client.As16(), Port: translatebpftest.ClientPort, Transport: state.ICMP}
	if o := w.table.NewBinding(&s, in, state.Wish{}, 1, &b); !o.OK() {
		t.Fatalf("binding: %s", o)
	}
	return flow{transport: state.ICMP, client: client, pool: pool, peer: translatebpftest.ServerAddr, poolPort: b.PoolPort}
}
