// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// FuzzEngine hands datagrams and packets of any octets to an engine that has contexts. Each
// step of the input is an octet that says what it is, one for the time that passes, one that
// chooses a context, two for the length, and the octets. Then all contexts are deleted, and
// nothing may be left.
func FuzzEngine(f *testing.F) {
	w := newWorld(f, nil)
	step := func(kind, wait, which byte, b []byte) []byte {
		return append([]byte{kind, wait, which, byte(len(b) >> 8), byte(len(b))}, b...)
	}
	v1 := gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: 77}
	v0 := gtp.Header{Version: gtp.V0, HasSequence: true, Sequence: 78, TID: gtp.MakeTID(testIMSI(9), 5)}
	for _, m := range []gtp.Message{
		w.createRequest(testIMSI(7), "dual", gtp.PDPTypeIPv4v6), w.updateRequest(0x7000), &gtp.DeleteRequest{NSAPI: 5},
		w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 1, 1))), &gtp.EchoRequest{}, &gtp.ErrorIndication{TEID: 0x1001, Address: sgsn},
		&gtp.DeleteResponse{Cause: gtp.CauseAccepted}, &gtp.EchoResponse{Recovery: 9}, infoChange(gtp.RATUTRAN, 7),
	} {
		f.Add(step(1, 1, 0, w.encode(v1, m)))
		f.Add(append(step(1, 9, 0x80, w.encode(v1, m)), step(1, 1, 0, w.encode(v1, m))...))
		f.Add(step(fuzzSubscribed+1, 1, 0, w.encode(v1, m)))
	}
	rich := w.createRequest(testIMSI(8), "dual", gtp.PDPTypeIPv4v6)
	rich.PCO = gtp.Some(pcoOf(gtp.ContainerDNS4, nil, gtp.ContainerDNS6, nil, gtp.ContainerIPCP, ppp(gtp.ConfigureRequest, 1, 129, 6, 0, 0, 0, 0, 130, 6, 0, 0, 0, 0)))
	f.Add(step(1, 1, 0, w.encode(v1, rich)))
	filtered := w.updateRequest(0x7000)
	filtered.TFT = template(gtp.TFTCreate, portFilter(1, 1, 1), portFilter(2, 2, 2))
	f.Add(append(step(1, 9, 0x80, w.encode(v1, filtered)), step(6, 1, 0x80, udp4(server, node4, 64, 9))...))
	f.Add(step(2, 1, 0x80, append([]byte{0x34, 255, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0x85, 1, 0, 0, 0}, 0x45)))
	f.Add(step(0, 0, 0, w.encode(v0, &gtp.DeleteRequest{})))
	four := netip.MustParseAddr("10.46.0.1")
	for _, ip := range [][]byte{udp4(four, server, 64, 9), udp6(host6, node6, 64, 9)} {
		b, _ := gtp.Encapsulate(nil, &gtp.Header{Version: gtp.V1, Type: gtp.TypeGPDU}, ip)
		f.Add(step(2, 1, 0x80, b))
		f.Add(step(6, 1, 0x80, ip))
	}
	f.Fuzz(fuzzSteps)
}

// fuzzSubscribed is the least first octet of an input whose engine has a file of subscribers.
const fuzzSubscribed = 7 * 32

func fuzzSteps(t *testing.T, in []byte) {
	w := newWorld(t, func(s *Settings) {
		s.EchoInterval = time.Minute
		s.APNs[2].UserToUser, s.APNs[2].DirectTunnel, s.APNs[2].IdleLimit = UserAllow, true, 10*time.Minute
		s.APNs[2].DHCP = true
		s.Records, s.APNs[2].Account, s.APNs[2].Charging = true, true, Charging{Volume: 1000, Time: time.Minute, Changes: 3, SGSNs: 2, Tariffs: []time.Duration{13 * time.Hour}}
		if len(in) > 0 && in[0] >= fuzzSubscribed {
			everything := Subscription{}
			s.Subscribers = subscribersOf(map[gtp.IMSI]Subscription{
				testIMSI(1): everything, testIMSI(2): everything, testIMSI(3): everything,
				testIMSI(7): {APNs: []Service{{APN: "dual", Types: TypeIPv4}}}, testIMSI(8): {APNs: []Service{{APN: "internet"}}},
			})
		}
	})
	c := []context{w.open(1, "dual", gtp.PDPTypeIPv4v6), w.open(2, "dual", gtp.PDPTypeIPv4v6), w.open(3, "internet", gtp.PDPTypeIPv4)}
	for range 64 {
		if len(in) < 5 {
			break
		}
		kind, wait, which, n := in[0]%7, in[1], in[2], min(int(binary.BigEndian.Uint16(in[3:])), len(in)-5)
		b := append([]byte(nil), in[5:5+n]...)
		in = in[5+n:]
		w.tick(time.Duration(wait) * time.Second)
		w.from = []netip.Addr{sgsn, other, rnc}[which%3]
		w.fuzzTarget(b, int(kind), &c[which%3], which&0x80 != 0)
		if kind == 6 {
			w.down(b)
			continue
		}
		w.out.Reset()
		w.e.HandleUDP(Socket(kind), netip.AddrPortFrom(w.from, uint16(which)), wait, b, w.now, &w.out)
	}
	w.out.Reset()
	w.e.Delete(Selection{}, w.now, &w.out)
	w.tick(2 * time.Minute)
	w.empty()
}

// fuzzTarget has a datagram be of a context, or a packet for its address, which no fuzzer
// guesses.
func (w *world) fuzzTarget(b []byte, kind int, c *context, wanted bool) {
	switch {
	case !wanted:
	case kind == 1 && len(b) >= 8:
		binary.BigEndian.PutUint32(b[4:], c.TEIDControl.Value)
	case kind == 2 && len(b) >= 8:
		binary.BigEndian.PutUint32(b[4:], c.TEIDData.Value)
		if four := c.four().As4(); len(b) >= 24 {
			copy(b[20:], four[:])
		}
	case kind == 6 && len(b) >= 20:
		if four := c.four().As4(); b[0]>>4 == 4 {
			copy(b[16:], four[:])
		} else if six := c.six(); len(b) >= 40 && six.Is6() {
			raw := six.As16()
			copy(b[24:], raw[:])
		}
	}
}

// FuzzResume reads state of any octets.
func FuzzResume(f *testing.F) {
	w := newWorld(f, nil)
	c := w.open(1, "dual", gtp.PDPTypeIPv4v6)
	w.createSecondary(c.TEIDControl.Value, w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 10, 5000))))
	w.open(2, "internet", gtp.PDPTypeIPv4)
	f.Add(w.e.AppendState(nil))
	w = newCharged(f, Charging{})
	c = w.open(1, "dual", gtp.PDPTypeIPv4v6)
	w.up(c, udp4(c.four(), server, 64, 9))
	w.moves(&c, other, nil)
	f.Add(w.e.AppendState(nil))
	f.Fuzz(func(t *testing.T, state []byte) {
		w := newWorld(t, nil)
		w.succeed(chargedSettings(Charging{Time: time.Minute, Tariffs: []time.Duration{13 * time.Hour}}), state)
		w.out.Reset()
		w.e.Delete(Selection{}, w.now, &w.out)
		w.tick(2 * time.Minute)
		w.empty()
	})
}
