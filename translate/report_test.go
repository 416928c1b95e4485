// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/packet"
)

func TestReports(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	tr := translator(t, func(s *Settings) { s.UDPZeroChecksum = ZeroChecksumDrop })
	from := func(addr string, port uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(addr), port)
	}
	m := udp(9)
	src, dst := uint16(m[0])<<8|uint16(m[1]), uint16(m[2])<<8|uint16(m[3])
	for _, tt := range []struct {
		name string
		ip   []byte
		want Report
	}{
		{"no UDP checksum", v4{payload: m, keepSum: true}.bytes(), Report{ReasonUDPZeroChecksum, 17, from(host4, src), from(node4, dst), 0}},
		{"no UDP checksum in a first fragment", v4{mf: true, payload: udp(8)}.bytes(), Report{ReasonUDPZeroFragment, 17, from(host4, src), from(node4, dst), 0}},
		{"AH inside of a fragment", v6{frag: true, proto: protoAH, payload: data(24)}.bytes(), Report{ReasonFragmentExtension, protoAH, from(host6, 0), from(node6, 0), 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out packet.Batch
			handle := tr.IPv4
			if tt.ip[0]>>4 == 6 {
				handle = tr.IPv6
			}
			why := handle(tt.ip, testPath, &out).Reason
			var r Reports
			got, ok := r.Dropped(tt.ip, why, start)
			if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" || !ok {
				t.Fatalf("told %v (-want +got):\n%s", ok, diff)
			}
			for range 7 {
				if _, ok := r.Dropped(tt.ip, why, start.Add(time.Minute-1)); ok {
					t.Fatal("told twice in a minute")
				}
			}
			if again, ok := r.Dropped(tt.ip, why, start.Add(time.Minute)); !ok || again.Suppressed != 7 {
				t.Errorf("after a minute: %v, %+v", ok, again)
			}
			if again, ok := r.Dropped(tt.ip, why, start.Add(2*time.Minute)); !ok || again.Suppressed != 0 {
				t.Errorf("after two: %v, %+v", ok, again)
			}
		})
	}
	t.Run("each reason by itself, others never", func(t *testing.T) {
		var r Reports
		ip := v4{payload: m, keepSum: true}.bytes()
		_, first := r.Dropped(ip, ReasonUDPZeroChecksum, start)
		_, second := r.Dropped(ip, ReasonUDPZeroFragment, start)
		_, other := r.Dropped(ip, ReasonHopLimit, start)
		if !first || !second || other {
			t.Errorf("told %v, %v, %v", first, second, other)
		}
	})
	t.Run("no packet at all", func(t *testing.T) {
		var r Reports
		if told, ok := r.Dropped(nil, ReasonUDPZeroChecksum, start); !ok || told.Src.IsValid() {
			t.Errorf("told %v, %+v", ok, told)
		}
	})
}
