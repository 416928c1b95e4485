// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
	"github.com/isthmus-net/isthmus/translate/nat64"
)

// TestFragmentFloods: UDP packets in fragments pass both ways between kernels while the
// rooms for fragments of both directions are full, of another client's and of forged ones.
func TestFragmentFloods(t *testing.T) {
	w := gatewaytest.NewWorld(t)
	c := testSettings(t)
	c.ClientLength = 128
	n := start(t, w, c)
	f := newFlow(t, w, 7000)
	from4, from6 := rawSender(t, w.Four, unix.AF_INET), rawSender(t, w.Six, unix.AF_INET6)
	large := strings.Repeat("fragments", 400)
	for round := range 3 {
		for i := range 5000 {
			id := round*5000 + i
			from4(fragment4(netip.AddrFrom4([4]byte{20, byte(id >> 16), byte(id >> 8), byte(id)}), poolAddr, uint16(id)))
			from6(fragment6(netip.MustParseAddr("2001:db8:6::bad"), poolFour6, uint32(id)))
			if i%100 == 99 { // no more than the device's queue takes
				f.passes(t)
			}
		}
		f.six.Send(t, f.to, large)
		f.four.Wants(t, large, 63)
		f.four.Send(t, f.pool, large)
		f.six.Wants(t, large, 63)
	}
	var s nat64.Stats
	n.do(func(e *nat64.Engine, _ time.Time, _ *nat64.Out) { s = e.Stats() })
	if s.Dropped[nat64.FragmentEvicted] == 0 || s.Dropped[nat64.FragmentsSource] == 0 {
		t.Errorf("%d fragments gave way to others and %d to the same client's", s.Dropped[nat64.FragmentEvicted], s.Dropped[nat64.FragmentsSource])
	}
}

// rawSender sends packets as they are from a namespace.
func rawSender(t *testing.T, ns *testutil.Netns, family int) func(ip []byte) {
	t.Helper()
	var fd int
	ns.Do(t, func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return err
	})
	t.Cleanup(func() { unix.Close(fd) })
	return func(ip []byte) {
		var to unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte(ip[16:20])}
		if family == unix.AF_INET6 {
			to = &unix.SockaddrInet6{Addr: [16]byte(ip[24:40])}
		}
		if err := unix.Sendto(fd, ip, 0, to); err != nil {
			t.Fatal(err)
		}
	}
}

// fragment4 and fragment6 are fragments of 8 octets from the middle of a UDP packet. The
// kernel fills in length and checksum of the first.
func fragment4(src, dst netip.Addr, id uint16) []byte {
	b := make([]byte, 28)
	b[0], b[6], b[7], b[8], b[9] = 0x45, 0x20, 8, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(b[4:], id)
	copy(b[12:], src.AsSlice())
	copy(b[16:], dst.AsSlice())
	return b
}

func fragment6(src, dst netip.Addr, id uint32) []byte {
	b := make([]byte, 56)
	b[0], b[5], b[6], b[7] = 0x60, 16, unix.IPPROTO_FRAGMENT, 64
	copy(b[8:], src.AsSlice())
	copy(b[24:], dst.AsSlice())
	b[40], b[43] = unix.IPPROTO_UDP, 8<<3|1
	binary.BigEndian.PutUint32(b[44:], id)
	return b
}
