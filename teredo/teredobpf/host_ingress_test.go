// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredobpf

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// datagram is a frame that carries p from the peer.
func datagram(p []byte, change ...func(frame []byte)) []byte {
	ip := slices.Concat([]byte{0x45, 0, 0, 0, 0, 1, 0, 0, 64, 17, 0, 0}, rigPeer4.Addr().AsSlice(), rigOwn4.Addr().AsSlice())
	binary.BigEndian.PutUint16(ip[2:], uint16(28+len(p)))
	u := make([]byte, 8)
	binary.BigEndian.PutUint16(u, rigPeer4.Port())
	binary.BigEndian.PutUint16(u[2:], rigOwn4.Port())
	binary.BigEndian.PutUint16(u[4:], uint16(8+len(p)))
	f := slices.Concat(rigNearMAC, rigFarMAC, []byte{8, 0}, ip, u, p)
	for _, c := range change {
		c(f)
	}
	binary.BigEndian.PutUint16(f[24:], ^packet.Fold(packet.Sum(0, f[14:34])))
	return f
}

// set changes one byte of a frame.
func set(at int, b byte) func([]byte) { return func(f []byte) { f[at] = b } }

// What comes to the host: given to it by the TUN device, or left as it is.
func TestHostIngressPackets(t *testing.T) {
	onKernels(t, func(t *testing.T, r *hostRig) {
		other := netip.MustParseAddr("2001:db8::1")
		good := inner(rigPeer, rigOwn, packet.ProtoUDP, udp(100))
		now := func(*Endpoint) {}
		const forwarded = "host_decap_forwarded"
		for _, tt := range []struct {
			name        string
			frame       []byte
			heard, sent time.Duration
			established bool
			change      func(*Endpoint)
			want        string // "" is not even counted
		}{
			{"UDP", datagram(good), 0, 0, false, now, forwarded},
			{"TCP", datagram(inner(rigPeer, rigOwn, packet.ProtoTCP, tcp())), 0, 0, false, now, forwarded},
			{"ping", datagram(inner(rigPeer, rigOwn, packet.ProtoICMPv6, echo())), 0, 0, false, now, forwarded},
			{"of the largest size", datagram(inner(rigPeer, rigOwn, packet.ProtoUDP, udp(1280-48))), 0, 0, false, now, forwarded},
			{"with don't fragment", datagram(good, set(20, 0x40)), 0, 0, false, now, forwarded},
			{"peer heard not quite 28 min ago", datagram(good), 27 * time.Minute, 0, false, now, forwarded},
			{"peer heard 28 min ago", datagram(good), 28*time.Minute + coarse, 0, false, now, "expired_peer"},
			{"sent to lately, with the policy", datagram(good), 0, time.Hour - time.Minute, true, now, forwarded},
			{"not sent to lately, with the policy", datagram(good), 0, time.Hour + coarse, true, now, "unknown_peer"},
			{"not sent to lately, without", datagram(good), 0, time.Hour, false, now, forwarded},
			{"from an unknown peer", datagram(inner(other, rigOwn, packet.ProtoUDP, udp(4))), 0, 0, false, now, "unknown_peer"},
			{"from another address", datagram(good, set(29, 8)), 0, 0, false, now, "foreign_moved"},
			{"from another port", datagram(good, set(35, 1)), 0, 0, false, now, "foreign_moved"},
			{"to another port", datagram(good, set(37, 1)), 0, 0, false, now, "foreign_moved"},
			{"to another IPv4 address", datagram(good, set(33, 77)), 0, 0, false, now, "foreign_moved"},
			{"to another Teredo address", datagram(inner(rigPeer, rigPeer, packet.ProtoUDP, udp(4))), 0, 0, false, now, ""},
			{"trailer", datagram(append(slices.Clone(good), 1, 4, 0, 0, 0, 0)), 0, 0, false, now, "odd_length"},
			{"UDP length too small", datagram(good, set(39, 100)), 0, 0, false, now, "odd_length"},
			{"bubble", datagram(inner(rigPeer, rigOwn, packet.ProtoNone, make([]byte, 8))), 0, 0, false, now, "bubble"},
			{"destination options", datagram(inner(rigPeer, rigOwn, 60, make([]byte, 16))), 0, 0, false, now, "next_header"},
			{"redirect", datagram(inner(rigPeer, rigOwn, packet.ProtoICMPv6, append([]byte{137}, make([]byte, 39)...))), 0, 0, false, now, "next_header"},
			{"ping while a test may be answered", datagram(inner(rigPeer, rigOwn, packet.ProtoICMPv6, echo())), 0, 0, false, func(e *Endpoint) { e.Tested = true }, "busy_peer"},
			{"origin indication", datagram(append([]byte{0, 0, 1, 2, 3, 4, 5, 6}, good...)), 0, 0, false, now, ""},
			{"fragment", datagram(good, set(20, 0x20)), 0, 0, false, now, ""},
			{"later fragment", datagram(good, set(21, 1)), 0, 0, false, now, ""},
			{"options", datagram(good, set(14, 0x46)), 0, 0, false, now, ""},
			{"TCP over IPv4", datagram(good, set(23, 6)), 0, 0, false, now, ""},
			{"for another machine", datagram(good, set(5, 7)), 0, 0, false, now, ""},
			{"cut off", datagram(good)[:80], 0, 0, false, now, ""},
		} {
			t.Run(tt.name, func(t *testing.T) {
				if err := r.host.SetClient(rigOwn, HostClient{Number: 1, Established: tt.established}); err != nil {
					t.Fatal(err)
				}
				r.known(t, tt.heard, tt.sent, tt.change)
				before, err := r.host.Counters()
				if err != nil {
					t.Fatal(err)
				}
				forget(r.onTUN)
				start := monotonic()
				r.Far.Do(t, func() error {
					l, err := netlink.LinkByName("host")
					if err != nil {
						return err
					}
					return unix.Sendto(r.toWire, tt.frame, 0, &unix.SockaddrLinklayer{Ifindex: l.Attrs().Index})
				})
				want := map[string]uint64{}
				if tt.want != "" {
					want[tt.want] = 1
				}
				// A packet that is not counted is not waited for.
				got := r.counts(t, before)
				for end := time.Now().Add(testutil.Patience); len(got) < len(want) && time.Now().Before(end); got = r.counts(t, before) {
					time.Sleep(time.Millisecond)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("counters (-want +got):\n%s", diff)
				}
				heard, _ := r.host.Traffic(rigOwn)
				if tt.want != forwarded {
					if heard != 0 {
						t.Error("it counts as heard")
					}
					return
				}
				if got := take(r.onTUN); !slices.Equal(got, tt.frame[42:]) {
					t.Errorf("the host gets %x, not %x", got, tt.frame[42:])
				}
				if now := monotonic(); heard > now || heard < start-coarse {
					t.Errorf("heard at %v, between %v and %v", heard, start, now)
				}
			})
		}
	})
}

