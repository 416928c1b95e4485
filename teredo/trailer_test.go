// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredo

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

func TestTrailers(t *testing.T) {
	local, upnp := netip.MustParseAddrPort("192.168.1.2:3551"), netip.MustParseAddrPort("198.51.100.7:4096")
	tests := []struct {
		name, bytes string
		want        Trailers
		oneWay      bool // not what AppendTo writes
		err         error
	}{
		{name: "none"},
		{name: "nonce", bytes: "01 04 11223344", want: Trailers{HasNonce: true, Nonce: 0x11223344}},
		{
			name: "two alternate addresses", bytes: "03 0e 0000 c0a80102 0ddf c6336407 1000",
			want: Trailers{NumAlt: 2, Alternates: [4]netip.AddrPort{local, upnp}},
		},
		{name: "discovery solicitation", bytes: "04 04 00 000000", want: Trailers{Discovery: DiscoverySolicitation}},
		{name: "discovery advertisement", bytes: "04 04 01 000000", want: Trailers{Discovery: DiscoveryAdvertisement}},
		{name: "random port", bytes: "05 02 1000", want: Trailers{RandomPort: 4096}},
		{
			name: "fall-back relay", bytes: "c1 08 cb007103 0dd9 03 00",
			want: Trailers{Fallback: Fallback{Relay: netip.MustParseAddrPort("203.0.113.3:3545"), Symmetric: true, PortPreserving: true}},
		},
		{name: "fall-back relay without port", bytes: "c1 08 cb007103 0000 03 00", oneWay: true},
		{name: "fall-back relay of a wrong length", bytes: "c1 07 cb007103 0dd9 03", want: Trailers{Skipped: 1}, oneWay: true},
		{
			name: "all together", bytes: "01 04 11223344 03 08 0000 c0a80102 0ddf 04 04 00 000000 05 02 1000",
			want: Trailers{
				HasNonce: true, Nonce: 0x11223344, NumAlt: 1, Alternates: [4]netip.AddrPort{local},
				Discovery: DiscoverySolicitation, RandomPort: 4096,
			},
		},
		{
			name: "random port under the type of the registry table", bytes: "02 02 1000",
			want: Trailers{RandomPort: 4096}, oneWay: true,
		},
		{
			name: "unknown types that may be skipped", bytes: "00 00 80 01 ff c0 02 ffff 01 04 11223344",
			want: Trailers{HasNonce: true, Nonce: 0x11223344, Skipped: 3}, oneWay: true,
		},
		{name: "unknown type that forbids the packet", bytes: "01 04 11223344 40 00", err: FaultUnknownTrailer, oneWay: true,
			want: Trailers{HasNonce: true, Nonce: 0x11223344}},
		{
			name: "one byte left over", bytes: "01 04 11223344 01",
			want: Trailers{HasNonce: true, Nonce: 0x11223344, Malformed: true}, oneWay: true,
		},
		{
			name: "length that lies", bytes: "01 04 11223344 05 ff 1000",
			want: Trailers{HasNonce: true, Nonce: 0x11223344, Malformed: true}, oneWay: true,
		},
		{name: "nonce of a wrong length", bytes: "01 03 112233", want: Trailers{Skipped: 1}, oneWay: true},
		{name: "discovery type 2", bytes: "04 04 02 000000", want: Trailers{Skipped: 1}, oneWay: true},
		{name: "no alternate address", bytes: "03 02 0000", err: FaultBadAlternate, oneWay: true},
		{name: "alternate address without reserved field", bytes: "03 01 00", err: FaultBadAlternate, oneWay: true},
		{name: "half an alternate address", bytes: "03 05 0000 c0a801", err: FaultBadAlternate, oneWay: true},
		{name: "alternate port 0", bytes: "03 08 0000 c0a80102 0000", err: FaultBadAlternate, oneWay: true},
		{name: "alternate address multicast", bytes: "03 08 0000 e0000001 0ddf", err: FaultBadAlternate, oneWay: true},
		{name: "alternate address loopback", bytes: "03 08 0000 7f000001 0ddf", err: FaultBadAlternate, oneWay: true},
		{
			name: "five alternate addresses", err: FaultBadAlternate, oneWay: true,
			bytes: "03 20 0000 c0a80102 0ddf c0a80102 0ddf c0a80102 0ddf c0a80102 0ddf c0a80102 0ddf",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := testutil.Unhex(t, tt.bytes)
			got, err := ParseTrailers(b)
			if err != tt.err {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, got, compareNetip); diff != "" {
				t.Errorf("ParseTrailers (-want +got):\n%s", diff)
			}
			if tt.oneWay {
				return
			}
			back := got.AppendTo(nil)
			if !bytes.Equal(back, b) {
				t.Errorf("AppendTo = %x, want %x", back, b)
			}
			if len(back) > MaxTrailersLen {
				t.Errorf("%d bytes, MaxTrailersLen is %d", len(back), MaxTrailersLen)
			}
		})
	}
}

func FuzzTrailers(f *testing.F) {
	f.Add(testutil.Unhex(f, "01 04 11223344 03 0e 0000 c0a80102 0ddf c6336407 1000 04 04 00 000000 05 02 1000"))
	f.Add(testutil.Unhex(f, "80 00 40 00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		first, err := ParseTrailers(b)
		if err != nil {
			return
		}
		again, err := ParseTrailers(first.AppendTo(nil))
		if err != nil {
			t.Fatal(err)
		}
		first.Skipped, first.Malformed = 0, false
		if diff := cmp.Diff(first, again, compareNetip); diff != "" {
			t.Fatalf("read, written and read again (-first +second):\n%s", diff)
		}
	})
}
