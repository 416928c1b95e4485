// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import (
	"bytes"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestBitRates holds rates against their octets (TS 24.008 section 10.5.6.5).
func TestBitRates(t *testing.T) {
	for _, row := range []struct {
		rate                      BitRate
		base, extended, extended2 byte
	}{
		{0, 0, 0, 0},
		{RateZero, 0xff, 0, 0},
		{1, 0x01, 0, 0},
		{63, 0x3f, 0, 0},
		{64, 0x40, 0, 0},
		{128, 0x48, 0, 0},
		{568, 0x7f, 0, 0},
		{576, 0x80, 0, 0},
		{2048, 0x97, 0, 0},
		{8640, 0xfe, 0, 0},
		{8700, 0xfe, 0x01, 0},
		{16_000, 0xfe, 0x4a, 0},
		{17_000, 0xfe, 0x4b, 0},
		{128_000, 0xfe, 0xba, 0},
		{130_000, 0xfe, 0xbb, 0},
		{256_000, 0xfe, 0xfa, 0},
		{260_000, 0xfe, 0xfa, 0x01},
		{500_000, 0xfe, 0xfa, 0x3d},
		{510_000, 0xfe, 0xfa, 0x3e},
		{1_500_000, 0xfe, 0xfa, 0xa1},
		{1_600_000, 0xfe, 0xfa, 0xa2},
		{10_000_000, 0xfe, 0xfa, 0xf6},
	} {
		if got := bitRate(row.base, row.extended, row.extended2); got != row.rate {
			t.Errorf("%x %x %x is %d, want %d", row.base, row.extended, row.extended2, got, row.rate)
		}
		if b, e, e2 := row.rate.octets(true, true); b != row.base || e != row.extended || e2 != row.extended2 {
			t.Errorf("%d is %x %x %x, want %x %x %x", row.rate, b, e, e2, row.base, row.extended, row.extended2)
		}
	}
	for rate, want := range map[BitRate]BitRate{575: 568, 8699: 8640, 16_999: 16_000, 259_999: 256_000, 1_599_999: 1_500_000, 4_000_000_000: 10_000_000} {
		if got := bitRate(rate.octets(true, true)); got != want {
			t.Errorf("%d is rounded to %d, want %d", rate, got, want)
		}
	}
	for octet, want := range map[byte]BitRate{0xfb: 256_000, 0xff: 256_000} {
		if got := bitRate(0xfe, octet, 0); got != want {
			t.Errorf("reserved octet %x is %d", octet, got)
		}
	}
	if rate, ok := RateZero.KilobitsPerSecond(); rate != 0 || !ok {
		t.Errorf("no traffic is %d, %v", rate, ok)
	}
	if rate, ok := BitRate(0).KilobitsPerSecond(); rate != 0 || ok {
		t.Errorf("subscribed is %d, %v", rate, ok)
	}
}

