// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// listen opens a socket on loopback.
func listen(t testing.TB, addr string) *UDP {
	t.Helper()
	u, err := ListenUDP(UDPConfig{Addr: netip.MustParseAddrPort(addr)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	return u
}

// receive reads n datagrams and returns copies of their payloads.
func receive(t testing.TB, u *UDP, n, batch int) (payloads [][]byte, last Message) {
	t.Helper()
	msgs := make([]Message, batch)
	for len(payloads) < n {
		got, err := u.ReadBatch(msgs)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range msgs[:got] {
			payloads = append(payloads, bytes.Clone(m.Payload))
			last = m
		}
	}
	return payloads, last
}

// payloads makes one payload per length, each with bytes of its own.
func payloads(lengths ...int) [][]byte {
	out := make([][]byte, len(lengths))
	for i, n := range lengths {
		out[i] = bytes.Repeat([]byte{byte(i + 1)}, n)
	}
	return out
}

func repeat(length, times int) []int {
	out := make([]int, times)
	for i := range out {
		out[i] = length
	}
	return out
}

func TestUDPBatch(t *testing.T) {
	tests := []struct {
		name    string
		lengths []int
		batch   int
		calls   uint64 // for sending
	}{
		{"one datagram", []int{100}, 64, 1},
		{"a train with a shorter end", []int{1280, 1280, 1280, 40}, 64, 1},
		{"growing lengths make no train", []int{40, 48, 1280, 20}, 64, 1},
		{"a train of more bytes than one IPv4 packet", repeat(1400, 64), 64, 1},
		{"more than a batch", repeat(60, 150), 64, 3},
		{"a reader smaller than the train", repeat(60, 10), 3, 1},
		{"a datagram that must be cut into fragments", []int{4000}, 64, 1},
	}
	for _, tt := range tests {
		eachFamily(t, tt.name, func(t *testing.T, addr string) {
			a, b := listen(t, addr), listen(t, addr)
			want := payloads(tt.lengths...)
			var dgrams []packet.Datagram
			for _, p := range want {
				dgrams = append(dgrams, packet.Datagram{To: b.LocalAddr(), Payload: p})
			}
			if err := a.WriteBatch(dgrams); err != nil {
				t.Fatal(err)
			}
			got, last := receive(t, b, len(want), tt.batch)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("payloads (-want +got):\n%s", diff)
			}
			if last.From != a.LocalAddr() || last.To != b.LocalAddr().Addr() {
				t.Errorf("got from %v to %v", last.From, last.To)
			}
			if s := a.Stats(); s.WriteCalls != tt.calls || s.WritePackets != uint64(len(want)) || s.SegmentFallbacks != 0 {
				t.Errorf("sender's counters: %+v", s)
			}
		})
	}
}

// eachFamily runs a test with an address of loopback of either family.
func eachFamily(t *testing.T, name string, f func(t *testing.T, addr string)) {
	t.Helper()
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(name+" "+addr, func(t *testing.T) { f(t, addr) })
	}
}

func TestUDPWildcardTellsLocalAddress(t *testing.T) {
	for _, addrs := range [][3]string{{"127.0.0.1:0", "0.0.0.0:0", "127.0.0.9"}, {"[::1]:0", "[::]:0", "::1"}} {
		t.Run(addrs[1], func(t *testing.T) { testWildcard(t, addrs[0], addrs[1], netip.MustParseAddr(addrs[2])) })
	}
}

func testWildcard(t *testing.T, from, wildcard string, of netip.Addr) {
	a, b := listen(t, from), listen(t, wildcard)
	to := netip.AddrPortFrom(of, b.LocalAddr().Port())
	dgrams := []packet.Datagram{{To: to, Payload: []byte("one")}, {To: to, Payload: []byte("two")}}
	if err := a.WriteBatch(dgrams); err != nil {
		t.Fatal(err)
	}
	got, last := receive(t, b, 2, MaxBatch)
	if diff := cmp.Diff([][]byte{[]byte("one"), []byte("two")}, got); diff != "" {
		t.Errorf("payloads (-want +got):\n%s", diff)
	}
	if last.To != to.Addr() {
		t.Errorf("to %v, want %v", last.To, to.Addr())
	}
}

