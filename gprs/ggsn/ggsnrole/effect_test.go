// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// row is a key, with what a bench sees of it.
type row struct {
	key, lines string
	play       func(b *bench)
}

// TestKeysOfTheNode sees what SGSNs see.
func TestKeysOfTheNode(t *testing.T) {
	subscribers := writeSubscribers(t, "[[subscriber]]\nimsi = \"240010000000001\"\n[[subscriber.apn]]\nname = \"Internet\"\ntypes = [\"ipv4\"]\n")
	for _, tt := range []row{
		{configtest.InEffect(t, "ggsn", "peers"), `peers = ["203.0.113.9"]`, func(b *bench) {
			b.wants("of a stranger", b.create(sgsn, request(1, sgsn, gtp.PDPTypeIPv4)).Cause, gtp.Cause(0))
			b.wants("of a peer", b.create(rnc, request(1, rnc, gtp.PDPTypeIPv4)).Cause.Accepted(), true)
		}},
		{configtest.InEffect(t, "ggsn", "reversed_tid"), `reversed_tid = ["198.51.100.1"]`, func(b *bench) {
			m := request(1, sgsn, gtp.PDPTypeIPv4)
			imsi := m.IMSI.Value
			tid := gtp.MakeTID(imsi, 5)
			slices.Reverse(tid[:])
			m.IMSI, m.NSAPI, m.CommonFlags = gtp.Optional[gtp.IMSI]{}, 0, gtp.Optional[gtp.CommonFlags]{}
			number, _ := gtp.ParseMSISDN("46702123456")
			m.MSISDN, m.QoS = gtp.Some(number), gtp.Profile{}.QoS(4)
			b.hand(ggsn.SocketV0, sgsn, gtp.Header{Version: gtp.V0, TID: tid}, m)
			b.Contexts(ggsn.Selection{}, 0, 10, func(x ggsn.ContextInfo) bool {
				b.wants("IMSI", x.IMSI, imsi)
				return true
			})
			b.wants("contexts", b.Sizes().Contexts, 1)
		}},
		{configtest.InEffect(t, "ggsn", "t3_response"), `t3_response = "1s"`, func(b *bench) {
			b.open(1)
			b.out.Reset()
			b.Delete(ggsn.Selection{}, b.now, &b.out)
			b.wants("repeated within 1.5 s", of(gtp.TypeDeleteRequest, b.pass(1500*time.Millisecond)), 1)
		}},
		{configtest.InEffect(t, "ggsn", "n3_requests"), `n3_requests = 2`, func(b *bench) {
			b.open(1)
			b.out.Reset()
			b.Delete(ggsn.Selection{}, b.now, &b.out)
			b.wants("repeated", of(gtp.TypeDeleteRequest, b.pass(time.Minute)), 1)
		}},
		{configtest.InEffect(t, "ggsn", "echo_interval"), `echo_interval = "2m"`, func(b *bench) {
			b.open(1)
			b.wants("echoes within 1 min 55", of(gtp.TypeEchoRequest, b.pass(115*time.Second)), 0)
			b.wants("echoes then", of(gtp.TypeEchoRequest, b.pass(6*time.Second)) > 0, true)
		}},
		{configtest.InEffect(t, "ggsn", "path_hold"), "echo_interval = \"1m\"\npath_hold = \"0s\"", func(b *bench) {
			b.open(1)
			b.pass(2 * time.Minute)
			b.wants("contexts of an SGSN that is silent", b.Sizes().Contexts, 0)
		}},
		{configtest.InEffect(t, "ggsn", "default_apn"), `default_apn = "internet"`, func(b *bench) {
			m := request(1, sgsn, gtp.PDPTypeIPv4)
			unknown, _ := gtp.ParseAPN("elsewhere")
			m.APN = gtp.Some(unknown)
			b.wants("of an unknown name", b.create(sgsn, m).Cause.Accepted(), true)
		}},
		{configtest.InEffect(t, "ggsn", "subscribers_file"), fmt.Sprintf("subscribers_file = %q", subscribers), func(b *bench) {
			m := request(1, sgsn, gtp.PDPTypeIPv4)
			b.wants("of a subscriber", b.create(sgsn, m).Cause, gtp.CauseAccepted)
			m = request(1, sgsn, gtp.PDPTypeIPv6)
			b.wants("of a type that is not subscribed", b.create(sgsn, m).Cause, gtp.CauseUnknownPDPType)
			b.wants("of nobody", b.create(sgsn, request(2, sgsn, gtp.PDPTypeIPv4)).Cause, gtp.CauseAPNDenied)
		}},
		{configtest.InEffect(t, "ggsn", "address4"), `address4 = "192.0.2.77"`, func(b *bench) {
			r := b.open(1)
			b.down(udp(host4, r.EndUserAddress.Value.IPv4, 1, 8))
			if len(b.out.IP) != 1 || netip.AddrFrom4([4]byte(b.out.IP[0][12:])) != netip.MustParseAddr("192.0.2.77") {
				b.t.Errorf("out comes %x", b.out.IP)
			}
		}},
		{configtest.InEffect(t, "ggsn", "address6"), `address6 = "2001:db8::77"`, func(b *bench) {
			r := b.open(1)
			b.down(udp(host6, r.EndUserAddress.Value.IPv6, 1, 8))
			if len(b.out.IP) != 1 || packet.IPv6(b.out.IP[0]).Src() != netip.MustParseAddr("2001:db8::77") {
				b.t.Errorf("out comes %x", b.out.IP)
			}
		}},
		{configtest.InEffect(t, "ggsn", "max_contexts"), `max_contexts = 2`, func(b *bench) {
			b.open(1)
			b.open(2)
			b.wants("the third", b.create(sgsn, request(3, sgsn, gtp.PDPTypeIPv4)).Cause.Accepted(), false)
		}},
		{configtest.InEffect(t, "ggsn", "contexts_per_peer"), `contexts_per_peer = 1`, func(b *bench) {
			b.open(1)
			b.wants("the second", b.create(sgsn, request(2, sgsn, gtp.PDPTypeIPv4)).Cause.Accepted(), false)
			b.wants("another SGSN's", b.create(other, request(3, other, gtp.PDPTypeIPv4)).Cause.Accepted(), true)
		}},
		{configtest.InEffect(t, "ggsn", "max_peers"), `max_peers = 1`, func(b *bench) {
			b.open(1)
			b.wants("another SGSN's", b.create(other, request(3, other, gtp.PDPTypeIPv4)).Cause.Accepted(), false)
		}},
		{configtest.InEffect(t, "ggsn", "request_rate"), `request_rate = 8`, func(b *bench) {
			accepted := 0
			for n := range 20 {
				if b.create(sgsn, request(n+1, sgsn, gtp.PDPTypeIPv4)).Cause.Accepted() {
					accepted++
				}
			}
			b.wants("of 20 at once fewer than 9", accepted > 0 && accepted < 9, true)
		}},
		{configtest.InEffect(t, "ggsn", "error_rate"), `error_rate = 2`, func(b *bench) {
			r := b.open(1)
			r.TEIDData.Value ^= 1
			sent := 0
			for range 10 {
				b.up(&r, sgsn, udp(r.EndUserAddress.Value.IPv4, host4, 64, 8))
				sent += len(b.out.UDP)
			}
			b.wants("Error Indications", sent, 2)
		}},
		{configtest.InEffect(t, "ggsn", "icmp_rate"), `icmp_rate = 2`, func(b *bench) {
			sent := 0
			for n := range byte(10) { // none has the share of all
				r := b.open(int(n) + 1)
				b.down(udp(netip.AddrFrom4([4]byte{9, 9, n, 9}), r.EndUserAddress.Value.IPv4, 1, 8))
				sent += len(b.out.IP)
			}
			b.wants("ICMP errors", sent, 2)
		}},
	} {
		t.Run(tt.key, func(t *testing.T) { tt.play(benchOf(t, tt.lines, "")) })
	}
}
