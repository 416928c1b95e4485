// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/hex"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

var (
	here  = netip.MustParseAddr("2001:db8::1")
	there = netip.MustParseAddr("2001:db8::2")
	mac1  = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	mac2  = net.HardwareAddr{2, 0, 0, 0, 0, 2}
)

func TestPacket(t *testing.T) {
	for _, size := range []int{MinSize, MinTaggedSize, 512, 1280} {
		p := Packet(here, there, size)
		if len(p) != size {
			t.Errorf("%d bytes, want %d", len(p), size)
		}
		if packet.Checksum(p.SrcBytes(), p.DstBytes(), packet.ProtoUDP, p.Payload()) != 0 {
			t.Errorf("wrong checksum in %d bytes", size)
		}
		if _, ok := sequence(p); ok != (size >= MinTaggedSize) {
			t.Errorf("%d bytes: room for a sequence number: %v", size, ok)
		}
	}
}

func TestFrame4(t *testing.T) {
	got := hex.EncodeToString(Frame4(mac1, mac2, netip.MustParseAddrPort("192.0.2.1:4096"),
		netip.MustParseAddrPort("198.51.100.1:3545"), []byte{0xaa}))
	want := "020000000002" + "020000000001" + "0800" +
		"4500001d00000000" + "4011" + "8e9a" + "c0000201" + "c6336401" +
		"1000" + "0dd9" + "0009" + "0000" + "aa"
	if got != want {
		t.Errorf("Frame4 =\n%s, want\n%s", got, want)
	}
}

func TestStreamArrivesAtTap(t *testing.T) {
	testutil.NeedRoot(t)
	testutil.NewNetns(t).Do(t, func() error {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "v1", HardwareAddr: mac1}, PeerName: "v2", PeerHardwareAddr: mac2}
		if err := netlink.LinkAdd(pair); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"v1", "v2"} {
			link, err := netlink.LinkByName(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := netlink.LinkSetUp(link); err != nil {
				t.Fatal(err)
			}
		}
		tap, err := OpenTap("v2")
		if err != nil {
			t.Fatal(err)
		}
		defer tap.Close()
		sender, err := OpenSender("v1")
		if err != nil {
			t.Fatal(err)
		}
		defer sender.Close()

		frame := Frame6(mac1, mac2, Packet(here, there, 512))
		sent, err := sender.Stream(frame, 100, 20, time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		for i, at := range tap.Take(100, 20, patience) {
			if at.IsZero() || at.Before(sent[i].Add(-time.Millisecond)) {
				t.Errorf("packet %d, sent at %v, came at %v", i, sent[i], at)
			}
		}
		if lost := tap.Take(120, 1, time.Millisecond); !lost[0].IsZero() {
			t.Error("a packet that was not sent arrived")
		}
		n, took, err := sender.Blast(Frame6(mac1, mac2, Packet(here, there, MinSize)), 10*time.Millisecond)
		if err != nil || n == 0 || took < 10*time.Millisecond {
			t.Errorf("Blast: %d frames in %v, error %v", n, took, err)
		}
		return nil
	})
}
