// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
)

var now = time.Unix(1_700_000_000, 0)

// Bytes on the wire; checksums were computed by another program. The server is
// 203.0.113.1 (cb007101) and 203.0.113.2, the client's NAT shows 198.51.100.7,
// port 40000, inverted 39cc9bf8 and 63bf.
const (
	clientAddr = "198.51.100.7:40000"
	otherAddr  = "192.0.2.55:3545"

	linkMiredo     = "fe800000000000000000ffffffffffff"
	linkMiredoCone = "fe800000000000008000ffffffffffff"
	linkOurs       = "fe800000000000003cff63bf399b9bf8"
	linkServer     = "fe800000000000008000f22734ff8efe"
	linkRelay      = "fe80000000000000123456789abcdef0"
	allRoutersHex  = "ff020000000000000000000000000002"
	client         = "20010000cb007101000063bf39cc9bf8" // of our server
	clientAbroad   = "20010000c0000263000063bf39cc9bf8" // of server 192.0.2.99
	peer           = "20010000cb0071010000efff3ffffdfe" // of our server, mapped 192.0.2.1:4096
	native         = "20010db8000000000000000000000001"

	origin = "000063bf39cc9bf8"
	nonce  = "0102030405060708"

	rsMiredo     = "6000000000083aff" + linkMiredo + allRoutersHex + "85007d3700000000"
	rsMiredoCone = "6000000000083aff" + linkMiredoCone + allRoutersHex + "8500fd3600000000"
	rsOurs       = "6000000000083aff" + linkOurs + allRoutersHex + "850006e500000000"

	// From hop limit and router lifetime to the MTU option.
	advertFields = "00000000" + "00000000" + "000007d0"
	prefixOption = "03044040" + "ffffffff" + "ffffffff" + "00000000"
	mtuOption    = "0501000000000500"

	raMiredo = "6000000000383aff" + linkServer + linkMiredo + "8600954c" + advertFields +
		prefixOption + "20010000cb0071010000000000000000" + mtuOption
	raMiredoCone = "6000000000383aff" + linkServer + linkMiredoCone + "8600154c" + advertFields +
		prefixOption + "20010000cb0071010000000000000000" + mtuOption
	raOurs = "6000000000383aff" + linkServer + linkOurs + "86001efa" + advertFields +
		prefixOption + "20010000cb0071010000000000000000" + mtuOption
	raOtherPrefix = "6000000000383aff" + linkServer + linkMiredo + "86008794" + advertFields +
		prefixOption + "20010db8cb0071010000000000000000" + mtuOption

	echoData = "123400016973" + "74686d757321"
)

// bubble returns a bubble of a hop limit, as hex.
func bubble(hopLimit int, src, dst string) string {
	return fmt.Sprintf("6000000000003b%02x", hopLimit) + src + dst
}

// echo returns an echo request of a client to a native host.
func echo(hopLimit int) string {
	return fmt.Sprintf("6000000000103a%02x", hopLimit) + client + native + "8000ebcb" + echoData
}

func config() Config {
	return Config{
		Primary:   netip.MustParseAddr("203.0.113.1"),
		Secondary: netip.MustParseAddr("203.0.113.2"),
		Rand:      bytes.NewReader(bytes.Repeat([]byte{0xa7, 0x31}, 64)),
	}
}

func singleAddress(c *Config) { c.Secondary = netip.Addr{} }