// TestUDPRefusals sends datagrams that the kernel refuses between good ones.
func TestUDPRefusals(t *testing.T) {
	a, b := listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
	good := packet.Datagram{To: b.LocalAddr(), Payload: []byte("good")}
	badPort := packet.Datagram{To: netip.AddrPortFrom(b.LocalAddr().Addr(), 0), Payload: []byte("port")}
	huge := packet.Datagram{To: b.LocalAddr(), Payload: make([]byte, 65536)}
	if err := a.WriteBatch([]packet.Datagram{badPort, badPort, good, huge, good, badPort}); err != nil {
		t.Fatal(err)
	}
	receive(t, b, 2, MaxBatch)
	s := a.Stats()
	if s.WritePackets != 2 || s.WriteFailed != 3 || s.WriteTooBig != 1 || s.SegmentFallbacks != 1 {
		t.Errorf("counters: %+v", s)
	}
	if a.noSegments.Load() {
		t.Error("a bad destination switched trains off")
	}
}

// TestUDPTrainOverMTU sends a train whose datagrams exceed the MTU: the kernel
// refuses to cut it, and cuts the single datagrams into fragments.
func TestUDPTrainOverMTU(t *testing.T) {
	h := inNamespace(t)
	if err := h.SetMTU("lo", 1300); err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		testTrainOverMTU(t, addr)
	}
}

func testTrainOverMTU(t *testing.T, addr string) {
	a, b := listen(t, addr), listen(t, addr)
	want := payloads(1400, 1400, 1400, 30, 30)
	var dgrams []packet.Datagram
	for _, p := range want {
		dgrams = append(dgrams, packet.Datagram{To: b.LocalAddr(), Payload: p})
	}
	if err := a.WriteBatch(dgrams); err != nil {
		t.Fatal(err)
	}
	got, _ := receive(t, b, len(want), MaxBatch)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("payloads (-want +got):\n%s", diff)
	}
	if s := a.Stats(); s.SegmentFallbacks != 1 || s.WritePackets != 5 {
		t.Errorf("counters: %+v", s)
	}
}

func TestUDPCloseWakesReader(t *testing.T) {
	u := listen(t, "127.0.0.1:0")
	done := make(chan error)
	go func() {
		_, err := u.ReadBatch(make([]Message, 1))
		done <- err
	}()
	u.Close()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("reader got %v", err)
	}
	if err := u.WriteBatch(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("writer got %v", err)
	}
}

func TestListenUDPErrors(t *testing.T) {
	taken := listen(t, "127.0.0.1:0")
	tests := []struct {
		name, addr, want string
	}{
		{"port in use", taken.LocalAddr().String(), "in use by another program"},
		{"not our address", "192.0.2.1:3544", "this host has no address 192.0.2.1"},
		{"not our IPv6 address", "[2001:db8::1]:3544", "this host has no address 2001:db8::1"},
		{"IPv4 written as IPv6", "[::ffff:192.0.2.1]:3544", "an IPv4 or IPv6 address is needed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ListenUDP(UDPConfig{Addr: netip.MustParseAddrPort(tt.addr)})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestUDPAllocatesNothing(t *testing.T) {
	a, b := listen(t, "127.0.0.1:0"), listen(t, "0.0.0.0:0")
	to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), b.LocalAddr().Port())
	dgrams := []packet.Datagram{
		{To: to, Payload: make([]byte, 100)}, {To: to, Payload: make([]byte, 100)}, {To: to, Payload: make([]byte, 200)},
	}
	msgs := make([]Message, MaxBatch)
	if n := testing.AllocsPerRun(100, func() {
		if err := a.WriteBatch(dgrams); err != nil {
			t.Fatal(err)
		}
		for n := 0; n < len(dgrams); {
			got, err := b.ReadBatch(msgs)
			if err != nil {
				t.Fatal(err)
			}
			n += got
		}
	}); n != 0 {
		t.Errorf("%v allocations a run", n)
	}
}

