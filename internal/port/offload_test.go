// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// tcpSegment is a TCP packet with ACK and a right checksum.
func tcpSegment(seq uint32, payload []byte, change func(t []byte)) []byte {
	p := make([]byte, 60+len(payload))
	p[0], p[6], p[7] = 0x60, packet.ProtoTCP, 64
	binary.BigEndian.PutUint16(p[4:], uint16(20+len(payload)))
	copy(p[8:], tunPeer.AsSlice())
	copy(p[24:], tunHost.Addr().AsSlice())
	t := p[40:]
	binary.BigEndian.PutUint32(t[tcpSeqOff:], seq)
	t[tcpDataOff], t[tcpFlagsOff] = 5<<4, tcpACK
	copy(t[20:], payload)
	if change != nil {
		change(t)
	}
	q := packet.IPv6(p)
	binary.BigEndian.PutUint16(t[tcpSumOff:], packet.Checksum(q.SrcBytes(), q.DstBytes(), packet.ProtoTCP, t))
	return p
}

func udpPacket(size int) []byte { return ipv6UDP(tunPeer, tunHost.Addr(), size) }

func damaged(p []byte) []byte {
	p[len(p)-1] ^= 1
	return p
}

func TestRun(t *testing.T) {
	data := bytes.Repeat([]byte("x"), 100)
	tcp := func(seq uint32) []byte { return tcpSegment(seq, data, nil) }
	with := func(seq uint32, change func(t []byte)) []byte { return tcpSegment(seq, data, change) }
	otherHop := tcp(200)
	otherHop[7] = 63
	tests := []struct {
		name string
		pkts [][]byte
		udp  bool
		want int
	}{
		{"one packet", [][]byte{tcp(100)}, true, 1},
		{"TCP in order", [][]byte{tcp(100), tcp(200), tcp(300)}, true, 3},
		{"TCP sequence wraps", [][]byte{tcp(0xffffffce), tcp(50)}, true, 2},
		{"TCP with a gap", [][]byte{tcp(100), tcp(201)}, true, 1},
		{"TCP with a shorter end", [][]byte{tcp(100), tcpSegment(200, data[:9], nil), tcp(209)}, true, 2},
		{"TCP grows", [][]byte{tcpSegment(100, data[:9], nil), tcp(109)}, true, 1},
		{"PSH ends the run", [][]byte{tcp(100), with(200, func(t []byte) { t[tcpFlagsOff] |= tcpPSH }), tcp(300)}, true, 2},
		{"FIN stays alone", [][]byte{tcp(100), with(200, func(t []byte) { t[tcpFlagsOff] |= tcpFIN })}, true, 1},
		{"another window", [][]byte{tcp(100), with(200, func(t []byte) { t[15] = 1 })}, true, 1},
		{"another acknowledgement", [][]byte{tcp(100), with(200, func(t []byte) { t[11] = 1 })}, true, 1},
		{"another port", [][]byte{tcp(100), with(200, func(t []byte) { t[1] = 1 })}, true, 1},
		{"another hop limit", [][]byte{tcp(100), otherHop}, true, 1},
		{"TCP without payload", [][]byte{tcpSegment(100, nil, nil), tcpSegment(100, nil, nil)}, true, 1},
		{"data offset behind the end", [][]byte{with(100, func(t []byte) { t[tcpDataOff] = 0xf0 })}, true, 1},
		{"first damaged", [][]byte{damaged(tcp(100)), tcp(200)}, true, 1},
		{"second damaged", [][]byte{tcp(100), damaged(tcp(200)), tcp(300)}, true, 1},
		{"UDP", [][]byte{udpPacket(100), udpPacket(100), udpPacket(70), udpPacket(70)}, true, 3},
		{"UDP where the kernel cannot", [][]byte{udpPacket(100), udpPacket(100)}, false, 1},
		{"UDP after TCP", [][]byte{tcp(100), udpPacket(160)}, true, 1},
		{"payload length lies", [][]byte{append(udpPacket(100), 0), append(udpPacket(100), 0)}, true, 1},
		{"too short for anything", [][]byte{{0x60}, {0x60}}, true, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, _ := run(tt.pkts, tt.udp); got != tt.want {
				t.Errorf("run of %d, want %d", got, tt.want)
			}
		})
	}
}