// TestProfile reads profiles of every release.
func TestProfile(t *testing.T) {
	const r99 = "02 23721f 71964068 7405 1f48"
	p := mustQoS(r99 + " 11 2a2b 0c0d 3132 3334").Profile()
	want := Profile{
		Priority: 2, Delay: 4, Reliability: 3, Peak: 7, Precedence: 2, Mean: 31,
		Class: ClassInteractive, DeliveryOrder: 2, ErroneousSDU: 1, MaxSDU: 0x96,
		MaxUp: 256_000 + 4*0x33*1000, MaxDown: 256_000 + 4*0x31*1000,
		ResidualBER: 7, SDUError: 4, TransferDelay: 1, HandlingPriority: 1,
		GuaranteedUp: 256_000 + 4*0x34*1000, GuaranteedDown: 256_000 + 4*0x32*1000,
		Signalling: true, SourceStatistics: 1,
	}
	if p != want {
		t.Errorf("read\n%+v, want\n%+v", p, want)
	}
	if p.MaxSDUOctets() != 1500 || p.DelayMilliseconds() != 10 {
		t.Errorf("packets of %d octets in %d ms", p.MaxSDUOctets(), p.DelayMilliseconds())
	}
	// Octets for the release of each length; rates of the uplink get theirs later.
	for _, row := range []struct {
		wire     string
		up, down BitRate
	}{
		{"01 0b921f", 0, 0},
		{r99, 64, 384},
		{r99 + "00", 64, 384},
		{r99 + "00 2a 2b", 64, 8600 + 4200},
		{r99 + "00 2a 2b 0c 0d", 8600 + 1200, 8600 + 4200},
		{r99 + "00 2a 2b 0c 0d 01020304", 268_000, 260_000},
	} {
		q := mustQoS(row.wire)
		if p := q.Profile(); p.MaxUp != row.up || p.MaxDown != row.down || q.Len() != len(testutil.Unhex(t, row.wire)) {
			t.Errorf("%s: %d up, %d down, %d octets", row.wire, p.MaxUp, p.MaxDown, q.Len())
		}
	}
	for octet, want := range map[uint8]int{0: 0, 150: 1500, 0x97: 1502, 0x98: 1510, 0x99: 1520, 0x9a: 0} {
		if got := (Profile{MaxSDU: octet}).MaxSDUOctets(); got != want {
			t.Errorf("size %#x is %d", octet, got)
		}
	}
	for octet, want := range map[uint8]int{0: 0, 0x0f: 150, 0x10: 200, 0x1f: 950, 0x20: 1000, 0x3e: 4000, 0x3f: 0} {
		if got := (Profile{TransferDelay: octet}).DelayMilliseconds(); got != want {
			t.Errorf("delay %#x is %d", octet, got)
		}
	}
}

// TestProfileLengths reads a profile cut to each length, as releases and what lies between them have it: each octet
// counts that is there, what stands behind the last is ignored, and as much goes back as came.
func TestProfileLengths(t *testing.T) {
	const whole = "02 23721f 7196fefe 7405fefe 11 fafa fafa 31323334 ffff"
	octets := testutil.Unhex(t, whole)
	for _, row := range []struct {
		length                       int
		class                        TrafficClass
		up, down, fixedUp, fixedDown BitRate // at most, and guaranteed
	}{
		{4, 0, 0, 0, 0, 0}, // release 97
		{5, ClassInteractive, 0, 0, 0, 0},
		{6, ClassInteractive, 0, 0, 0, 0},
		{7, ClassInteractive, 8640, 0, 0, 0},
		{8, ClassInteractive, 8640, 8640, 0, 0},
		{9, ClassInteractive, 8640, 8640, 0, 0},
		{10, ClassInteractive, 8640, 8640, 0, 0},
		{11, ClassInteractive, 8640, 8640, 8640, 0},
		{12, ClassInteractive, 8640, 8640, 8640, 8640}, // release 99
		{13, ClassInteractive, 8640, 8640, 8640, 8640}, // release 5
		{14, ClassInteractive, 8640, 256_000, 8640, 8640},
		{15, ClassInteractive, 8640, 256_000, 8640, 256_000}, // release 5 and 6
		{16, ClassInteractive, 256_000, 256_000, 8640, 256_000},
		{17, ClassInteractive, 256_000, 256_000, 256_000, 256_000}, // release 7
		{18, ClassInteractive, 256_000, 452_000, 256_000, 256_000},
		{19, ClassInteractive, 256_000, 452_000, 256_000, 456_000},
		{20, ClassInteractive, 460_000, 452_000, 256_000, 456_000},
		{21, ClassInteractive, 460_000, 452_000, 464_000, 456_000}, // release 9
		{22, ClassInteractive, 460_000, 452_000, 464_000, 456_000},
		{23, ClassInteractive, 460_000, 452_000, 464_000, 456_000},
	} {
		q, ok := ParseQoS(octets[:row.length])
		p, kept := q.Profile(), min(row.length, maxQoS)
		if !ok || q.Len() != kept || !bytes.Equal(q.Octets(), octets[:kept]) {
			t.Errorf("%d octets: %x, %v", row.length, q.Octets(), ok)
		}
		if p.Priority != 2 || p.Delay != 4 || p.Peak != 7 || p.Mean != 31 || p.Class != row.class || p.Signalling != (row.length > 12) {
			t.Errorf("%d octets: %+v", row.length, p)
		}
		if p.MaxUp != row.up || p.MaxDown != row.down || p.GuaranteedUp != row.fixedUp || p.GuaranteedDown != row.fixedDown {
			t.Errorf("%d octets: rates %d, %d, %d, %d", row.length, p.MaxUp, p.MaxDown, p.GuaranteedUp, p.GuaranteedDown)
		}
		if back := p.QoS(q.Len()); back != q {
			t.Errorf("%d octets come back as %x", row.length, back.Octets())
		}
	}
	for length := range 4 {
		if _, ok := ParseQoS(octets[:length]); ok {
			t.Errorf("%d octets are taken", length)
		}
	}
}

