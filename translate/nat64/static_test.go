// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

func static(t testing.TB, transport, inside, outside string) Static {
	t.Helper()
	s := Static{Inside: netip.MustParseAddrPort(inside), Outside: netip.MustParseAddrPort(outside)}
	for s.Transport.String() != transport {
		if s.Transport++; s.Transport >= state.Transports {
			t.Fatalf("no transport %s", transport)
		}
	}
	return s
}

// TestStatic: bindings of the operator need no session, and go by the operator alone (RFC
// 6146 section 3.1).
func TestStatic(t *testing.T) {
	for _, tt := range []struct {
		transport string
		proto     byte
		in, out   []byte
	}{
		{"udp", udpProto, udpMsg(99, 8080, 4), udpMsg(99, 80, 4)},
		{"tcp", tcpProto, tcpMsg(99, 8080, flagSYN, 0), tcpMsg(99, 80, flagSYN, 0)},
		{"icmp", icmpProto, echoMsg(8, 8080, 4), echoMsg(128, 80, 4)},
	} {
		t.Run(tt.transport, func(t *testing.T) {
			b := engine(t, nil)
			s := static(t, tt.transport, "["+clientA+"]:80", poolIP+":8080")
			for range 2 {
				if err := b.AddStatic(s); err != nil {
					t.Fatal(err)
				}
			}
			b.pass(24 * time.Hour)
			proto6 := tt.proto
			if proto6 == icmpProto {
				proto6 = icmp6Proto
			}
			b.wants(b.in(pkt{src: server4, dst: poolIP, proto: tt.proto, payload: tt.in}),
				pkt{src: server6, dst: clientA, proto: proto6, hop: 63, payload: tt.out})
			b.pass(3 * time.Hour)
			if n := b.Engine.Sizes(); n.Sessions != 0 || n.Bindings != 1 {
				t.Errorf("sizes %+v; want the binding alone", n)
			}
			if err := b.RemoveStatic(s, b.now, &b.out); err != nil {
				t.Fatal(err)
			}
			if n := b.Engine.Sizes(); n.Bindings != 0 {
				t.Errorf("sizes %+v after removal", n)
			}
		})
	}
}

func TestStaticRefused(t *testing.T) {
	b := engine(t, nil)
	if err := b.AddStatic(static(t, "udp", "["+clientA+"]:80", poolIP+":8080")); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]Static{
		"outside of pool4":       static(t, "udp", "["+clientA+"]:81", "192.0.2.9:8080"),
		"port outside of pool4":  static(t, "udp", "["+clientA+"]:81", poolIP+":80"),
		"outside side taken":     static(t, "udp", "["+clientB+"]:80", poolIP+":8080"),
		"inside side taken":      static(t, "udp", "["+clientA+"]:80", poolIP+":8081"),
		"inside in pool6":        static(t, "udp", "["+server6+"]:80", poolIP+":8082"),
		"port 0":                 static(t, "udp", "["+clientA+"]:0", poolIP+":8083"),
		"families the other way": static(t, "udp", poolIP+":8084", "["+clientA+"]:82"),
	} {
		if err := b.AddStatic(s); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	dynamic := strconv.Itoa(int(b.openUDP(clientA, 1500, server6)))
	for name, s := range map[string]Static{
		"of another inside":       static(t, "udp", "["+clientB+"]:80", poolIP+":8080"),
		"of another inside port":  static(t, "udp", "["+clientA+"]:81", poolIP+":8080"),
		"of another outside port": static(t, "udp", "["+clientA+"]:80", poolIP+":8081"),
		"of another transport":    static(t, "tcp", "["+clientA+"]:80", poolIP+":8080"),
		"that is dynamic":         static(t, "udp", "["+clientA+"]:1500", poolIP+":"+dynamic),
		"without a port":          static(t, "udp", "["+clientA+"]:0", poolIP+":8080"),
	} {
		if err := b.RemoveStatic(s, b.now, &b.out); err == nil {
			t.Errorf("removed a binding %s", name)
		}
	}
	if n := b.Engine.Sizes(); n.Bindings != 2 || n.Sessions != 1 {
		t.Errorf("sizes %+v, want both bindings and the session", n)
	}
}