// join writes a run into the bytes that the kernel would be given.
func join(pkts [][]byte, f flow) []byte {
	w := new(tunWriter)
	iovs, _ := w.load(pkts, f)
	var b []byte
	for _, v := range iovs {
		b = append(b, unsafe.Slice(v.Base, v.Len)...)
	}
	w.restore(pkts[0], f)
	return b
}

// split returns the packets of a superpacket.
func split(b []byte) (pkts [][]byte, ok bool) {
	var s superpacket
	single, ok := s.parse(b[:vnetHdrLen], b[vnetHdrLen:])
	if !ok {
		return nil, false
	}
	if single != nil {
		return [][]byte{single}, true
	}
	for s.data != nil {
		buf := make([]byte, maxTrain)
		n := s.hand(buf)
		if n == 0 {
			return nil, false
		}
		pkts = append(pkts, buf[:n])
	}
	return pkts, true
}

// TestJoinAndSplit expects that a run comes back bit for bit.
func TestJoinAndSplit(t *testing.T) {
	push := func(t []byte) { t[tcpFlagsOff] |= tcpPSH }
	data := bytes.Repeat([]byte("0123456789"), 122)
	tests := []struct {
		name string
		pkts [][]byte
	}{
		{"TCP", [][]byte{tcpSegment(100, data, nil), tcpSegment(1320, data, nil), tcpSegment(2540, data[:7], push)}},
		{"UDP", [][]byte{udpPacket(1280), udpPacket(1280), udpPacket(51)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n, f := run(tt.pkts, true)
			if n != len(tt.pkts) {
				t.Fatalf("run of %d", n)
			}
			got, ok := split(join(tt.pkts, f))
			if !ok {
				t.Fatal("not taken apart")
			}
			if diff := cmp.Diff(tt.pkts, got); diff != "" {
				t.Errorf("packets (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzSplit gives the reader what no kernel would say.
func FuzzSplit(f *testing.F) {
	pkts := [][]byte{udpPacket(100), udpPacket(100)}
	_, fl := run(pkts, true)
	f.Add(join(pkts, fl))
	pkts = [][]byte{tcpSegment(1, []byte("abc"), nil), tcpSegment(4, []byte("d"), nil)}
	_, fl = run(pkts, true)
	f.Add(join(pkts, fl))
	f.Add(make([]byte, vnetHdrLen))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < vnetHdrLen || len(b) > 1<<16 {
			return
		}
		var s superpacket
		single, ok := s.parse(b[:vnetHdrLen], b[vnetHdrLen:])
		if !ok || single != nil {
			return
		}
		payload, buf := bytes.Clone(b[vnetHdrLen+s.headers:]), make([]byte, maxTrain)
		for s.data != nil {
			n := s.hand(buf)
			if n == 0 {
				return // longer than the buffer
			}
			if !bytes.HasPrefix(payload, buf[s.headers:n]) {
				t.Fatal("the packets do not add up to the payload")
			}
			payload = payload[n-s.headers:]
		}
		if len(payload) != 0 {
			t.Errorf("%d bytes of payload are lost", len(payload))
		}
	})
}

// pump moves packets from one device to another, as a client and relay would.
func pump(from, to *TUN) {
	pkts := make([][]byte, MaxBatch)
	for {
		n, err := from.ReadBatch(pkts)
		if err != nil || to.WriteBatch(pkts[:n]) != nil {
			return
		}
	}
}

// TestOffloadTransfers sends a TCP stream and a train of UDP datagrams from one
// host to another, with offload on each side or not.
func TestOffloadTransfers(t *testing.T) {
	tests := []struct {
		name            string
		sender, receive bool
	}{
		{"neither", false, false},
		{"sender: the receiver checks the checksums made here", true, false},
		{"receiver", false, true},
		{"both", true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, nsA := offloadHost(t, tunHost, tt.sender)
			b, nsB := offloadHost(t, netip.PrefixFrom(tunPeer, 64), tt.receive)
			go pump(a, b)
			go pump(b, a)
			sendStream(t, nsA, nsB)
			sendTrain(t, nsA, nsB)
			for _, c := range []struct {
				what       string
				on         bool
				calls, pkt uint64
			}{
				{"reads", tt.sender, a.Stats().ReadCalls, a.Stats().ReadPackets},
				{"writes", tt.receive, b.Stats().WriteCalls, b.Stats().WritePackets},
			} {
				if joined := c.calls < c.pkt; joined != c.on {
					t.Errorf("%d packets in %d %s", c.pkt, c.calls, c.what)
				}
			}
			for _, s := range []Stats{a.Stats(), b.Stats()} {
				if s.ReadTruncated+s.ReadMalformed+s.SegmentFallbacks+s.WriteFailed > 0 {
					t.Errorf("counters: %+v", s)
				}
			}
		})
	}
}

// offloadHost is a namespace with a TUN.
func offloadHost(t *testing.T, addr netip.Prefix, offload bool) (tun *TUN, ns *testutil.Netns) {
	ns = testutil.NewNetns(t)
	ns.Do(t, func() (err error) {
		h, err := OpenHost()
		if err != nil {
			return err
		}
		defer h.handle.Close() // the namespace undoes the rest
		if tun, err = OpenTUN(TUNConfig{Name: "t0", Offload: offload}); err != nil {
			return err
		}
		t.Cleanup(func() { tun.Close() })
		if err := h.SetUp("t0"); err != nil {
			return err
		}
		if err := h.AddAddr("t0", addr); err != nil {
			return err
		}
		testutil.AwaitLocal(t, addr.Addr())
		return nil
	})
	return tun, ns
}

// sendStream sends 4 MB over TCP and compares.
func sendStream(t *testing.T, nsA, nsB *testutil.Netns) {
	t.Helper()
	want := make([]byte, 4<<20)
	for i := range want {
		want[i] = byte(i ^ i>>8 ^ i>>16)
	}
	var l net.Listener
	nsB.Do(t, func() (err error) { l, err = net.Listen("tcp6", "[::]:7"); return err })
	defer l.Close()
	done := make(chan []byte)
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		got, _ := io.ReadAll(c)
		done <- got
	}()
	nsA.Do(t, func() error {
		c, err := net.DialTimeout("tcp6", netip.AddrPortFrom(tunPeer, 7).String(), testutil.Patience)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(want)
		return err
	})
	if got := <-done; !bytes.Equal(got, want) {
		t.Errorf("%d bytes arrived, or others than were sent", len(got))
	}
}

// sendTrain sends 20 datagrams in one call (UDP_SEGMENT) and receives each.
func sendTrain(t *testing.T, nsA, nsB *testutil.Netns) {
	t.Helper()
	const size, count = 1200, 20
	var in *net.UDPConn
	nsB.Do(t, func() (err error) {
		in, err = net.ListenUDP("udp6", &net.UDPAddr{Port: 9})
		return err
	})
	defer in.Close()
	want := make([]byte, size*count)
	for i := range want {
		want[i] = byte(i / size)
	}
	nsA.Do(t, func() error {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, size); err != nil {
			return os.NewSyscallError("UDP_SEGMENT", err)
		}
		to := &unix.SockaddrInet6{Port: 9, Addr: tunPeer.As16()}
		if err := unix.Sendto(fd, want, 0, to); !errors.Is(err, unix.EIO) {
			return err
		}
		// Kernels before 6.11 cut nothing for a device that completes no checksums.
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 0); err != nil {
			return os.NewSyscallError("UDP_SEGMENT", err)
		}
		for datagram := range slices.Chunk(want, size) {
			if err := unix.Sendto(fd, datagram, 0, to); err != nil {
				return err
			}
		}
		return nil
	})
	in.SetReadDeadline(time.Now().Add(testutil.Patience))
	buf := make([]byte, maxTrain)
	for i := range count {
		n, err := in.Read(buf)
		if err != nil || !bytes.Equal(buf[:n], want[i*size:(i+1)*size]) {
			t.Fatalf("datagram %d: %d bytes, %v", i, n, err)
		}
	}
}