// Stamps move at most once a second, and never back.
func TestHostStamps(t *testing.T) {
	onKernels(t, func(t *testing.T, r *hostRig) {
		if err := r.host.SetClient(rigOwn, HostClient{Number: 1}); err != nil {
			t.Fatal(err)
		}
		stamps := func() (heard, sent time.Duration) {
			if err := r.host.Walk(func(_ uint32, _ [16]byte, h, s time.Duration) { heard, sent = h, s }); err != nil {
				t.Fatal(err)
			}
			return heard, sent
		}
		for _, tt := range []struct {
			name  string
			age   time.Duration
			moves bool
		}{
			{"young", 600 * time.Millisecond, false},
			{"a second old", time.Second + coarse, true},
			{"ahead of the coarse clock", -3 * time.Millisecond, false},
		} {
			t.Run(tt.name, func(t *testing.T) {
				var heard, sent time.Duration
				for conclusive := false; !conclusive; {
					r.known(t, tt.age, tt.age)
					heard, sent = stamps()
					r.exchange(t)
					// A machine that stood still has made young ones old.
					conclusive = tt.moves || monotonic()-min(heard, sent) < time.Second
				}
				nowHeard, nowSent := stamps()
				if (nowHeard > heard) != tt.moves || (nowSent > sent) != tt.moves || nowHeard < heard || nowSent < sent {
					t.Errorf("heard moved by %v, sent by %v", nowHeard-heard, nowSent-sent)
				}
			})
		}
	})
}

// exchange has one packet forwarded each way.
func (r *hostRig) exchange(t *testing.T) {
	t.Helper()
	before, err := r.host.Counters()
	if err != nil {
		t.Fatal(err)
	}
	to := &unix.SockaddrLinklayer{Ifindex: r.tunnel, Protocol: bits.ReverseBytes16(unix.ETH_P_IPV6)}
	if err := unix.Sendto(r.fromTUN, inner(rigOwn, rigPeer, packet.ProtoUDP, udp(4)), 0, to); err != nil {
		t.Fatal(err)
	}
	r.Far.Do(t, func() error {
		l, err := netlink.LinkByName("host")
		if err != nil {
			return err
		}
		return unix.Sendto(r.toWire, datagram(inner(rigPeer, rigOwn, packet.ProtoUDP, udp(4))), 0, &unix.SockaddrLinklayer{Ifindex: l.Attrs().Index})
	})
	for end := time.Now().Add(testutil.Patience); len(r.counts(t, before)) < 2 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}
