// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/translate/gateway"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
	"github.com/isthmus-net/isthmus/translate/nat64"
)

// gate is a NAT64 of lines of a file, without a device and in virtual time.
type gate struct {
	*NAT64
	t   *testing.T
	now time.Time
	log bytes.Buffer
}

func gateOf(t *testing.T, lines string) *gate {
	t.Helper()
	text := "[[nat64]]\nfast_path = \"off\"\nkeep_state = false\n" + lines
	for k, line := range map[string]string{
		"pool6": `pool6 = ["2001:db8:64::/96"]`, "pool4": `pool4 = ["192.0.2.66"]`, "clients": `clients = ["2001:db8:1::/48"]`,
		"max_sessions": "max_sessions = 1024", "max_clients": "max_clients = 64",
	} {
		if !strings.Contains(text, "\n"+k+" = ") {
			text += "\n" + line
		}
	}
	g := &gate{t: t, now: time.Now()}
	var err error
	g.NAT64, err = New(*configtest.One(t, Role.Section, text).(*Settings), slog.New(slog.NewTextHandler(&g.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	g.own = gateway.Own{V4: netip.MustParseAddr("192.0.2.1"), V6: netip.MustParseAddr("2001:db8:6::1")}
	if err := g.openState(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.memory.free() })
	return g
}

// raw hands a packet in and returns what comes out.
func (g *gate) raw(ip []byte) (packets [][]byte) {
	var out nat64.Out
	g.handle(bytes.Clone(ip), g.now, &out)
	g.settled(&out)
	return out.IP
}

// in returns whether one packet of the other family comes out, and that.
func (g *gate) in(p gatewaytest.Packet) (one []byte, passes bool) {
	ip := p.Bytes()
	if out := g.raw(ip); len(out) == 1 && out[0][0]>>4 != ip[0]>>4 {
		return out[0], true
	}
	return nil, false
}

// pass lets time go by.
func (g *gate) pass(d time.Duration) (packets [][]byte) {
	end := g.now.Add(d)
	for e := g.engine.Load(); !e.Next().After(end); {
		var out nat64.Out
		if next := e.Next(); next.After(g.now) {
			g.now = next
		}
		e.Tick(g.now, &out)
		g.settled(&out)
		packets = append(packets, out.IP...)
	}
	g.now = end
	return packets
}

// dropped counts the drops for a reason.
func (g *gate) dropped(reason string) (n uint64) {
	g.eachDropped(func(r string, count uint64) {
		if r == reason {
			n = count
		}
	})
	return n
}

const (
	protoTCP, protoUDP, protoICMP, protoICMP6 = 6, 17, 1, 58
	syn, rst, fin, ack                        = 2, 4, 1, 16
	stranger4                                 = "198.51.100.9"
)

// up is a datagram of the client, and down one from a server to a port of the pool.
func up(port uint16) gatewaytest.Packet {
	return gatewaytest.Packet{Src: gatewaytest.Host6, Dst: gatewaytest.Server6, Proto: protoUDP, Payload: gatewaytest.UDP(port, 53, 4)}
}

func down(from string, port uint16) gatewaytest.Packet {
	return gatewaytest.Packet{Src: from, Dst: gatewaytest.Host4, Proto: protoUDP, Payload: gatewaytest.UDP(53, port, 4)}
}

// segment is one of the client's, and answer one to a port of the pool.
func segment(port uint16, flags byte) gatewaytest.Packet {
	return gatewaytest.Packet{Src: gatewaytest.Host6, Dst: gatewaytest.Server6, Proto: protoTCP, Payload: gatewaytest.TCP(port, 80, flags)}
}

func answer(from string, port uint16, flags byte) gatewaytest.Packet {
	return gatewaytest.Packet{Src: from, Dst: gatewaytest.Host4, Proto: protoTCP, Payload: gatewaytest.TCP(80, port, flags)}
}

// ping is a query of the client, and pong an answer to it.
func ping(id uint16) gatewaytest.Packet {
	return gatewaytest.Packet{Src: gatewaytest.Host6, Dst: gatewaytest.Server6, Proto: protoICMP6, Payload: gatewaytest.ICMP(128, 0, uint32(id)<<16)}
}

func pong(from string, id uint16) gatewaytest.Packet {
	return gatewaytest.Packet{Src: from, Dst: gatewaytest.Host4, Proto: protoICMP, Payload: gatewaytest.ICMP(0, 0, uint32(id)<<16)}
}

// bound is the port, or identifier, of a packet of the client behind the pool's address.
func (g *gate) bound(p gatewaytest.Packet) uint16 {
	g.t.Helper()
	out, ok := g.in(p)
	if !ok {
		g.t.Fatalf("it does not pass: %x", p.Bytes())
	}
	if p.Proto == protoICMP6 {
		return binary.BigEndian.Uint16(out[24:])
	}
	return binary.BigEndian.Uint16(out[20:])
}

// passes and stops say what becomes of a packet.
func (g *gate) passes(p gatewaytest.Packet) {
	g.t.Helper()
	if _, ok := g.in(p); !ok {
		g.t.Errorf("it does not pass: %x", p.Bytes())
	}
}

func (g *gate) stops(p gatewaytest.Packet) {
	g.t.Helper()
	if _, ok := g.in(p); ok {
		g.t.Errorf("it passes: %x", p.Bytes())
	}
}

// from has another client send it.
func from(client string, p gatewaytest.Packet) gatewaytest.Packet {
	p.Src = client
	return p
}

const otherHost, otherNet = "2001:db8:1::d", "2001:db8:1:2::c" // a host beside the client, and one of another client

// fragment is one of the client, from the middle of a packet.
func fragment(id uint16, offset int) gatewaytest.Packet {
	return gatewaytest.Packet{Src: gatewaytest.Host6, Dst: gatewaytest.Server6, Proto: protoUDP, ID: id, Offset: offset, More: true, Payload: make([]byte, 800)}
}

// synsGone has ten SYNs wait for one client, and returns how many gave way for a reason.
func synsGone(g *gate, reason string) int {
	port := g.bound(segment(1, syn))
	for i := range 10 {
		p := answer(stranger4, port, syn)
		p.Payload = gatewaytest.TCP(uint16(1000+i), port, syn)
		g.stops(p)
	}
	return int(g.dropped(reason))
}
