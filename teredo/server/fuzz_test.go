// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
)

// FuzzEngine holds the promises of HandleUDP against any datagram from anywhere.
func FuzzEngine(f *testing.F) {
	for _, tt := range steady {
		f.Add(testutil.Unhex(f, tt.in), uint32(0xc6336407), uint16(40000), false)
	}
	f.Add(testutil.Unhex(f, "00010304"+"616263"+"deadbeef"+nonce+"00"+rsMiredoCone), uint32(0xc6336407), uint16(40000), true)
	f.Add(testutil.Unhex(f, bubble(0, linkRelay, peer)+"010411223344"), uint32(0xc0000237), uint16(3545), false)
	f.Add(testutil.Unhex(f, bubble(255, client, "20010000c00002630000f2273ffffd9c")), uint32(0xc6336407), uint16(40000), true)
	f.Add(testutil.Unhex(f, origin+bubble(255, native, "20010db8cb0071010000efff3f57fefd")), uint32(0xcb007101), uint16(3544), true)

	f.Fuzz(func(t *testing.T, payload []byte, ip uint32, port uint16, secondary bool) {
		e := newEngine(t, func(c *Config) {
			c.Prefixes = []netip.Prefix{teredo.Prefix, netip.MustParsePrefix("2001:db8::/32")}
			c.PerSource = ratelimit.PerSecond(1, 1)
			c.Keys = keys
		})
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(ip >> 24), byte(ip >> 16), byte(ip >> 8), byte(ip)}), port)
		local := Primary
		if secondary {
			local = Secondary
		}
		before := bytes.Clone(payload)
		var out packet.Batch
		e.HandleUDP(from, local, payload, now, &out)

		c := e.Counters()
		sum := c.Advertisements + c.Bubbles + c.ICMPv6ToClients + c.ToIPv6 + c.EchoReplies
		if got := len(out.UDP) + len(out.IP); got > 1 || uint64(got) != sum {
			t.Fatalf("%d packets sent and %d counted for one datagram", got, sum)
		}
		for _, n := range c.Dropped {
			sum += n
		}
		if sum != 1 || c.Received != 1 || c.Dropped[accepted] != 0 {
			t.Fatalf("the datagram is not counted once: %+v", c)
		}
		for _, d := range out.UDP {
			checkDatagram(t, e, before, d)
		}
		for _, p := range out.IP {
			checkNative(t, before, p, from)
		}
		if len(out.UDP)+len(out.IP) > 0 {
			out.Reset()
			e.HandleUDP(from, local, before, now, &out)
			if len(out.UDP)+len(out.IP) != 0 {
				t.Fatal("the same source got more than its rate")
			}
		}
	})
}

func checkDatagram(t *testing.T, e *Engine, in []byte, d packet.Datagram) {
	t.Helper()
	if len(d.Payload) > len(in)+MaxGrowth {
		t.Fatalf("%d bytes out for %d in", len(d.Payload), len(in))
	}
	if !e.cfg.Global.OK(d.To.Addr()) || d.To.Port() == 0 {
		t.Fatalf("sent to %v", d.To)
	}
	if d.To.Port() == e.cfg.Port && e.isOwn(d.To.Addr()) {
		t.Fatalf("sent to ourselves at %v", d.To)
	}
	if d.Socket != Primary && d.Socket != Secondary {
		t.Fatalf("sent from socket %d", d.Socket)
	}
	got, err := teredo.Parse(d.Payload)
	if err != nil {
		t.Fatalf("sent a payload that does not parse: %v", err)
	}
	request, err := teredo.Parse(in)
	if err != nil {
		t.Fatalf("answered what does not parse: %v", err)
	}
	_, err = teredo.ParseRouterAdvertisement(got.IPv6)
	if got.HasAuth != (request.HasAuth && err == nil) {
		t.Fatalf("authentication in the answer: %v, in the request: %v", got.HasAuth, request.HasAuth)
	}
	if k, known := e.keys[string(got.Auth.ClientID)]; known && got.HasAuth && !(k.key.Verify(&request) && k.key.Verify(&got)) {
		t.Fatal("a client with a key asked or was answered without it")
	}
	if got.HasAuth && (got.Auth.Nonce != request.Auth.Nonce || !bytes.Equal(got.Auth.ClientID, request.Auth.ClientID)) {
		t.Fatal("the answer repeats another nonce or identifier than the request's")
	}
}

func checkNative(t *testing.T, in []byte, p packet.IPv6, from netip.AddrPort) {
	t.Helper()
	if len(p) > len(in) || p.HopLimit() == 0 {
		t.Fatalf("%d bytes with hop limit %d to IPv6 for %d bytes in", len(p), p.HopLimit(), len(in))
	}
	if teredo.Mapped(p.SrcBytes()) != from {
		t.Fatalf("source %v to IPv6, sent from %v", p.Src(), from)
	}
}
