// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// patience bounds the wait for what must arrive.
const patience = 20 * time.Second

// flowLanes are one lane of each form that translators are loaded with.
var flowLanes = []struct {
	name     string
	frame    []byte
	toClient bool
}{
	{"UDP from IPv6", Datagram(mac1, mac2, netip.AddrPortFrom(here, 5000), netip.AddrPortFrom(there, DiscardPort), 64), false},
	{"UDP to an IPv4 client", Datagram(mac1, mac2, netip.MustParseAddrPort("192.0.2.9:9"), netip.MustParseAddrPort("198.51.100.1:5000"), 64), true},
	{"large UDP to an IPv4 client", Datagram(mac1, mac2, netip.MustParseAddrPort("192.0.2.9:9"), netip.MustParseAddrPort("198.51.100.1:5000"), 1280), true},
	{"TCP from IPv6", Segment(mac1, mac2, netip.AddrPortFrom(here, 5000), netip.AddrPortFrom(there, DiscardPort), SYN), false},
	{"TCP to an IPv4 client", Segment(mac1, mac2, netip.MustParseAddrPort("192.0.2.9:9"), netip.MustParseAddrPort("198.51.100.1:5000"), SYN|ACK), true},
}

// Frames of flows must have the client's address and port from the table, and right
// checksums.
func TestFlowsAreSound(t *testing.T) {
	for _, tt := range flowLanes {
		t.Run(tt.name, func(t *testing.T) {
			cable(t, func() error {
				fd := hearing(t)
				g := aimedGenerator(t, 3)
				for i := range g.Peers() {
					client := netip.MustParseAddr("2001:db8:ffff::ffff").As16()
					client[9] = byte(i + 1)
					g.Peers()[i] = Peer{Client: client, IP: [4]byte{192, 0, 2, byte(i + 1)}, Port: [2]byte{0x10, byte(i + 1)}, Far: [4]byte{203, 0, 113, byte(i + 1)}}
				}
				// One attempt: frames of one that was put aside would be heard, too.
				sent, err := g.run([]Lane{{Frame: tt.frame, ToClient: tt.toClient, Ports: true, Count: 3}}, Pace{Rate: 30_000, Time: time.Millisecond})
				if err != nil || sent.All() < 3 {
					t.Fatalf("sent %v, %v", sent.Frames, err)
				}
				for i := range sent.All() {
					frame, err := receiveTo(fd, mac2)
					if err != nil {
						return err
					}
					if len(frame) != len(tt.frame) {
						t.Fatalf("%d bytes instead of %d", len(frame), len(tt.frame))
					}
					checkFlow(t, frame, tt.toClient, byte(i%3+1))
				}
				return nil
			})
		})
	}
}

// checkFlow checks addresses, port and checksums of a frame of the client of that
// number.
func checkFlow(t *testing.T, frame []byte, toClient bool, number byte) {
	t.Helper()
	var src, dst netip.Addr
	var next, mark byte
	var segment []byte
	ip := frame[etherLen:]
	ends := func() (client, other netip.Addr) {
		if toClient {
			return dst, src
		}
		return src, dst
	}
	if ip[0]>>4 == 6 {
		p := packet.IPv6(ip)
		src, dst, next, segment = p.Src(), p.Dst(), p.NextHeader(), p.Payload()
		client, _ := ends()
		mark = client.As16()[9]
	} else {
		src, dst, next, segment = netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20])), ip[9], ip[20:]
		client, _ := ends()
		mark = client.As4()[3]
		if packet.Fold(packet.Sum(0, ip[:20])) != 0xffff {
			t.Error("wrong checksum of the IPv4 header")
		}
	}
	s, d := src.As16(), dst.As16()
	if packet.Checksum(&s, &d, next, segment) != 0 {
		t.Errorf("wrong checksum in % x", segment)
	}
	port := segment
	if toClient {
		port = segment[2:]
	}
	client, other := ends()
	if far := other.AsSlice(); [4]byte(far[len(far)-4:]) != [4]byte{203, 0, 113, number} {
		t.Errorf("client %d has to do with %v", number, other)
	}
	if mark != number || binary.BigEndian.Uint16(port) != 0x1000+uint16(number) {
		t.Errorf("client %d has address %v and port %#x", number, client, port[:2])
	}
}

// receiveTo returns the next frame to a link address: others are heard too.
func receiveTo(fd int, to net.HardwareAddr) ([]byte, error) {
	return receive(fd, func(frame []byte) bool { return bytes.Equal(frame[:6], to) })
}

// A connection that is opened and closed must be answered twice.
func TestAnswererAcceptsAndCloses(t *testing.T) {
	for _, hook := range []Hook{HookTC, HookXDP} {
		t.Run(string(hook), func(t *testing.T) {
			cable(t, func() error {
				a, err := NewAnswerer()
				if err != nil {
					return err
				}
				defer a.Close()
				if err := a.Answer("v2", hook); err != nil {
					return err
				}
				if err := gro("v1"); err != nil { // takes what XDP sends back
					return err
				}
				fd, err := openPacket("v1", unix.ETH_P_ALL)
				if err != nil {
					return err
				}
				defer unix.Close(fd)
				s, err := OpenSender("v1")
				if err != nil {
					return err
				}
				defer s.Close()
				for _, flags := range []byte{SYN, ACK, FIN | ACK} {
					if err := s.Send(Segment(mac1, mac2, netip.MustParseAddrPort("192.0.2.1:5000"), netip.MustParseAddrPort("192.0.2.2:9"), flags)); err != nil {
						return err
					}
				}
				for _, flags := range []byte{SYN | ACK, FIN | ACK} {
					frame, err := receiveTo(fd, mac1)
					if err != nil {
						return err
					}
					s, d := netip.MustParseAddr("192.0.2.2").As16(), netip.MustParseAddr("192.0.2.1").As16()
					tcp := frame[etherLen+ipv4Len:][:tcpLen]
					if tcp[13] != flags || packet.Checksum(&s, &d, protocolTCP, tcp) != 0 {
						t.Errorf("flags %#x instead of %#x, or a wrong checksum", tcp[13], flags)
					}
				}
				if n, err := a.Count(); err != nil || n != (Answers{SYN: 1, FIN: 1}) {
					t.Errorf("counted %+v, %v", n, err)
				}
				return nil
			})
		})
	}
}