// A datagram's own time to live reaches the wire, and those beside it keep that
// of the socket.
func TestUDPTimeToLive(t *testing.T) {
	t.Run("IPv4", func(t *testing.T) { testTimeToLive(t, "127.0.0.1:0", unix.IPPROTO_IP, unix.IP_RECVTTL, unix.IP_TTL) })
	t.Run("IPv6", func(t *testing.T) {
		testTimeToLive(t, "[::1]:0", unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, unix.IPV6_UNICAST_HOPS)
	})
}

func testTimeToLive(t *testing.T, addr string, level, receive, own int) {
	a, b := listen(t, addr), listen(t, addr)
	if err := unix.SetsockoptInt(b.guard.fd, level, receive, 1); err != nil {
		t.Fatal(err)
	}
	to := b.LocalAddr()
	if err := a.WriteBatch([]packet.Datagram{
		{To: to, Payload: []byte("usual")}, {To: to, Payload: []byte("short"), TTL: 3},
		{To: to, Payload: []byte("large"), TTL: 255}, {To: to, Payload: []byte("again")},
	}); err != nil {
		t.Fatal(err)
	}
	var got []int
	buf, control := make([]byte, 64), make([]byte, 64)
	for range 4 {
		_, n, _, _, err := unix.Recvmsg(b.guard.fd, buf, control, 0)
		if err != nil {
			t.Fatal(err)
		}
		msgs, err := unix.ParseSocketControlMessage(control[:n])
		if err != nil || len(msgs) != 1 {
			t.Fatalf("control messages %v, %v", msgs, err)
		}
		got = append(got, int(binary.NativeEndian.Uint32(msgs[0].Data)))
	}
	usual, err := unix.GetsockoptInt(a.guard.fd, level, own)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{usual, 3, 255, usual}, got); diff != "" {
		t.Errorf("times to live (-want +got):\n%s", diff)
	}
}

// A datagram's own traffic class reaches the wire, alone, in a train and beside a time to live, and the reader,
// merged or not.
func TestUDPClass(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"} {
		t.Run(addr, func(t *testing.T) {
			a := listen(t, addr)
			b, err := ListenUDP(UDPConfig{Addr: netip.MustParseAddrPort(addr), Class: true})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			to := b.LocalAddr()
			if to.Addr().IsUnspecified() {
				loopback := netip.IPv6Loopback()
				if to.Addr().Is4() {
					loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})
				}
				to = netip.AddrPortFrom(loopback, to.Port())
			}
			var dgrams []packet.Datagram
			want := []uint8{0, 46 << 2, 46 << 2, 46<<2 | packet.ECT0, 10 << 2, 10 << 2, packet.CE, 0xff}
			for i, class := range want {
				dgrams = append(dgrams, packet.Datagram{To: to, Payload: []byte{byte(i)}, Class: class})
			}
			dgrams[len(want)-1].TTL = 9
			if err := a.WriteBatch(dgrams); err != nil {
				t.Fatal(err)
			}
			var got []uint8
			for msgs := make([]Message, MaxBatch); len(got) < len(want); {
				n, err := b.ReadBatch(msgs)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range msgs[:n] {
					got = append(got, m.Class)
					if m.To != to.Addr() {
						t.Errorf("sent to %v, not %v", m.To, to)
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("traffic classes (-want +got):\n%s", diff)
			}
		})
	}
}

