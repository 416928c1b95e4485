// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// FuzzHandle gives an engine with contexts of both versions datagrams, as they are or behind a
// header that leads them to a context.
func FuzzHandle(f *testing.F) {
	f.Add(uint8(0), uint8(1), []byte{0x32, 1, 0, 4, 0, 0, 0, 0, 0, 7, 0, 0})
	f.Add(uint8(1), uint8(2), defaultRA().packet())
	f.Add(uint8(2), uint8(0), defaultRA().packet())
	f.Add(uint8(3), uint8(1), []byte{20, 5})
	f.Add(uint8(3), uint8(1), []byte{1, 128})
	f.Fuzz(func(t *testing.T, way, plane uint8, b []byte) {
		w := newWorld(t, Settings{})
		key := w.attach(gtp.V1, gtp.PDPTypeIPv4v6)
		zero := attachment(gtp.V0, gtp.PDPTypeIPv6)
		zero.NSAPI = 9
		old, err := w.e.Attach(zero, w.now, &w.out)
		w.order(err)
		w.seen = len(w.out.UDP) - 1
		w.accept(nil)
		w.order(w.e.Update(key, gtp.QoS{}, w.now, &w.out))
		_, pending := w.out.UDP[len(w.out.UDP)-1], w.e.contexts[key].request.key.sequence
		w.clear()
		switch way % 4 {
		case 0:
			w.send(Socket(0, Plane(plane)%NumPlanes), theirs, b)
		case 1:
			w.down(key, b)
		case 2:
			w.down(old, b)
		case 3:
			h := gtp.Header{Version: gtp.V1, Type: gtp.MessageType(plane), HasSequence: true, Sequence: pending, TEID: w.info(key).TEIDControl}
			m, err := h.AppendTo(nil, len(b))
			if err != nil {
				return
			}
			w.send(Socket(0, PlaneControl), theirs, append(m, b...))
		}
		if len(w.out.UDP) > 2 || len(w.out.Links) != len(w.out.IP) {
			t.Errorf("one datagram gave %d, and %d packets for %d links", len(w.out.UDP), len(w.out.IP), len(w.out.Links))
		}
		for _, p := range w.out.IP {
			if v := p[0] >> 4; v != 4 && v != 6 {
				t.Errorf("delivered %x", p)
			}
		}
		w.e.Abandon(w.now, &w.out)
		w.empty()
	})
}

// FuzzUplink gives it packets of terminals.
func FuzzUplink(f *testing.F) {
	f.Add(udp4(four, host4, 53, 8))
	f.Add(udp6(six, host, 8))
	f.Add(packet.AppendICMPv6(nil, linkLocal, packet.AllRouters, 255, packet.ICMPv6RouterSolicitation, 0, make([]byte, 4)))
	f.Fuzz(func(t *testing.T, b []byte) {
		w := newWorld(t, Settings{})
		key := w.attach(gtp.V1, gtp.PDPTypeIPv4v6)
		w.advertise(key, defaultRA())
		w.clear()
		w.secondary(key, 6, nil)
		w.clear()
		w.e.HandleUE(1, b, w.now, &w.out)
		if len(w.out.UDP)+len(w.out.IP) > 1 { // it passes, or is answered
			t.Errorf("%d datagrams, %d packets", len(w.out.UDP), len(w.out.IP))
		}
	})
}

// FuzzInformation gives a terminal that has asked by DHCP the options of an answer.
func FuzzInformation(f *testing.F) {
	const server = "\x00\x02\x00\x03\x00\x03\x01"
	f.Add([]byte(server + "\x00\x17\x00\x10\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x53"))
	f.Add([]byte(server + "\x00\x18\x00\x0d\x03lab\x07example\x00\x00\x20\x00\x04\x00\x00\x00\x00\x00\x53\x00\x04\x00\x00\x00\x3c"))
	f.Add([]byte(server + "\x00\x0d\x00\x02\x00\x01"))
	f.Fuzz(func(t *testing.T, options []byte) {
		if len(options) > 1200 {
			return
		}
		w, key := informing(t, gtp.V1)
		w.due()
		q, _ := w.question()
		w.down(key, w.replied(q, 7, hex.EncodeToString(append(q.Payload()[12:12+22:12+22], options...))))
		i := w.info(key)
		if len(i.DNS) > maxServers || len(i.Domains) > maxDomains {
			t.Errorf("%+v", i)
		}
		for _, name := range i.Domains {
			if strings.ContainsAny(name, " \n\x00") || name == "" {
				t.Errorf("the search list has %q", name)
			}
		}
		w.e.Abandon(w.now, &w.out)
		w.empty()
	})
}

// FuzzPrefix gives a terminal that asks for a prefix the options of an answer to each of its messages.
func FuzzPrefix(f *testing.F) {
	for _, options := range []string{server1 + grant(), server1 + "0007 0001 ff" + leases(0, 0, leaseOf(whole, 1000, 2000, leavesOut)), server2 + leases(0, 0, "000d 0002 0003"), server1 + "0052 0004 0000003c"} {
		b, _ := hex.DecodeString(strings.ReplaceAll(options, " ", ""))
		f.Add(uint8(0), b)
		f.Add(uint8(1), b)
		f.Add(uint8(2), b)
	}
	f.Fuzz(func(t *testing.T, when uint8, options []byte) {
		if len(options) > 1200 {
			return
		}
		w, key := delegating(t, gtp.V1)
		a, kind := w.dueAsks(1), byte(2)
		if when%3 > 0 {
			w.replies(key, a, 2, server1+"0007 0001 ff"+grant())
			a, kind = w.asks(3), 7
		}
		if when%3 > 1 {
			w.replies(key, a, 7, server1+grant())
			a = w.dueAsks(5)
		}
		w.replies(key, a, kind, hex.EncodeToString(options))
		if len(w.out.UDP) > 1 || len(w.info(key).Delegated) > maxDelegated {
			t.Errorf("%d datagrams, %+v", len(w.out.UDP), w.info(key).Delegated)
		}
		for _, d := range w.info(key).Delegated {
			if !d.Prefix.IsValid() || d.Excluded.IsValid() && (d.Excluded.Bits() <= d.Prefix.Bits() || !d.Prefix.Overlaps(d.Excluded)) {
				t.Errorf("it has %+v", d)
			}
		}
		w.clear()
		for range 3 {
			if w.now = w.e.Next(); w.now.IsZero() {
				break
			}
			w.e.Tick(w.now, &w.out)
		}
		if len(w.out.UDP) > 6 {
			t.Errorf("%d datagrams in three steps", len(w.out.UDP))
		}
		w.e.Abandon(w.now, &w.out)
		w.empty()
	})
}
