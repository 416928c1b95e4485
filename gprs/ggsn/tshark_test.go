// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/lab/peers/tsharktest"
)

// outer is a datagram as it is on the wire.
func outer(d packet.Datagram) []byte {
	from := netip.AddrPortFrom(node4, Socket(d.Socket).Port())
	b := udp4(from.Addr(), d.To.Addr(), 64, len(d.Payload))
	binary.BigEndian.PutUint16(b[20:], from.Port())
	binary.BigEndian.PutUint16(b[22:], d.To.Port())
	copy(b[28:], d.Payload)
	return b
}

// TestTshark has tshark dissect what an engine sends of every kind: it finds nothing wrong,
// and names each message.
func TestTshark(t *testing.T) {
	w := newWorld(t, func(s *Settings) {
		s.EchoInterval, s.APNs[0].SequenceNumbers, s.APNs[0].DirectTunnel = time.Minute, true, true
	})
	var sent [][]byte
	keep := func(list []packet.Datagram) {
		for _, d := range list {
			sent = append(sent, outer(d))
		}
	}
	ask := func(path int, h gtp.Header, m gtp.Message) {
		w.seq++
		h.Version, h.HasSequence, h.Sequence = gtp.V1, true, w.seq
		if path == pathV0 {
			h.Version = gtp.V0
		}
		keep(w.raw(path, w.encode(h, m)))
	}
	m := w.createRequest(imsi1, "dual", gtp.PDPTypeIPv4v6)
	m.QoS = gtp.Profile{Class: gtp.ClassBackground, MaxUp: 512, MaxDown: 512}.QoS(12)
	m.PCO = gtp.Some(pcoOf(gtp.ContainerDNS4, nil, gtp.ContainerDNS6, nil, gtp.ContainerPCSCF4, nil, gtp.ContainerMTU4, nil,
		gtp.ContainerIPCP, ppp(gtp.ConfigureRequest, 1, 129, 6, 0, 0, 0, 0), gtp.ContainerPAP, ppp(gtp.PAPRequest, 2, 1, 'a', 1, 'b')))
	c := w.create(m)
	keep(w.out.UDP)
	w.createSecondary(c.TEIDControl.Value, w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 1, 1))))
	keep(w.out.UDP)
	d := w.open(2, "internet", gtp.PDPTypeIPv4)
	keep(w.out.UDP)
	_, r := w.createV0(gtp.MakeTID(testIMSI(3), 5), "inet6", gtp.PDPTypeIPv6)
	keep(w.out.UDP)
	ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, w.updateRequest(0x7000))
	ask(pathControl, gtp.Header{TEID: 1}, w.updateRequest(0x7000))
	m.APN.Value = apnOf("nowhere")
	ask(pathControl, gtp.Header{}, m)
	for _, path := range []int{pathV0, pathControl, pathUser} {
		ask(path, gtp.Header{}, &gtp.EchoRequest{})
	}
	keep(w.raw(pathControl, []byte{0x40, 1, 0, 4, 0, 0, 5, 0}))
	keep(w.raw(pathControl, []byte{0x36, 1, 0, 8, 0, 0, 0, 0, 0, 1, 0, 0x9f, 1, 0, 0, 0}))
	keep(w.raw(pathUser, []byte{0x30, 255, 0, 1, 0, 0, 0, 9, 0}))
	w.upV0(gtp.MakeTID(testIMSI(8), 5), 9, []byte{0})
	keep(w.out.UDP)
	discard := func(to context) []byte {
		b := udp4(server, to.four(), 64, 9)
		copy(b[20:], []byte{0, 9, 0, 9})
		return b
	}
	w.down(discard(c))
	keep(w.out.UDP)
	w.down(discard(d)) // with a sequence number
	keep(w.out.UDP)
	six := context{CreateResponse: r}
	w.down(packet.AppendICMPv6(nil, host6, six.six(), 64, packet.ICMPv6EchoRequest, 0, []byte{0, 1, 0, 1}))
	keep(w.out.UDP)
	w.out.Reset()
	w.e.SetQoS(Selection{APN: "dual"}, m.QoS, w.now, &w.out)
	keep(w.out.UDP)
	keep(w.tick(2 * time.Minute))
	ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, &gtp.DeleteRequest{NSAPI: 5, Teardown: gtp.Some(true)})
	w.out.Reset()
	w.e.Delete(Selection{}, w.now, &w.out)
	keep(w.out.UDP)

	seen := make(map[byte]bool)
	for _, b := range sent {
		seen[b[29]] = true
	}
	for _, kind := range []gtp.MessageType{1, 2, 3, 17, 18, 19, 20, 21, 26, 31, 255} {
		if !seen[byte(kind)] {
			t.Errorf("no %v was sent", kind)
		}
	}
	capture := tsharktest.Capture(t, sent)
	if out := tsharktest.Run(t, capture, "-Y", tsharktest.Complaints, "-T", "fields", "-e", "frame.number", "-e", "gtp.message", "-e", "_ws.expert.message"); out != "" {
		t.Errorf("tshark complains of:\n%s", out)
	}
	if out := tsharktest.Run(t, capture, "-Y", "!gtp"); out != "" {
		t.Errorf("tshark sees no GTP in:\n%s", out)
	}
}
