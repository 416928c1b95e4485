// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clat

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
)

// echo4 and echo6 are an echo request and a reply of that many octets with their checksums.
func echo4(size int) []byte {
	m := make([]byte, size)
	_, _ = rand.Read(m)
	copy(m, []byte{8, 0, 0, 0})
	binary.BigEndian.PutUint16(m[2:], ^packet.Fold(packet.Sum(0, m)))
	return m
}

func echo6(src, dst netip.Addr, size int) []byte {
	m := make([]byte, size)
	_, _ = rand.Read(m)
	copy(m, []byte{packet.ICMPv6EchoReply, 0, 0, 0})
	from, to := src.As16(), dst.As16()
	binary.BigEndian.PutUint16(m[2:], packet.Checksum(&from, &to, packet.ProtoICMPv6, m))
	return m
}

// cut4 and cut6 cut a message into packets of so much payload.
func cut4(src, dst netip.Addr, id uint16, m []byte, unit int) (list [][]byte) {
	for at := 0; at < len(m); at += unit {
		piece := m[at:min(at+unit, len(m))]
		p := make([]byte, 20, 20+len(piece))
		p[0], p[8], p[9] = 0x45, 64, 1
		binary.BigEndian.PutUint16(p[2:], uint16(20+len(piece)))
		binary.BigEndian.PutUint16(p[4:], id)
		word := uint16(at / 8)
		if at+unit < len(m) {
			word |= 0x2000
		}
		binary.BigEndian.PutUint16(p[6:], word)
		copy(p[12:], src.AsSlice())
		copy(p[16:], dst.AsSlice())
		binary.BigEndian.PutUint16(p[10:], ^packet.Fold(packet.Sum(0, p)))
		list = append(list, append(p, piece...))
	}
	return list
}

func cut6(src, dst netip.Addr, id uint32, m []byte, unit int) (list [][]byte) {
	for at := 0; at < len(m); at += unit {
		piece := m[at:min(at+unit, len(m))]
		p := packet.AppendIPv6Header(nil, 44, 64, 8+len(piece), src, dst)
		word := uint16(at)
		if at+unit < len(m) {
			word |= 1
		}
		p = binary.BigEndian.AppendUint16(append(p, packet.ProtoICMPv6, 0), word)
		p = binary.BigEndian.AppendUint32(p, id)
		list = append(list, append(p, piece...))
	}
	return list
}

// join puts what came out together, and fails if it is not all of one message, each octet once.
func join(t *testing.T, pkts [][]byte) (m []byte) {
	t.Helper()
	type piece struct {
		translate.View
		packet []byte
	}
	var pieces []piece
	for _, p := range pkts {
		v, bad := translate.ViewIPv4(p)
		if p[0]>>4 == 6 {
			v, bad = translate.ViewIPv6(p)
		}
		if bad != translate.ReasonNone {
			t.Fatalf("came out %x: %s", p, bad)
		}
		pieces = append(pieces, piece{v, p})
	}
	slices.SortFunc(pieces, func(a, b piece) int { return a.Offset - b.Offset })
	for i, p := range pieces {
		if p.Offset != len(m) || p.More != (i < len(pieces)-1) || p.ID != pieces[0].ID {
			t.Fatalf("fragment %d begins at %d, behind %d octets; more %t", i, p.Offset, len(m), p.More)
		}
		m = append(m, p.Payload...)
	}
	return m
}

// TestPingFragments: fragments of pings pass both ways, whatever their order (RFC 7915 section
// 1.2 says why a translator has to know the whole message's length).
func TestPingFragments(t *testing.T) {
	for _, size := range []int{1488, 3008, 10008, 65515} {
		pieces := (size + 1479) / 1480
		orders := map[string]func(i int) int{
			"in order":          func(i int) int { return i },
			"reversed":          func(i int) int { return pieces - 1 - i },
			"last before first": func(i int) int { return (i + pieces - 1) % pieces },
		}
		for name, order := range orders {
			t.Run(fmt.Sprintf("%d out, %s", size, name), func(t *testing.T) {
				e := owning(t, settings())
				m := echo4(size)
				fragments := cut4(HostIPv4, site4, 9, m, 1480)
				var out packet.Batch
				for i := range fragments {
					e.HandleHost(fragments[order(i)], start, &out)
				}
				for _, p := range out.IP {
					if len(p) > 1280 || packet.IPv6(p).Src() != own || packet.IPv6(p).Dst() != site6 || packet.IPv6(p).HopLimit() != 63 {
						t.Fatalf("sent %x", p[:48])
					}
				}
				got := join(t, out.IP)
				src, dst := own.As16(), site6.As16()
				if got[0] != packet.ICMPv6EchoRequest || !bytes.Equal(got[4:], m[4:]) || packet.Checksum(&src, &dst, packet.ProtoICMPv6, got) != 0 {
					t.Error("another message, or one with a wrong checksum, was sent")
				}
				idle(t, e)
			})
			t.Run(fmt.Sprintf("%d in, %s", size, name), func(t *testing.T) {
				e := owning(t, settings())
				m := echo6(site6, own, size)
				fragments := cut6(site6, own, 0x10009, m, 1480)
				var out packet.Batch
				for i := range fragments {
					e.HandleLink(fragments[order(i)], start, &out)
				}
				got := join(t, out.IP)
				if got[0] != 0 || !bytes.Equal(got[4:], m[4:]) || packet.Fold(packet.Sum(0, got)) != 0xffff {
					t.Error("another message, or one with a wrong checksum, was received")
				}
				idle(t, e)
			})
		}
	}
}