// TestProfileGoesBack writes a profile at the length it came, and never at more.
func TestProfileGoesBack(t *testing.T) {
	for _, wire := range []string{
		"01 0b921f", "01 0b921f 71964068 7404 1f48", "01 0b921f 71964068 7404 1f48 11",
		"01 0b921f 7196fefe 7404 fefe 11 2a2b", "01 0b921f 7196fefe 7404 fefe 11 2a2b 0c0d", "01 0b921f 7196fefe 7404 fefe 11 fafa fafa 01020304",
	} {
		q := mustQoS(wire)
		if got := q.Profile().QoS(q.Len()); got != q {
			t.Errorf("%s comes back as %x", wire, got.octets[:got.n])
		}
	}
	q := mustQoS("01 0b921f 71964068 7404 1f48 11 2a2b 0c0d 01020304 ffff")
	if q.Len() != 21 {
		t.Errorf("%d octets are kept", q.Len())
	}
	high := Profile{Class: ClassBackground, MaxUp: 20_000, MaxDown: 300_000}
	for length, want := range map[int]string{
		3: "00 000000", 4: "00 000000", 12: "00 000000 8000fefe 0000 0000", 15: "00 000000 8000fefe 0000 0000 00 fa00",
		17: "00 000000 8000fefe 0000 0000 00 fa00 4e00", 21: "00 000000 8000fefe 0000 0000 00 fa00 4e00 0b000000",
		99: "00 000000 8000fefe 0000 0000 00 fa00 4e00 0b000000",
	} {
		if got := high.QoS(length); !bytes.Equal(got.octets[:got.n], testutil.Unhex(t, want)) {
			t.Errorf("at %d octets: %x, want %s", length, got.octets[:got.n], want)
		}
	}
	// Version 0 gives and takes the octets of release 97.
	_, v0 := qosFormat(V0)
	if got, ok := v0.parse(testutil.Unhex(t, "000b92")); !ok || got != mustQoS("00 000b92") {
		t.Errorf("%v, %v", got, ok)
	}
	if got := v0.append(nil, sampleQoS); !bytes.Equal(got, testutil.Unhex(t, "0b921f")) {
		t.Errorf("written %x", got)
	}
}

// TestTrafficClasses reads the third octet of a profile, and writes it: class, order of delivery and erroneous packets (TS
// 24.008 section 10.5.6.5).
func TestTrafficClasses(t *testing.T) {
	for octet, want := range map[string]Profile{
		"00": {Class: ClassSubscribed},
		"29": {Class: ClassConversational, DeliveryOrder: 1, ErroneousSDU: 1},
		"51": {Class: ClassStreaming, DeliveryOrder: 2, ErroneousSDU: 1},
		"6a": {Class: ClassInteractive, DeliveryOrder: 1, ErroneousSDU: 2},
		"93": {Class: ClassBackground, DeliveryOrder: 2, ErroneousSDU: 3},
	} {
		q := mustQoS("00 000000 " + octet + " 000000 0000 0000")
		got := Profile{Class: q.Profile().Class, DeliveryOrder: q.Profile().DeliveryOrder, ErroneousSDU: q.Profile().ErroneousSDU}
		if got != want {
			t.Errorf("%s is %+v, want %+v", octet, got, want)
		}
		if back := q.Profile().QoS(12); back != q {
			t.Errorf("%s comes back as %x", octet, back.octets[:back.n])
		}
	}
}
