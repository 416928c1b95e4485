// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// cable makes a veth pair v1, v2 in a namespace of its own and runs f there.
func cable(t *testing.T, f func() error) {
	t.Helper()
	testutil.NeedRoot(t)
	testutil.NewNetns(t).Do(t, func() error {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "v1", HardwareAddr: mac1}, PeerName: "v2", PeerHardwareAddr: mac2}
		if err := netlink.LinkAdd(pair); err != nil {
			return err
		}
		for _, name := range []string{"v1", "v2"} {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(link); err != nil {
				return err
			}
		}
		return f()
	})
}

// hearing hears all frames that arrive at v2, which GRO gives NAPI.
func hearing(t *testing.T) (fd int) {
	t.Helper()
	if err := gro("v2"); err != nil {
		t.Fatal(err)
	}
	fd, err := openPacket("v2", unix.ETH_P_ALL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// opened is what could be opened, until the test ends.
func opened[C io.Closer](t *testing.T, c C, err error) C {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// aimedGenerator sends to v1.
func aimedGenerator(t *testing.T, peers int) *Generator {
	t.Helper()
	g, err := NewGenerator(peers)
	opened(t, g, err)
	if err := g.Target(0, "v1"); err != nil {
		t.Fatal(err)
	}
	return g
}

// arriving counts what arrives at v2.
func arriving(t *testing.T, hook Hook) *Meter {
	t.Helper()
	m, err := NewMeter()
	opened(t, m, err)
	if err := m.Arrival("v2", hook); err != nil {
		t.Fatal(err)
	}
	return m
}

// prober is one without a target.
func prober(t *testing.T) *Prober {
	t.Helper()
	r, err := NewProber()
	return opened(t, r, err)
}

// Frames of a generator must be those that a sender would send: right addresses,
// right checksums, each peer in its turn.
func TestGeneratedFramesAreSound(t *testing.T) {
	p := Packet(here, there, 512)
	for name, frame := range map[string][]byte{
		"tunnel": inUDP(p),
		"G-PDU":  gpdu(p),
	} {
		t.Run(name, func(t *testing.T) { mustGenerate(t, p, frame) })
	}
}

// mustGenerate sends a packet to clients and, in a tunnel's frame, from them.
func mustGenerate(t *testing.T, p packet.IPv6, tunnelFrame []byte) {
	t.Helper()
	cable(t, func() error {
		fd := hearing(t)
		g := aimedGenerator(t, 3)
		for i := range g.Peers() {
			client := netip.MustParseAddr("2001:db8:ffff::ffff").As16()
			client[9] = byte(i + 1)
			g.Peers()[i] = Peer{Client: client, IP: [4]byte{192, 0, 2, byte(i + 1)}, Port: [2]byte{0x10, byte(i)}, Net: [2]byte{0, byte(i)}, Far: [4]byte{0, 0, 7, byte(i)}}
		}
		lanes := []Lane{
			{Frame: Frame6(mac1, mac2, p), ToClient: true, Count: 3},
			{Frame: tunnelFrame, Count: 3, Share: 2},
		}
		// One attempt: frames of one that was put aside would be heard, too.
		sent, err := g.run(lanes, Pace{Rate: 30_000, Time: time.Millisecond})
		if err != nil {
			return err
		}
		if sent.Frames[0] == 0 || sent.Frames[1] < sent.Frames[0] {
			t.Errorf("sent %v", sent.Frames)
		}
		plain, tunnelled := 0, 0
		for range sent.All() {
			frame, err := receive(fd, large)
			if err != nil {
				return err
			}
			client := [3]byte{1, 2, 3}
			switch binary.BigEndian.Uint16(frame[12:]) {
			case etherIPv6:
				inner := packet.IPv6(frame[etherLen:])
				check(t, inner, inner.Dst(), inner.Src(), client[plain%3], plain%3)
				plain++
			case etherIPv4:
				if packet.Fold(packet.Sum(0, frame[14:34])) != 0xffff {
					t.Error("wrong IPv4 checksum")
				}
				n := tunnelled % 3
				if frame[14+15] != byte(n+1) || frame[34] != 0x10 || frame[35] != byte(n) {
					t.Errorf("frame %d of the tunnel comes from % x", tunnelled, frame[26:36])
				}
				own := len(tunnelFrame) - len(p) // the headers in front of the packet
				if len(frame) != len(tunnelFrame) || !bytes.Equal(frame[etherLen+outerLen:own], tunnelFrame[etherLen+outerLen:own]) {
					t.Errorf("frame %d of the tunnel is % x", tunnelled, frame[:own])
				}
				inner := packet.IPv6(frame[own:])
				check(t, inner, inner.Src(), inner.Dst(), client[n], n)
				tunnelled++
			}
		}
		return nil
	})
}

func check(t *testing.T, p packet.IPv6, client, other netip.Addr, number byte, net int) {
	t.Helper()
	if len(p) != 512 || packet.Checksum(p.SrcBytes(), p.DstBytes(), packet.ProtoUDP, p.Payload()) != 0 {
		t.Errorf("%d bytes with a wrong checksum or length", len(p))
	}
	if client.As16()[9] != number || net != 0 && int(other.As16()[5]) != net || [4]byte(other.AsSlice()[12:]) != [4]byte{0, 0, 7, byte(net)} {
		t.Errorf("client %v, number %d; other %v, net %d", client, number, other, net)
	}
}

// large tells frames of these tests from others that are heard.
func large(frame []byte) bool { return len(frame) > 500 }

// receive returns the next frame that is meant.
func receive(fd int, meant func(frame []byte) bool) ([]byte, error) {
	tv := unix.NsecToTimeval(int64(patience))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return nil, err
	}
	for {
		b := make([]byte, 2048)
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			return nil, fmt.Errorf("no frame came: %w", err)
		}
		if meant(b[:n]) {
			return b[:n], nil
		}
	}
}

// The bare rate: a generator into a sink. Each row has a cable of its own, so that
// no frame that comes late is taken for one of the next.
func TestGeneratorReachesTheMeter(t *testing.T) {
	for _, size := range []int{MinSize, 1280} {
		for _, rate := range []float64{0, 200_000} {
			t.Run(fmt.Sprintf("%d bytes, %.0f a second", size, rate), func(t *testing.T) {
				cable(t, func() error { return reachMeter(t, size, Pace{Rate: rate, Time: 20 * time.Millisecond}) })
			})
		}
	}
}

// reachMeter runs a generator into a meter at the other end of a cable.
func reachMeter(t *testing.T, size int, pace Pace) error {
	runtime.LockOSThread()
	m := arriving(t, HookXDP)
	g, err := NewGenerator(1)
	if err != nil {
		return err
	}
	defer g.Close()
	if err := errors.Join(g.Target(0, "v1"), g.Anchor("v1"), OwnNAPI("v2", 0, 0)); err != nil {
		return err
	}
	start := time.Now()
	sent, err := g.run([]Lane{{Frame: Frame6(mac1, mac2, Packet(here, there, size)), ToClient: true, Count: 1}}, pace)
	if err != nil {
		return err
	}
	took := time.Since(start)
	// The receiving thread may not have run yet.
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if n, err := m.Count(0); n > 0 || err != nil {
			break
		}
	}
	arrived, err := m.Settle(0, time.Second)
	if arrived == 0 || arrived > sent.All() {
		t.Errorf("%d of %d frames arrived", arrived, sent.All())
	}
	t.Logf("%.0f frames/s in %v, call %v, %d of %d arrived", sent.Rate(), sent.Took, took, arrived, sent.All())
	return err
}

// gro switches generic receive offload on.
func gro(iface string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	value := struct{ command, data uint32 }{unix.ETHTOOL_SGRO, 1}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:], iface)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return nil
}