// Outer packets may be cut on their way (RFC 4380 section 5.1.2): no DF, whether they
// leave alone or in a train.
func TestUDPMayBeCut(t *testing.T) {
	inNamespace(t)
	wire, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_UDP)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(wire)
	a, b := listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
	var train []packet.Datagram
	for _, p := range payloads(100, 1200, 1200, 1200) {
		train = append(train, packet.Datagram{To: b.LocalAddr(), Payload: p})
	}
	if err := a.WriteBatch(train); err != nil {
		t.Fatal(err)
	}
	p, octets := make([]byte, 1<<16), 0
	for octets < 100+3*1200 {
		n, err := unix.Read(wire, p)
		if err != nil {
			t.Fatal(err)
		}
		if octets += n - 28; p[6]&0x40 != 0 {
			t.Errorf("a packet of %d octets has DF set", n)
		}
	}
}

// A small socket takes what fits and counts what does not.
func TestUDPSmall(t *testing.T) {
	a := listen(t, "127.0.0.1:0")
	b, err := ListenUDP(UDPConfig{Addr: netip.MustParseAddrPort("0.0.0.0:0"), Small: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	to := netip.AddrPortFrom(a.LocalAddr().Addr(), b.LocalAddr().Port())
	sent := payloads(100, 100, smallDatagram, smallDatagram+1, 0, 50)
	for _, p := range sent {
		if err := a.WriteBatch([]packet.Datagram{{To: to, Payload: p}}); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := receive(t, b, 4, MaxBatch)
	if diff := cmp.Diff([][]byte{sent[0], sent[1], sent[2], sent[5]}, got); diff != "" {
		t.Errorf("payloads (-want +got):\n%s", diff)
	}
	if n := b.Stats().ReadTruncated; n != 1 {
		t.Errorf("%d counted as truncated", n)
	}
	if n := b.Stats().ReadEmpty; n != 1 {
		t.Errorf("%d counted as empty", n)
	}
}

// What the kernel drops because nobody reads is counted, over the end of the socket.
func TestUDPOverflow(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		a := listen(t, at)
		b, err := ListenUDP(UDPConfig{Addr: netip.MustParseAddrPort(at), Buffer: 8192})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		const sent = 100
		for range sent {
			if err := a.WriteBatch([]packet.Datagram{{To: b.LocalAddr(), Payload: make([]byte, 1000)}}); err != nil {
				t.Fatal(err)
			}
		}
		lost := b.Stats().ReadFull
		if lost == 0 || lost >= sent {
			t.Fatalf("%s: %d of %d are counted", at, lost, sent)
		}
		receive(t, b, sent-int(lost), MaxBatch)
		if err := a.WriteBatch([]packet.Datagram{{To: b.LocalAddr(), Payload: []byte{1}}}); err != nil {
			t.Fatal(err)
		}
		receive(t, b, 1, 1)
		if n := b.Stats().ReadFull; n != lost {
			t.Errorf("%s: then %d", at, n)
		}
		for range sent {
			_ = a.WriteBatch([]packet.Datagram{{To: b.LocalAddr(), Payload: make([]byte, 1000)}})
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if n := b.Stats().ReadFull; n <= lost {
			t.Errorf("%s: %d when it is closed, as before", at, n)
		}
	}
}

// Merging can be switched off and on where the kernel knows it, and a socket without
// room for it is left alone.
func TestUDPMerge(t *testing.T) {
	for _, small := range []bool{false, true} {
		u, err := ListenUDP(UDPConfig{Addr: netip.MustParseAddrPort("127.0.0.1:0"), Small: small})
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		merges := func() bool {
			v, err := unix.GetsockoptInt(u.guard.fd, unix.IPPROTO_UDP, unix.UDP_GRO)
			if err != nil {
				t.Skipf("this kernel does not merge: %v", err)
			}
			return v != 0
		}
		for _, on := range []bool{!small, false, true} {
			u.Merge(on)
			if merges() != (on && !small) {
				t.Errorf("small %v, switched to %v: merges %v", small, on, merges())
			}
		}
	}
	u, err := ListenUDP(UDPConfig{Addr: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	u.Close()
	u.Merge(false) // of a closed socket: nothing
}