// newEngine makes an engine from the usual configuration, changed by edit.
func newEngine(t testing.TB, edit func(*Config)) *Engine {
	t.Helper()
	cfg := config()
	if edit != nil {
		edit(&cfg)
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// sent is what a batch holds, readable in a diff.
type sent struct {
	Socket int
	To     string // "native" for an IPv6 packet
	Bytes  string
}

func render(out *packet.Batch) (list []sent) {
	for _, d := range out.UDP {
		list = append(list, sent{d.Socket, d.To.String(), hex.EncodeToString(d.Payload)})
	}
	for _, p := range out.IP {
		list = append(list, sent{To: "native", Bytes: hex.EncodeToString(p)})
	}
	return list
}

func TestGolden(t *testing.T) {
	natted := func(c *Config) {
		c.Primary, c.AdvertisedPrimary = netip.MustParseAddr("10.0.0.4"), netip.MustParseAddr("203.0.113.1")
		c.Secondary, c.AdvertisedSecondary = netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("203.0.113.2")
	}
	prefixes := func(c *Config) {
		c.Prefixes = []netip.Prefix{netip.MustParsePrefix("2001:db8::/32"), teredo.Prefix}
	}
	private := func(c *Config) { c.Global.Allow = []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")} }
	const trailers = "010411223344" + "0308" + "0000" + "0a0000020dda" // nonce, alternate address

	for _, tt := range []struct {
		name  string
		edit  func(*Config)
		from  string
		local int
		in    string
		want  sent
	}{
		{"solicitation of Miredo: advertisement with origin", nil, clientAddr, Primary,
			rsMiredo, sent{Primary, clientAddr, origin + raMiredo}},
		{"solicitation from the mapped link-local address", nil, clientAddr, Primary,
			rsOurs, sent{Primary, clientAddr, origin + raOurs}},
		{"solicitation to the secondary: answered there, primary announced", nil, clientAddr, Secondary,
			rsMiredo, sent{Secondary, clientAddr, origin + raMiredo}},
		{"solicitation from the server's port, of another host", nil, "198.51.100.7:3544", Primary,
			rsMiredo, sent{Primary, "198.51.100.7:3544", "0000f22739cc9bf8" + raMiredo}},
		{"cone bit: answered from the secondary", nil, clientAddr, Primary,
			rsMiredoCone, sent{Secondary, clientAddr, origin + raMiredoCone}},
		{"cone bit to the secondary: answered from the primary", nil, clientAddr, Secondary,
			rsMiredoCone, sent{Primary, clientAddr, origin + raMiredoCone}},
		{"nonce without identifier: echoed, confirmed", nil, clientAddr, Primary,
			"00010000" + nonce + "00" + rsMiredo,
			sent{Primary, clientAddr, "00010000" + nonce + "00" + origin + raMiredo}},
		{"client's confirmation byte is not echoed", nil, clientAddr, Primary,
			"00010000" + nonce + "77" + rsMiredo,
			sent{Primary, clientAddr, "00010000" + nonce + "00" + origin + raMiredo}},
		{"identifier and value: identifier and nonce echoed, key refused", nil, clientAddr, Primary,
			"00010304" + "616263" + "deadbeef" + nonce + "00" + rsMiredo,
			sent{Primary, clientAddr, "00010300" + "616263" + nonce + "01" + origin + raMiredo}},
		{"value without identifier: key refused", nil, clientAddr, Primary,
			"00010004" + "deadbeef" + nonce + "00" + rsMiredo,
			sent{Primary, clientAddr, "00010000" + nonce + "01" + origin + raMiredo}},
		{"solicitation with trailers: they are not for us", nil, clientAddr, Primary,
			rsMiredo + trailers, sent{Primary, clientAddr, origin + raMiredo}},
		{"single address, cone bit clear", singleAddress, clientAddr, Primary,
			rsMiredo, sent{Primary, clientAddr, origin + raMiredo}},
		{"behind a 1:1 NAT: the public address is announced", natted, clientAddr, Primary,
			rsMiredo, sent{Primary, clientAddr, origin + raMiredo}},
		{"several prefixes: the first is announced", prefixes, clientAddr, Primary,
			rsMiredo, sent{Primary, clientAddr, origin + raOtherPrefix}},
		{"private client in a closed network", private, "192.168.1.2:3551", Primary,
			rsMiredo, sent{Primary, "192.168.1.2:3551", "0000f2203f57fefd" + raMiredo}},

		{"bubble of a client to a client of ours: origin", nil, clientAddr, Primary,
			bubble(255, client, peer), sent{Primary, "192.0.2.1:4096", origin + bubble(255, client, peer)}},
		{"bubble that came to the secondary leaves from the primary", nil, clientAddr, Secondary,
			bubble(255, client, peer), sent{Primary, "192.0.2.1:4096", origin + bubble(255, client, peer)}},
		{"bubble with hop limit 0", nil, clientAddr, Primary,
			bubble(0, client, peer), sent{Primary, "192.0.2.1:4096", origin + bubble(0, client, peer)}},
		{"bubble with hop limit 1", nil, clientAddr, Primary,
			bubble(1, client, peer), sent{Primary, "192.0.2.1:4096", origin + bubble(1, client, peer)}},
		{"bubble with trailers, one of them unknown and lying", nil, clientAddr, Primary,
			bubble(255, client, peer) + trailers + "7fff00",
			sent{Primary, "192.0.2.1:4096", origin + bubble(255, client, peer) + trailers + "7fff00"}},
		{"bubble with as many trailers as may be", nil, clientAddr, Primary,
			bubble(255, client, peer) + strings.Repeat("7fff", maxTrailers/2),
			sent{Primary, "192.0.2.1:4096", origin + bubble(255, client, peer) + strings.Repeat("7fff", maxTrailers/2)}},
		{"bubble with a foreign origin: replaced by the right one", nil, clientAddr, Primary,
			"00001111" + "22222222" + bubble(255, client, peer),
			sent{Primary, "192.0.2.1:4096", origin + bubble(255, client, peer)}},
		{"bubble with an authentication: taken off", nil, clientAddr, Primary,
			"00010000" + nonce + "00" + bubble(255, client, peer),
			sent{Primary, "192.0.2.1:4096", origin + bubble(255, client, peer)}},
		{"bubble of a relay from a link-local address", nil, otherAddr, Primary,
			bubble(0, linkRelay, peer), sent{Primary, "192.0.2.1:4096", "0000f2263ffffdc8" + bubble(0, linkRelay, peer)}},
		{"bubble of a host-specific relay from its address", nil, otherAddr, Primary,
			bubble(255, native, peer), sent{Primary, "192.0.2.1:4096", "0000f2263ffffdc8" + bubble(255, native, peer)}},
		{"relay beside the server, on its address and another port", nil, "203.0.113.1:3545", Primary,
			bubble(255, native, peer), sent{Primary, "192.0.2.1:4096", "0000f22634ff8efe" + bubble(255, native, peer)}},
		{"bubble to a client of another server: no origin", nil, clientAddr, Primary,
			bubble(255, client, "20010000c00002630000efff3ffffdfe"),
			sent{Primary, "192.0.2.1:4096", bubble(255, client, "20010000c00002630000efff3ffffdfe")}},
		// Only both together, its address and the service port, are a server.
		{"client on the machine of its server, another port", nil, clientAddr, Primary,
			bubble(255, client, "20010000c00002630000efff3ffffd9c"),
			sent{Primary, "192.0.2.99:4096", bubble(255, client, "20010000c00002630000efff3ffffd9c")}},
		{"client whose NAT has given it the service port", nil, clientAddr, Primary,
			bubble(255, client, "20010000c00002630000f2273ffffdfe"),
			sent{Primary, "192.0.2.1:3544", bubble(255, client, "20010000c00002630000f2273ffffdfe")}},
		{"trailers to a client of another server", nil, clientAddr, Primary,
			bubble(255, client, "20010000c00002630000efff3ffffdfe") + trailers,
			sent{Primary, "192.0.2.1:4096", bubble(255, client, "20010000c00002630000efff3ffffdfe") + trailers}},
		{"client of another server sends to ours", nil, clientAddr, Primary,
			bubble(255, clientAbroad, peer), sent{Primary, "192.0.2.1:4096", origin + bubble(255, clientAbroad, peer)}},
		{"address that names our secondary counts as ours", nil, otherAddr, Primary,
			bubble(255, native, "20010000cb0071020000efff3ffffdfe"),
			sent{Primary, "192.0.2.1:4096", "0000f2263ffffdc8" + bubble(255, native, "20010000cb0071020000efff3ffffdfe")}},
		{"behind a 1:1 NAT: addresses that name the public one are ours", natted, otherAddr, Primary,
			bubble(255, native, peer), sent{Primary, "192.0.2.1:4096", "0000f2263ffffdc8" + bubble(255, native, peer)}},
		{"client of the second prefix", prefixes, clientAddr, Primary,
			bubble(255, client, peer), sent{Primary, "192.0.2.1:4096", origin + bubble(255, client, peer)}},
		{"client of the first prefix", prefixes, otherAddr, Primary,
			bubble(255, linkRelay, "20010db8cb0071010000efff3ffffdfe"),
			sent{Primary, "192.0.2.1:4096", "0000f2263ffffdc8" + bubble(255, linkRelay, "20010db8cb0071010000efff3ffffdfe")}},
		{"private mapped address in a closed network", private, otherAddr, Primary,
			bubble(255, native, "20010000cb0071010000efff3f57fefd"),
			sent{Primary, "192.168.1.2:4096", "0000f2263ffffdc8" + bubble(255, native, "20010000cb0071010000efff3f57fefd")}},

		{"echo request to a native host: one hop less", nil, clientAddr, Primary,
			echo(64), sent{To: "native", Bytes: echo(63)}},
		{"echo request with two hops left", nil, clientAddr, Primary,
			echo(2), sent{To: "native", Bytes: echo(1)}},
		{"trailers end at the server on the way to a native host", nil, clientAddr, Primary,
			echo(64) + trailers, sent{To: "native", Bytes: echo(63)}},
		{"bubble to a native host", nil, clientAddr, Primary,
			bubble(64, client, native), sent{To: "native", Bytes: bubble(63, client, native)}},
		{"echo request to the server's link-local address", nil, clientAddr, Secondary,
			"6000000000103a40" + client + linkServer + "8000e4de" + echoData,
			sent{Secondary, clientAddr, "6000000000103a40" + linkServer + client + "8100e3de" + echoData}},
		{"echo request to the link-local address of the secondary", nil, clientAddr, Secondary,
			"6000000000103a40" + client + "fe800000000000008000f22734ff8efd" + "8000e4df" + echoData,
			sent{Secondary, clientAddr, "6000000000103a40" + "fe800000000000008000f22734ff8efd" + client + "8100e3df" + echoData}},
		{"echo request to all routers", nil, clientAddr, Secondary,
			"6000000000103a40" + client + "ff020000000000000000000000000002" + "80001a81" + echoData,
			sent{Secondary, clientAddr, "6000000000103a40" + linkServer + client + "8100e3de" + echoData}},
		{"packet as large as the link takes", nil, clientAddr, Primary,
			"6000000004d83a40" + client + native + "80" + strings.Repeat("00", 0x4d7),
			sent{To: "native", Bytes: "6000000004d83a3f" + client + native + "80" + strings.Repeat("00", 0x4d7)}},
		{"single address: native and echo work alike", singleAddress, clientAddr, Primary,
			"6000000000103a01" + client + linkServer + "8000e4de" + echoData,
			sent{Primary, clientAddr, "6000000000103a40" + linkServer + client + "8100e3de" + echoData}},
		{"ICMPv6 from a native host to a client of ours", nil, otherAddr, Primary,
			"6000000000103a40" + native + client + "8100abcd" + echoData,
			sent{Primary, clientAddr, "0000f2263ffffdc8" + "6000000000103a40" + native + client + "8100abcd" + echoData}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEngine(t, tt.edit)
			var out packet.Batch
			e.HandleUDP(netip.MustParseAddrPort(tt.from), tt.local, testutil.Unhex(t, tt.in), now, &out)
			if diff := cmp.Diff([]sent{tt.want}, render(&out)); diff != "" {
				t.Errorf("sent (-want +got):\n%s\ndropped: %s", diff, drops(e))
			}
			c := e.Counters()
			if kinds := c.Advertisements + c.Bubbles + c.ICMPv6ToClients + c.ToIPv6 + c.EchoReplies; c.Received != 1 || kinds != 1 {
				t.Errorf("counters %+v: one datagram must count once as received and once as handled", c)
			}
		})
	}
}

// drops names what an engine has dropped.
func drops(e *Engine) string {
	var names []string
	for r, n := range e.Counters().Dropped {
		if n > 0 {
			names = append(names, fmt.Sprintf("%v %d", Reason(r), n))
		}
	}
	return strings.Join(names, ", ")
}

// The advertisement as Miredo's server sends it has 96 bytes, and 117 with nonce
// and origin.
func TestAdvertisementSize(t *testing.T) {
	if got := len(testutil.Unhex(t, raMiredo)); got != advertLen {
		t.Errorf("advertisement of %d bytes, want %d", got, advertLen)
	}
	e := newEngine(t, nil)
	var out packet.Batch
	e.HandleUDP(netip.MustParseAddrPort(clientAddr), Primary, testutil.Unhex(t, "00010000"+nonce+"00"+rsMiredo), now, &out)
	if got := len(out.UDP[0].Payload); got != 117 {
		t.Errorf("payload of %d bytes, want 117", got)
	}
	if in := len(testutil.Unhex(t, rsMiredo)); in+MaxGrowth != advertLen+originLen {
		t.Errorf("MaxGrowth %d does not lead from %d to %d bytes", MaxGrowth, in, advertLen+originLen)
	}
}

// A nonce is of one request: the next one, without, gets none.
func TestNoForeignNonce(t *testing.T) {
	e := newEngine(t, nil)
	var out packet.Batch
	e.HandleUDP(netip.MustParseAddrPort(clientAddr), Primary, testutil.Unhex(t, "00010000"+nonce+"00"+rsMiredo), now, &out)
	out.Reset()
	e.HandleUDP(netip.MustParseAddrPort(otherAddr), Primary, testutil.Unhex(t, rsMiredo), now, &out)
	want := []sent{{Primary, otherAddr, "0000f2263ffffdc8" + raMiredo}}
	if diff := cmp.Diff(want, render(&out)); diff != "" {
		t.Errorf("second advertisement (-want +got):\n%s", diff)
	}
}

func TestRateLimits(t *testing.T) {
	rs, from := testutil.Unhex(t, rsMiredo), netip.MustParseAddrPort(clientAddr)
	other := netip.MustParseAddrPort(otherAddr)
	for _, tt := range []struct {
		name   string
		edit   func(*Config)
		reason Reason
		other  int // answers that another source gets afterwards, of 1
	}{
		{"one source above its limit", func(c *Config) { c.PerSource = ratelimit.PerSecond(10, 3) }, RateLimitSource, 1},
		{"all sources above theirs", func(c *Config) { c.Total = ratelimit.PerSecond(10, 3) }, RateLimitTotal, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEngine(t, tt.edit)
			var out packet.Batch
			for range 10 {
				e.HandleUDP(from, Primary, rs, now, &out)
			}
			if got := len(out.UDP); got != 3 {
				t.Errorf("%d answers, want the burst of 3", got)
			}
			if got := e.Counters().Dropped[tt.reason]; got != 7 {
				t.Errorf("%d drops as %v, want 7", got, tt.reason)
			}
			out.Reset()
			e.HandleUDP(other, Primary, rs, now, &out)
			if got := len(out.UDP); got != tt.other {
				t.Errorf("another source got %d answers, want %d", got, tt.other)
			}
			out.Reset()
			e.HandleUDP(from, Primary, rs, now.Add(time.Second), &out)
			if got := len(out.UDP); got != 1 {
				t.Error("no answer although a second has passed")
			}
		})
	}
}

// Garbage from an address must not use up the limit of a client there.
func TestGarbageCostsNoTokens(t *testing.T) {
	e := newEngine(t, func(c *Config) { c.PerSource = ratelimit.PerSecond(1, 1) })
	var out packet.Batch
	from := netip.MustParseAddrPort(clientAddr)
	for range 10 {
		e.HandleUDP(from, Primary, testutil.Unhex(t, bubble(255, clientAbroad, native))[:30], now, &out)
	}
	e.HandleUDP(from, Primary, testutil.Unhex(t, rsMiredo), now, &out)
	if len(out.UDP) != 1 {
		t.Errorf("no answer; dropped: %s", drops(e))
	}
}
