// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// advertised has what the router of the link says to a terminal that has just come.
func (b *bench) advertised(d time.Duration, what []byte) (n int) {
	b.t.Helper()
	for _, p := range b.pass(d) {
		if p[1] == byte(gtp.TypeGPDU) && bytes.Contains(p, what) {
			n++
		}
	}
	return n
}

// asked is what is in the options of an answer to a question for a container.
func (b *bench) asked(c gtp.Container) (got []string) {
	b.t.Helper()
	m := request(1, sgsn, gtp.PDPTypeIPv4v6)
	options, _ := gtp.NewPCO(nil).Add(c, nil)
	m.PCO = gtp.Some(options)
	for is, value := range b.create(sgsn, m).PCO.Value.All() {
		if a, ok := netip.AddrFromSlice(value); ok && is == c {
			got = append(got, a.String())
		}
	}
	return got
}

// TestKeysOfAddresses sees what addresses contexts get.
func TestKeysOfAddresses(t *testing.T) {
	has := func(prefix string, kind gtp.PDPType) func(b *bench) {
		return func(b *bench) {
			r := b.create(sgsn, request(1, sgsn, kind))
			a := r.EndUserAddress.Value.IPv4
			if kind == gtp.PDPTypeIPv6 {
				a = r.EndUserAddress.Value.IPv6
			}
			b.wants(a.String()+" in the pool", netip.MustParsePrefix(prefix).Contains(a), true)
		}
	}
	static := func(want string) func(b *bench) {
		return func(b *bench) {
			a := netip.MustParseAddr(want)
			m := request(1, sgsn, gtp.PDPTypeIPv4)
			m.EndUserAddress.Value.IPv4 = a
			if a.Is6() {
				m.EndUserAddress.Value = gtp.EndUserAddress{Type: gtp.PDPTypeIPv6, IPv6: a}
			}
			r := b.create(sgsn, m)
			got := r.EndUserAddress.Value
			b.wants("accepted", r.Cause.Accepted(), true)
			b.wants("what was asked for", got.IPv4 == a || netip.PrefixFrom(a, 64).Masked().Contains(got.IPv6), true)
		}
	}
	for _, tt := range []row{
		{configtest.InEffect(t, "ggsn.apn", "name"), `name = "ims"`, func(b *bench) {
			b.wants("another name", b.create(sgsn, request(1, sgsn, gtp.PDPTypeIPv4)).Cause, gtp.CauseUnknownAPN)
		}},
		{configtest.InEffect(t, "ggsn.apn", "types"), `types = ["ipv6"]`, func(b *bench) {
			b.wants("IPv4", b.create(sgsn, request(1, sgsn, gtp.PDPTypeIPv4)).Cause.Accepted(), false)
			b.wants("IPv6", b.create(sgsn, request(2, sgsn, gtp.PDPTypeIPv6)).Cause.Accepted(), true)
		}},
		{configtest.InEffect(t, "ggsn.apn", "pool4"), `pool4 = ["10.99.0.0/24"]`, has("10.99.0.0/24", gtp.PDPTypeIPv4)},
		{configtest.InEffect(t, "ggsn.apn", "pool6"), `pool6 = ["2001:db8:7777::/48"]`, has("2001:db8:7777::/48", gtp.PDPTypeIPv6)},
		{configtest.InEffect(t, "ggsn.apn", "renumber"), `renumber = "3h"`, func(b *bench) {
			b.create(sgsn, request(1, sgsn, gtp.PDPTypeIPv6))
			next := written(t, "", "pool6 = [\"2001:db8:7777::/48\"]\nrenumber = \"3h\"")
			s, err := engineSettings(&next, nil, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Reconfigure(s, b.now, &b.out); err != nil {
				t.Fatal(err)
			}
			b.pass(5 * time.Minute)
			b.Contexts(ggsn.Selection{}, 0, 10, func(x ggsn.ContextInfo) bool {
				b.wants("in the other pool", netip.MustParsePrefix("2001:db8:7777::/48").Contains(x.Prefix6.Addr()), true)
				b.wants("former prefixes", len(x.Former6), 1)
				return true
			})
			b.pass(3 * time.Hour)
			b.Contexts(ggsn.Selection{}, 0, 10, func(x ggsn.ContextInfo) bool {
				b.wants("former prefixes", len(x.Former6), 0)
				return true
			})
		}},
		{configtest.InEffect(t, "ggsn.apn", "static4"), `static4 = ["10.47.0.7"]`, static("10.47.0.7")},
		{configtest.InEffect(t, "ggsn.apn", "static6"), `static6 = ["2001:db8:7100::/56"]`, static("2001:db8:7100:5::1")},
		{configtest.InEffect(t, "ggsn.apn", "link_prefixes"), "pool6 = [\"2001:db8:7777::/48\"]\nlink_prefixes = 4", func(b *bench) {
			b.create(sgsn, request(1, sgsn, gtp.PDPTypeIPv6))
			b.wants("advertisements, of a first prefix and of three more", b.advertised(4*time.Second, []byte{134, 0}) >= 4, true)
		}},
		{configtest.InEffect(t, "ggsn.apn", "delegate"), "pool6 = [\"2001:db8:7777::/48\"]\ndelegate = 56", func(b *bench) {
			for n := range 3 {
				a := b.create(sgsn, request(n+1, sgsn, gtp.PDPTypeIPv6)).EndUserAddress.Value.IPv6
				b.wants("the first /64 of its own /56", netip.PrefixFrom(a, 56).Masked().Addr(), netip.PrefixFrom(a, 64).Masked().Addr())
			}
		}},
		{configtest.InEffect(t, "ggsn.apn", "delegation_time"), "pool6 = [\"2001:db8:7777::/48\"]\ndelegate = 56\ndelegation_time = \"1000s\"", func(b *bench) {
			r := b.create(sgsn, request(1, sgsn, gtp.PDPTypeIPv6))
			p := packet.AppendIPv6Header(nil, packet.ProtoUDP, 1, 0, local(&r), netip.MustParseAddr("ff02::1:2"))
			p = append(p, 546>>8, 546&0xff, 547>>8, 547&0xff, 0, 0, 0, 0, 1, 1, 2, 3, 0, 1, 0, 4, 0, 3, 0, 1, 0, 25, 0, 12, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0)
			packet.FillUDP(p)
			b.up(&r, sgsn, p)
			b.wants("T1, T2 and lifetimes", len(b.out.UDP) == 1 && bytes.Contains(b.out.UDP[0].Payload, []byte("\x00\x00\x01\xf4\x00\x00\x03\x20\x00\x1a\x00\x19\x00\x00\x03\xe8\x00\x00\x03\xe8\x39")), true)
		}},
		{configtest.InEffect(t, "ggsn.apn", "pool_alarm"), "pool4 = [\"10.99.0.0/28\"]\npool_alarm = 50", func(b *bench) {
			cfg := written(b.t, "", "pool4 = [\"10.99.0.0/28\"]\npool_alarm = 50")
			for n := range 7 { // of 14
				sizes := b.Sizes()
				b.wants("alarm", slices.ContainsFunc(cfg.poolUses(sizes.Pools), func(p PoolUse) bool { return p.Alarm }), false)
				b.create(sgsn, request(n+1, sgsn, gtp.PDPTypeIPv4))
			}
			sizes := b.Sizes()
			b.wants("alarm", slices.ContainsFunc(cfg.poolUses(sizes.Pools), func(p PoolUse) bool { return p.Alarm }), true)
		}},
		{configtest.InEffect(t, "ggsn.apn", "hold"), "pool4 = [\"10.99.0.0/30\"]\nhold = \"0s\"", func(b *bench) {
			last, n := gtp.CreateResponse{}, 1
			for ; n < 10; n++ {
				r := b.create(sgsn, request(n, sgsn, gtp.PDPTypeIPv4))
				if !r.Cause.Accepted() {
					break
				}
				last = r
			}
			b.hand(ggsn.SocketControl, sgsn, gtp.Header{Version: gtp.V1, TEID: last.TEIDControl.Value}, &gtp.DeleteRequest{NSAPI: 5, Teardown: gtp.Some(true)})
			b.wants("the address of one that has ended", b.create(sgsn, request(n, sgsn, gtp.PDPTypeIPv4)).Cause.Accepted(), true)
		}},
	} {
		t.Run(tt.key, func(t *testing.T) { tt.play(benchOf(t, "", tt.lines)) })
	}
}

// TestKeysOfTheLink sees what terminals are told.
func TestKeysOfTheLink(t *testing.T) {
	configtest.InEffect(t, "ggsn", "apn")
	dns := netip.MustParseAddr("2001:db8::53").As16()
	for _, tt := range []row{
		{configtest.InEffect(t, "ggsn.apn", "dns"), `dns = ["192.0.2.53", "2001:db8::53"]`, func(b *bench) {
			b.wants("by the context", len(b.asked(gtp.ContainerDNS4)), 1)
			b.wants("advertised", b.advertised(time.Minute, dns[:]) > 0, true)
		}},
		{configtest.InEffect(t, "ggsn.apn", "pcscf"), `pcscf = ["192.0.2.60", "192.0.2.61"]`, func(b *bench) {
			b.wants("proxies", len(b.asked(gtp.ContainerPCSCF4)), 2)
		}},
		{configtest.InEffect(t, "ggsn.apn", "pco_unasked"), "pco_unasked = [\"pcscf\", \"mtu\"]\npcscf = [\"192.0.2.60\"]", func(b *bench) {
			var told []gtp.Container
			for c := range b.open(1).PCO.Value.All() {
				told = append(told, c)
			}
			b.wants("told unasked", slices.Equal(told, []gtp.Container{gtp.ContainerPCSCF4, gtp.ContainerMTU4}), true)
		}},
		{configtest.InEffect(t, "ggsn.apn", "report_location"), `report_location = "area"`, func(b *bench) {
			can, _ := gtp.MakeExtensions(make([]byte, 4), gtp.Extension{Type: gtp.ExtensionInfoChangeSupport, Content: []byte{0, 0}})
			b.hand(ggsn.SocketControl, sgsn, gtp.Header{Version: gtp.V1, Extensions: can}, request(1, sgsn, gtp.PDPTypeIPv4))
			b.wants("asked for routeing areas", len(b.out.UDP) == 1 && bytes.Contains(b.out.UDP[0].Payload, []byte{181, 0, 1, 2}), true)
		}},
		{configtest.InEffect(t, "ggsn.apn", "domains"), `domains = ["example.org"]`, func(b *bench) {
			b.open(1)
			b.wants("advertised", b.advertised(time.Minute, []byte("\x07example\x03org")) > 0, true)
		}},
		{configtest.InEffect(t, "ggsn.apn", "pref64"), `pref64 = ["64:ff9b::/96"]`, func(b *bench) {
			b.open(1)
			b.wants("advertised", b.advertised(time.Minute, []byte("\x26\x02\x07\x08\x00\x64\xff\x9b")) > 0, true)
		}},
		{configtest.InEffect(t, "ggsn.apn", "dhcp"), "dhcp = false\ndns = [\"2001:db8::53\"]", func(b *bench) {
			r := b.open(1)
			q := []byte{11, 1, 2, 3, 0, 6, 0, 2, 0, 23} // an Information-request (RFC 8415 section 18.2.6)
			ip := packet.AppendIPv6Header(nil, packet.ProtoUDP, 1, 8+len(q), local(&r), netip.MustParseAddr("ff02::1:2"))
			ip = append(append(ip, 0x02, 0x22, 0x02, 0x23, 0, byte(8+len(q)), 0, 0), q...)
			p := packet.IPv6(ip)
			sum := packet.Checksum(p.SrcBytes(), p.DstBytes(), packet.ProtoUDP, ip[packet.IPv6HeaderLen:])
			ip[46], ip[47] = byte(sum>>8), byte(sum)
			b.up(&r, sgsn, ip)
			b.wants("answers", len(b.out.UDP), 0)
		}},
		{configtest.InEffect(t, "ggsn.apn", "advert_interval"), `advert_interval = "1m"`, func(b *bench) {
			b.open(1)
			b.pass(time.Minute)
			b.wants("within 10 minutes", b.advertised(10*time.Minute, nil) >= 8, true)
		}},
		{configtest.InEffect(t, "ggsn.apn", "mtu"), `mtu = 1300`, func(b *bench) {
			r := b.open(1)
			b.wants("of 1320 octets", b.down(udp(host6, r.EndUserAddress.Value.IPv6, 64, 1320-48)), 0)
			b.wants("of 1300 octets", b.down(udp(host6, r.EndUserAddress.Value.IPv6, 64, 1300-48)), 1)
		}},
		{configtest.InEffect(t, "ggsn.apn", "max_up"), `max_up = 512`, func(b *bench) {
			r := b.open(1)
			b.wants("granted", r.QoS.Value.Profile().MaxUp == 512, true)
		}},
		{configtest.InEffect(t, "ggsn.apn", "max_down"), `max_down = 1024`, func(b *bench) {
			r := b.open(1)
			b.wants("granted", r.QoS.Value.Profile().MaxDown == 1024, true)
		}},
		{configtest.InEffect(t, "ggsn.apn", "upgrade_qos"), "max_up = 4096\nupgrade_qos = true", func(b *bench) {
			m := request(1, sgsn, gtp.PDPTypeIPv4)
			m.QoS = gtp.Profile{Class: gtp.ClassBackground, MaxUp: 64, MaxDown: 64}.QoS(12)
			m.CommonFlags = gtp.Some(gtp.FlagUpgradeQoS)
			p := b.create(sgsn, m).QoS.Value.Profile()
			b.wants("granted", p.MaxUp, gtp.BitRate(4096))
			b.wants("without a limit", p.MaxDown, gtp.BitRate(64))
		}},
		{configtest.InEffect(t, "ggsn.apn", "ambr_up"), `ambr_up = 8`, func(b *bench) {
			r := b.open(1)
			b.wants("first, in pieces", b.up(&r, sgsn, udp(r.EndUserAddress.Value.IPv4, host4, 64, 3000)), 3)
			b.wants("at once", b.up(&r, sgsn, udp(r.EndUserAddress.Value.IPv4, host4, 64, 8)), 0)
		}},
		{configtest.InEffect(t, "ggsn.apn", "ambr_down"), `ambr_down = 8`, func(b *bench) {
			r, passed := b.open(1), 0
			for range 10 {
				passed += b.down(udp(host4, r.EndUserAddress.Value.IPv4, 64, 1372))
			}
			b.wants("at once", passed, 2)
		}},
		{configtest.InEffect(t, "ggsn.apn", "dscp"), `dscp = ["background 8"]`, func(b *bench) {
			r := b.open(1)
			b.down(udp(host4, r.EndUserAddress.Value.IPv4, 64, 8))
			b.wants("outside", b.out.UDP[0].Class, uint8(8<<2))
		}},
		{configtest.InEffect(t, "ggsn.apn", "mark_inner"), "dscp = [\"background cs1\"]\nmark_inner = true", func(b *bench) {
			r := b.open(1)
			b.up(&r, sgsn, udp(r.EndUserAddress.Value.IPv4, host4, 64, 8))
			b.wants("inside", b.out.IP[0][1]>>2, uint8(8))
		}},
		{configtest.InEffect(t, "ggsn.apn", "dscp_model"), `dscp_model = "uniform"`, func(b *bench) {
			r := b.open(1)
			p := udp(host4, r.EndUserAddress.Value.IPv4, 64, 8)
			packet.SetDSCP(p, 34)
			b.down(p)
			b.wants("outside", b.out.UDP[0].Class, uint8(34<<2))
		}},
		{configtest.InEffect(t, "ggsn.apn", "ecn"), `ecn = "compatibility"`, func(b *bench) {
			r := b.open(1)
			p := udp(host4, r.EndUserAddress.Value.IPv4, 64, 8)
			packet.SetTrafficClass(p, packet.ECT0)
			b.down(p)
			b.wants("outside", b.out.UDP[0].Class, packet.NotECT)
		}},
	} {
		t.Run(tt.key, func(t *testing.T) { tt.play(benchOf(t, "", tt.lines)) })
	}
}

// TestKeysOfPackets sees which packets pass, and how long contexts last.
func TestKeysOfPackets(t *testing.T) {
	for _, tt := range []row{
		{configtest.InEffect(t, "ggsn.apn", "sequence_numbers"), `sequence_numbers = true`, func(b *bench) {
			r := b.open(1)
			b.down(udp(host4, r.EndUserAddress.Value.IPv4, 64, 8))
			h, err := gtp.Decapsulate(b.out.UDP[0].Payload)
			b.wants("numbered", err == nil && h.HasSequence, true)
		}},
		{configtest.InEffect(t, "ggsn.apn", "ue_to_ue"), `ue_to_ue = "allow"`, func(b *bench) {
			one, two := b.open(1), b.open(2)
			b.up(&one, sgsn, udp(one.EndUserAddress.Value.IPv4, two.EndUserAddress.Value.IPv4, 64, 8))
			b.wants("carried", len(b.out.UDP), 1)
		}},
		{configtest.InEffect(t, "ggsn.apn", "direct_tunnel"), `direct_tunnel = true`, func(b *bench) {
			m := request(1, sgsn, gtp.PDPTypeIPv4)
			m.AddressUser = rnc
			r := b.create(sgsn, m)
			b.wants("accepted", r.Cause.Accepted(), true)
			b.wants("passed", b.up(&r, rnc, udp(r.EndUserAddress.Value.IPv4, host4, 64, 8)), 1)
		}},
		{configtest.InEffect(t, "ggsn.apn", "check_outer"), `check_outer = false`, func(b *bench) {
			r := b.open(1)
			b.wants("passed", b.up(&r, other, udp(r.EndUserAddress.Value.IPv4, host4, 64, 8)), 1)
		}},
		{configtest.InEffect(t, "ggsn.apn", "icmp_errors"), `icmp_errors = false`, func(b *bench) {
			r := b.open(1)
			b.down(udp(host4, r.EndUserAddress.Value.IPv4, 1, 8))
			b.wants("errors", len(b.out.IP), 0)
		}},
		{configtest.InEffect(t, "ggsn.apn", "session_limit"), `session_limit = "1h"`, func(b *bench) {
			b.open(1)
			b.wants("ended before", of(gtp.TypeDeleteRequest, b.pass(59*time.Minute)), 0)
			b.wants("ended", of(gtp.TypeDeleteRequest, b.pass(3*time.Minute)) > 0, true)
		}},
		{configtest.InEffect(t, "ggsn.apn", "idle_limit"), `idle_limit = "10m"`, func(b *bench) {
			r := b.open(1)
			b.pass(9 * time.Minute)
			b.up(&r, sgsn, udp(r.EndUserAddress.Value.IPv4, host4, 64, 8))
			b.wants("ended before", of(gtp.TypeDeleteRequest, b.pass(9*time.Minute)), 0)
			b.wants("ended", of(gtp.TypeDeleteRequest, b.pass(3*time.Minute)) > 0, true)
		}},
	} {
		t.Run(tt.key, func(t *testing.T) { tt.play(benchOf(t, "", tt.lines)) })
	}
}
