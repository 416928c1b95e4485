// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"net/netip"
	"testing"
	"time"
)

// newPair is two nodes on one link, a at .1 and b at .2.
func newPair(t *testing.T) (a, b *Node) {
	l, _ := newLab(t)
	a, b = l.Node("a"), l.Node("b")
	l.Link(a, "eth0", b, "eth0")
	a.Addr("eth0", "192.0.2.1/24", "2001:db8::1/64")
	b.Addr("eth0", "192.0.2.2/24", "2001:db8::2/64")
	mustDraw(t, l)
	return a, b
}

func TestPing(t *testing.T) {
	a, _ := newPair(t)
	for _, c := range []struct {
		situation string
		ping      Ping
		received  int
	}{
		{"IPv4", Ping{To: netip.MustParseAddr("192.0.2.2"), Count: 3, Interval: time.Millisecond, Timeout: mustArrive}, 3},
		{"IPv6 from a given address", Ping{To: netip.MustParseAddr("2001:db8::2"), From: netip.MustParseAddr("2001:db8::1"), Count: 3, Interval: time.Millisecond, Timeout: mustArrive}, 3},
		{"large, in fragments", Ping{To: netip.MustParseAddr("2001:db8::2"), Size: 9001, Timeout: mustArrive}, 1},
		{"odd size over IPv4", Ping{To: netip.MustParseAddr("192.0.2.2"), Size: 33, Timeout: mustArrive}, 1},
		{"nobody at home", Ping{To: netip.MustParseAddr("192.0.2.3"), Count: 2, Interval: time.Millisecond, Timeout: 50 * time.Millisecond}, 0},
		{"no route", Ping{To: netip.MustParseAddr("2001:db8:9::1"), Timeout: 50 * time.Millisecond}, 0},
	} {
		t.Run(c.situation, func(t *testing.T) {
			r, err := a.Ping(t.Context(), c.ping)
			if err != nil {
				t.Fatal(err)
			}
			if r.Received() != c.received || r.Sent() != max(c.ping.Count, 1) {
				t.Errorf("%d of %d answered, want %d: %v", r.Received(), r.Sent(), c.received, r.RTT)
			}
			if c.received > 0 && (r.First() <= 0 || r.Median() <= 0) {
				t.Errorf("no plausible times: %v", r.RTT)
			}
		})
	}
}

func TestParseOverruns(t *testing.T) {
	const text = "0012d6f1 00000efd 00000053 00000000\n0016bbd0 00000d22 00000055 00000000\n"
	if got := parseOverruns(text); got != 0xefd+0xd22 {
		t.Errorf("%d frames, want %d", got, 0xefd+0xd22)
	}
	if got := parseOverruns(""); got != 0 {
		t.Errorf("%d frames of no text", got)
	}
}

// Texts of Linux 6.18, shortened.
func TestParseUnsent(t *testing.T) {
	const (
		snmp = "Ip: Forwarding DefaultTTL\nIp: 1 64\nIcmp: InMsgs OutMsgs OutErrors OutRateLimitHost\nIcmp: 9 8 7 6\n" +
			"IcmpMsg: InType0 OutType8\nIcmpMsg: 3 4\nUdp: InDatagrams OutErrors\nUdp: 100 200\n"
		snmp6 = "Ip6InReceives                   \t500\nIcmp6OutMsgs                    \t60\nIcmp6OutErrors                  \t185\n"
	)
	if got := parseUnsent(snmp, snmp6); got != 7+185 {
		t.Errorf("%d messages, want %d", got, 7+185)
	}
	if got := parseUnsent("Icmp: 9 8 7 6\n", ""); got != 0 {
		t.Errorf("%d messages of values without names", got)
	}
}

func TestTransferIsIntact(t *testing.T) {
	a, b := newPair(t)
	r, err := Transfer(t.Context(), TransferConfig{Server: b, Addr: netip.MustParseAddr("2001:db8::2"), Client: a, Bytes: 1<<20 + 7})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Intact || r.Bytes != 1<<20+7 || r.Goodput() <= 0 {
		t.Errorf("unexpected result %+v", r)
	}
}

func TestTransferToUnreachableServerFails(t *testing.T) {
	a, b := newPair(t)
	b.Down("eth0")
	a.RemoveAddr("eth0", "2001:db8::1/64")
	mustDraw(t, a.Lab())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Transfer(ctx, TransferConfig{Server: b, Addr: netip.MustParseAddr("192.0.2.2"), Client: a, Bytes: 1}); err == nil {
		t.Error("no error")
	}
}
