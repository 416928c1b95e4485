// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

func TestDrops(t *testing.T) {
	natted := func(c *Config) {
		c.Primary, c.AdvertisedPrimary = netip.MustParseAddr("192.0.2.4"), netip.MustParseAddr("203.0.113.1")
		c.Secondary = netip.Addr{}
	}
	broadcast := func(c *Config) { c.Global.Broadcasts = []netip.Addr{netip.MustParseAddr("192.0.2.1")} }
	seen := map[Reason]bool{}
	for _, tt := range []struct {
		name string
		edit func(*Config)
		from string
		in   string
		want Reason
	}{
		{"empty datagram", nil, clientAddr, "", Truncated},
		{"header cut short", nil, clientAddr, bubble(255, client, peer)[:78], Truncated},
		{"authentication whose lengths lie", nil, clientAddr, "0001ffff" + nonce + "00" + rsMiredo, Truncated},
		{"IPv4 packet", nil, clientAddr, "45000054" + rsMiredo, NotIPv6},
		{"unknown indication", nil, clientAddr, "0002" + rsMiredo, NotIPv6},
		{"payload length beyond the datagram", nil, clientAddr, "6000000000093aff" + linkMiredo + allRoutersHex + "85007d3700000000", BadLength},
		{"two authentications", nil, clientAddr, "00010000" + nonce + "00" + "00010000" + nonce + "00" + rsMiredo, IndicationOrder},
		{"origin before authentication", nil, clientAddr, origin + "00010000" + nonce + "00" + rsMiredo, IndicationOrder},
		{"own primary address and port", nil, "203.0.113.1:3544", rsMiredo, SourceSelf},
		{"own secondary address and port", nil, "203.0.113.2:3544", rsMiredo, SourceSelf},
		{"own bound address behind a 1:1 NAT", natted, "192.0.2.4:3544", rsMiredo, SourceSelf},
		{"own public address behind a 1:1 NAT", natted, "203.0.113.1:3544", rsMiredo, SourceSelf},
		{"from UDP port 0", nil, "198.51.100.7:0", rsMiredo, PortZero},
		{"to a mapped port 0", nil, otherAddr, bubble(255, native, "20010000cb0071010000ffff3ffffdfe"), PortZero},
		{"packet above the MTU", nil, clientAddr, "6000000004d93a40" + client + native + strings.Repeat("00", 0x4d9), Oversized},
		{"bubble that hides data as trailers", nil, clientAddr, bubble(255, client, peer) + strings.Repeat("7fff", 129), Oversized},
		{"TCP", nil, clientAddr, "6000000000140640" + client + native + strings.Repeat("00", 20), NotCarried},
		{"no next header, but a payload", nil, clientAddr, "6000000000043b40" + client + native + "00000000", NotCarried},
		{"ICMPv6 behind an extension header", nil, clientAddr, "6000000000103c40" + client + native + "3a00010400000000" + "8000000000000000", NotCarried},
		{"ICMPv6 message of 7 bytes", nil, clientAddr, "6000000000073a40" + client + native + "80000000000000", ShortICMPv6},
		{"from a private address", nil, "192.168.1.2:3551", rsMiredo, SourceNotGlobal},
		{"from loopback", nil, "127.0.0.1:3551", rsMiredo, SourceNotGlobal},
		{"solicitation with hop limit 254", nil, clientAddr, "6000000000083afe" + linkMiredo + allRoutersHex + "85007d3700000000", BadSolicitation},
		{"solicitation with an option of length 0", nil, clientAddr, "6000000000103aff" + linkMiredo + allRoutersHex + "85007c2f00000000" + "0100000000000000", BadSolicitation},
		{"solicitation with a wrong checksum", nil, clientAddr, "6000000000083aff" + linkMiredo + allRoutersHex + "85007d3800000000", BadChecksum},
		{"echo request to us with a wrong checksum", nil, clientAddr, "6000000000103a40" + client + linkServer + "8000e4df" + echoData, BadChecksum},
		{"Teredo source with another port", nil, "198.51.100.7:40001", bubble(255, client, peer), SourceMismatch},
		{"Teredo source with another address", nil, "198.51.100.8:40000", echo(64), SourceMismatch},
		{"unspecified source", nil, otherAddr, bubble(255, strings.Repeat("00", 16), peer), SourceNotUnicast},
		{"loopback source", nil, otherAddr, bubble(255, strings.Repeat("00", 15)+"01", peer), SourceNotUnicast},
		{"multicast source", nil, otherAddr, bubble(255, allRoutersHex, peer), SourceNotUnicast},
		{"native to native", nil, otherAddr, bubble(255, native, native), NotServed},
		{"native to native with our address where a client's has its server", nil, otherAddr, bubble(255, native, "20010db8cb0071010000efff3ffffdfe"), NotServed},
		{"native to a client of another server", nil, otherAddr, bubble(255, native, clientAbroad), NotServed},
		{"bubble to all routers", nil, clientAddr, bubble(255, linkMiredo, allRoutersHex), NotServed},
		{"echo request from a link-local address to ours", nil, clientAddr, "6000000000103a40" + linkMiredo + linkServer + "80000000" + echoData, NotServed},
		{"behind a 1:1 NAT: address that names the bound one", natted, otherAddr, bubble(255, native, "20010000c00002040000efff3ffffdfe"), NotServed},
		{"source above its rate", func(c *Config) { c.PerSource = ratelimit.PerSecond(1, 1) }, clientAddr, rsMiredo, RateLimitSource},
		{"all above their rate", func(c *Config) { c.Total = ratelimit.PerSecond(1, 1) }, clientAddr, rsMiredo, RateLimitTotal},
		{"no key where one is required", required, clientAddr, "00010000" + nonce + "00" + rsMiredo, AuthMissing},
		{"unknown key where one is required", required, clientAddr, auth(nobody, valueRS1, "00") + rsMiredo, AuthUnknownClient},
		{"value of another key", required, clientAddr, auth(south, valueRS1, "00") + rsMiredo, AuthWrongValue},
		{"cone bit at a single-address server", singleAddress, clientAddr, rsMiredoCone, ConeUnanswerable},
		{"solicitation from a global address", nil, clientAddr, "6000000000083aff" + client + allRoutersHex + "8500e63000000000", LocalUnhandled},
		{"bubble to our link-local address", nil, clientAddr, bubble(255, client, linkServer), LocalUnhandled},
		{"advertisement to a client through us", nil, otherAddr, "6000000000103aff" + linkRelay + peer + "86000000" + strings.Repeat("00", 12), NeighborDiscovery},
		{"redirect to a native host", nil, clientAddr, "6000000000083aff" + client + native + "8900000000000000", NeighborDiscovery},
		{"multicast destination", nil, clientAddr, bubble(255, client, "ff0e0000000000000000000000000001"), DestinationNotGlobal},
		{"link-local destination that is not ours", nil, clientAddr, bubble(255, client, linkRelay), DestinationNotGlobal},
		{"unique local destination", nil, clientAddr, bubble(255, client, "fd000000000000000000000000000001"), DestinationNotGlobal},
		{"loopback destination", nil, clientAddr, bubble(255, client, strings.Repeat("00", 15)+"01"), DestinationNotGlobal},
		{"mapped to a private address", nil, clientAddr, bubble(255, client, "20010000cb0071010000efff3f57fefd"), MappedNotGlobal},
		{"mapped to a multicast address", nil, clientAddr, bubble(255, client, "20010000cb0071010000efff1fffff02"), MappedNotGlobal},
		{"mapped to a broadcast address of our subnet", broadcast, clientAddr, bubble(255, client, peer), MappedNotGlobal},
		{"mapped to our primary address", nil, clientAddr, bubble(255, client, "20010000cb0071010000f22734ff8efe"), MappedSelf},
		{"mapped to our secondary address, any port", nil, clientAddr, bubble(255, client, "20010000cb0071010000efff34ff8efd"), MappedSelf},
		{"mapped to our bound address behind a 1:1 NAT", natted, otherAddr, bubble(255, native, "20010000cb0071010000efff3ffffdfb"), MappedSelf},
		{"mapped to the other server that it names", nil, clientAddr, bubble(255, client, "20010000c00002630000f2273ffffd9c"), MappedServer},
		{"hop limit 1 to a native host", nil, clientAddr, echo(1), HopLimit},
		{"hop limit 0 to a native host", nil, clientAddr, echo(0), HopLimit},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEngine(t, tt.edit)
			var out packet.Batch
			from := netip.MustParseAddrPort(tt.from)
			if tt.want == RateLimitSource || tt.want == RateLimitTotal {
				e.HandleUDP(from, Primary, testutil.Unhex(t, tt.in), now, &out)
				out.Reset()
			}
			e.HandleUDP(from, Primary, testutil.Unhex(t, tt.in), now, &out)
			if got := e.Counters().Dropped[tt.want]; got != 1 {
				t.Errorf("dropped as %q, want %v", drops(e), tt.want)
			}
			if len(render(&out)) != 0 {
				t.Errorf("sent %v for what is to be dropped", render(&out))
			}
		})
		seen[tt.want] = true
	}
	for r := accepted + 1; r < NumReasons; r++ {
		if !seen[r] {
			t.Errorf("no row drops as %v", r)
		}
	}
}

func TestReasonNames(t *testing.T) {
	seen := map[string]Reason{}
	for r := range NumReasons {
		name := r.String()
		if name == "" || name != strings.ToLower(name) || strings.ContainsAny(name, " -") {
			t.Errorf("reason %d has the name %q, which is not snake_case", r, name)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("reasons %d and %d are both %q", other, r, name)
		}
		seen[name] = r
	}
	if got := NumReasons.String(); got != "unknown" {
		t.Errorf("a reason that does not exist is %q", got)
	}
}