// idle fails if an engine remembers anything.
func idle(t *testing.T, e *Engine) {
	t.Helper()
	if !e.Next().IsZero() || e.outward.waiting+e.inward.waiting != 0 {
		t.Errorf("it waits until %v, with %d and %d messages", e.Next(), e.outward.waiting, e.inward.waiting)
	}
}

func dropped(e *Engine, reason string) (n uint64) {
	e.EachDropped(func(r string, count uint64) {
		if r == reason {
			n = count
		}
	})
	return n
}

func TestPingFragmentsRefused(t *testing.T) {
	message := cut4(HostIPv4, site4, 9, echo4(4000), 1480)
	t.Run("the last does not come", func(t *testing.T) {
		e := owning(t, settings())
		var out packet.Batch
		e.HandleHost(message[0], start, &out)
		if at := e.Next(); len(out.IP) != 0 || !at.Equal(start.Add(fragmentTime)) {
			t.Fatalf("%d packets, ends at %v", len(out.IP), at)
		}
		e.Tick(start.Add(fragmentTime-1), &out)
		e.Tick(start.Add(fragmentTime), &out)
		e.HandleHost(message[2], start.Add(fragmentTime), &out)
		if n := dropped(e, "fragment_timeout"); n != 1 || len(out.IP) != 1 {
			t.Errorf("%d dropped, sent %x", n, out.IP)
		}
		e.Tick(start.Add(2*fragmentTime), &out)
		idle(t, e)
	})
	t.Run("the first comes twice", func(t *testing.T) {
		e := owning(t, settings())
		var out packet.Batch
		for _, i := range []int{0, 0, 1, 2} {
			e.HandleHost(message[i], start, &out)
		}
		if n := dropped(e, "fragment_duplicate"); n != 1 {
			t.Errorf("%d dropped", n)
		}
		join(t, out.IP)
	})
	t.Run("longer than IPv4 can carry", func(t *testing.T) {
		e := owning(t, settings())
		var out packet.Batch
		for _, p := range cut6(site6, own, 9, echo6(site6, own, 65520), 65512)[1:] {
			e.HandleLink(p, start, &out)
		}
		if n := dropped(e, "fragmented_icmp"); n != 1 || len(out.IP) != 0 {
			t.Errorf("%d dropped, received %x", n, out.IP)
		}
		idle(t, e)
	})
	t.Run("an error", func(t *testing.T) {
		e := owning(t, settings())
		var out packet.Batch
		m := echo4(2000)
		m[0] = 3
		e.HandleHost(cut4(HostIPv4, site4, 9, m, 1480)[0], start, &out)
		if n := dropped(e, "fragmented_icmp"); n != 1 || len(out.IP) != 0 {
			t.Errorf("%d dropped, sent %x", n, out.IP)
		}
		idle(t, e)
	})
	// Messages of others pass whatever one source sends.
	t.Run("a flood", func(t *testing.T) {
		e := owning(t, settings())
		flooder := netip.MustParseAddr("2001:db8:64::c633:6463")
		var out packet.Batch
		ping := cut6(site6, own, 9, echo6(site6, own, 4000), 1232)
		e.HandleLink(ping[0], start, &out)
		for id := range uint32(3 * maxMessages) {
			e.HandleLink(cut6(flooder, own, id, echo6(flooder, own, 2000), 1232)[0], start.Add(time.Millisecond), &out)
		}
		for _, p := range ping[1:] {
			e.HandleLink(p, start.Add(time.Second), &out)
		}
		join(t, out.IP)
		if n := dropped(e, "fragment_evicted"); n != 2*maxMessages+1 {
			t.Errorf("%d gave way", n)
		}
		for at := e.Next(); !at.IsZero(); at = e.Next() {
			e.Tick(at, &out)
		}
		idle(t, e)
	})
}

func TestNoAllocationOfFragments(t *testing.T) {
	e := owning(t, settings())
	fragments := cut4(HostIPv4, site4, 9, echo4(4000), 1480)
	var out packet.Batch
	if n := testing.AllocsPerRun(200, func() {
		out.Reset()
		for _, p := range fragments {
			e.HandleHost(p, start, &out)
		}
	}); n != 0 {
		t.Errorf("%v allocations a message", n)
	}
}
