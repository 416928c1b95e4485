// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
)

func TestSolicitationBytes(t *testing.T) {
	b := newBench(t)
	b.begin(client.Server{Primary: primary, Secondary: second})
	b.want("start", b.show(), "to primary: solicitation")
	rs := b.solicitation(primaryPort)
	if !rs.HasAuth || len(rs.Auth.ClientID) != 0 || len(rs.Auth.Value) != 0 || rs.Auth.Confirmation != 0 {
		t.Errorf("authentication %+v", rs.Auth)
	}
	src := rs.IPv6.Src()
	id := src.As16()
	nonce := hex.EncodeToString(rs.Auth.Nonce[:])
	srcHex := hex.EncodeToString(src.AsSlice())
	sum := hex.EncodeToString(rs.IPv6.Payload()[2:4])
	want := "00010000" + nonce + "00" + // authentication without identifier
		"600000000008" + "3aff" + srcHex + "ff020000000000000000000000000002" + // ICMPv6, hop limit 255, all routers
		"8500" + sum + "00000000"
	if got := hex.EncodeToString(b.out.UDP[0].Payload); got != want {
		t.Errorf("solicitation\n%s, want\n%s", got, want)
	}
	if f := teredo.FlagsOf(&id); !src.IsLinkLocalUnicast() || f&^teredo.FlagsRandom&0xff00 != 0 {
		t.Errorf("source %s: the cone, z, U or G bit is set", src)
	}
}

// One round trip gives the address; the secondary address is asked behind that.
func TestQualification(t *testing.T) {
	b := newBench(t)
	b.begin(client.Server{Primary: primary, Secondary: second})
	got := b.udp(primaryPort, b.answer(mapping))
	b.want("first answer", got, "to secondary: solicitation", "event: got address by 203.0.113.1 for 198.51.100.10:40000, MTU 1280")
	a, err := teredo.ParseAddr(b.address(), teredo.Prefix)
	if err != nil || a.Server != primary || a.Mapped != mapping || a.Flags&^teredo.FlagsRandom != 0 {
		t.Errorf("address %s: %+v, %v", b.address(), a, err)
	}
	b.want("second answer", b.udp(secondPort, advertisement(b.solicitation(secondPort), mapping)),
		"event: NAT: endpoint-independent mapping, port not preserved")
}

func TestNAT(t *testing.T) {
	for _, tt := range []struct {
		name          string
		first, second netip.AddrPort
		want          string
		symmetric     bool
	}{
		{"same mapping", mapping, mapping, "endpoint-independent mapping, port not preserved", false},
		{"same mapping, own port", netip.AddrPortFrom(mapping.Addr(), local.Port()), netip.AddrPortFrom(mapping.Addr(), local.Port()), "endpoint-independent mapping, port preserved", false},
		{"other port", mapping, netip.AddrPortFrom(mapping.Addr(), 40001), "address-dependent or address-and-port-dependent mapping, port not preserved", true},
		{"other address", mapping, netip.AddrPortFrom(peerServer, mapping.Port()), "address-dependent or address-and-port-dependent mapping, port not preserved", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.begin(client.Server{Primary: primary, Secondary: second})
			b.udp(primaryPort, b.answer(tt.first))
			before := b.address()
			b.want("answer", b.udp(secondPort, advertisement(b.solicitation(secondPort), tt.second)), "event: NAT: "+tt.want)
			if s := b.c.Snapshot(); s.NAT.Symmetric() != tt.symmetric || s.Address != before || s.Mapping != tt.first {
				t.Errorf("snapshot %+v", s)
			}
		})
	}
	t.Run("no NAT", func(t *testing.T) {
		public := netip.MustParseAddrPort("198.51.100.2:3551")
		b := newBench(t)
		b.c.Start(b.now, &b.out)
		b.c.SetServers([]client.Server{{Primary: primary, Secondary: second}}, b.now, &b.out)
		b.c.LocalChanged(public, nil, b.now, &b.out)
		b.want("answer", b.udp(primaryPort, b.answer(public)), "event: got address by 203.0.113.1 for 198.51.100.2:3551, MTU 1280", "event: NAT: no NAT")
	})
	t.Run("secondary is silent", func(t *testing.T) {
		b := newBench(t)
		b.begin(client.Server{Primary: primary, Secondary: second})
		b.udp(primaryPort, b.answer(mapping))
		for range 2 {
			d, got := b.tick()
			b.want("repeat", got, "to secondary: solicitation")
			if d != 4*time.Second {
				t.Errorf("repeated after %v", d)
			}
		}
		_, got := b.tick()
		b.want("gives up", got, "event: NAT: unknown, port not preserved")
		if s := b.c.Snapshot(); s.State != client.Qualified {
			t.Errorf("state %s", s.State)
		}
	})
	t.Run("one address entered twice", func(t *testing.T) {
		b := newBench(t)
		b.begin(client.Server{Primary: primary, Secondary: primary})
		b.want("answer", b.udp(primaryPort, b.answer(mapping)),
			"event: got address by 203.0.113.1 for 198.51.100.10:40000, MTU 1280", "event: NAT: unknown, port not preserved")
	})
}

// N = 3 solicitations, T = 4 s apart, then the next server, then off-line with a
// wait that doubles.
func TestSilentServers(t *testing.T) {
	b := newBench(t)
	b.begin(client.Server{Primary: primary}, client.Server{Primary: second})
	step := func(wait time.Duration, want ...string) {
		t.Helper()
		d, got := b.tick()
		b.want("tick", got, want...)
		if d != wait {
			t.Errorf("after %v, want %v", d, wait)
		}
	}
	const T = 4 * time.Second
	step(T, "to primary: solicitation")
	step(T, "to primary: solicitation")
	step(T, "to secondary: solicitation", "event: silent: 203.0.113.1")
	step(T, "to secondary: solicitation")
	step(T, "to secondary: solicitation")
	step(T, "event: silent: 203.0.113.2", "event: off-line")
	if s := b.c.Snapshot().State; s != client.OffLine {
		t.Errorf("state %s", s)
	}
	for i := range 10 {
		wait := min(time.Second<<i, time.Minute)
		d, got := b.tick()
		b.want("again", got, "to primary: solicitation")
		if d < wait*3/4 || d > wait {
			t.Errorf("wait %d was %v, want 75 to 100 %% of %v", i, d, wait)
		}
		for b.c.Snapshot().State == client.Starting {
			b.tick()
		}
	}
	b.c.LocalChanged(local, nil, b.now, &b.out)
	if s := b.c.Snapshot().State; s != client.Starting {
		t.Errorf("a changed network does not end the wait: %s", s)
	}
	b.udp(primaryPort, b.answer(mapping))
	if s := b.c.Snapshot().State; s != client.Qualified {
		t.Errorf("state %s", s)
	}
	for b.c.Snapshot().State != client.OffLine {
		b.tick()
	}
	if d, _ := b.tick(); d > time.Second {
		t.Errorf("behind a success the wait was %v, want the first one again", d)
	}
}

// All sendings of one exchange carry one nonce, each exchange has its own, and a
// late answer to the first sending counts.
func TestNonces(t *testing.T) {
	b := newBench(t)
	b.begin(client.Server{Primary: primary})
	first := b.solicitation(primaryPort)
	b.tick()
	if second := b.solicitation(primaryPort); second.Auth.Nonce != first.Auth.Nonce || second.IPv6.Src() != first.IPv6.Src() {
		t.Error("the repeat is another exchange")
	}
	b.udp(primaryPort, advertisement(first, mapping))
	if b.c.Snapshot().State != client.Qualified {
		t.Fatal("a late answer does not count")
	}
	b.tick() // refresh
	if b.solicitation(primaryPort).Auth.Nonce == first.Auth.Nonce {
		t.Error("the next exchange has the old nonce")
	}
	b.udp(primaryPort, advertisement(first, foreign))
	if b.c.Snapshot().Mapping != mapping || b.dropped() != "wrong_nonce 1" {
		t.Errorf("an old answer counts: dropped %s", b.dropped())
	}
}

func TestForgedAdvertisements(t *testing.T) {
	good := func(rs teredo.Packet) []byte { return advertisement(rs, mapping) }
	for _, tt := range []struct {
		name   string
		from   netip.AddrPort
		forge  func(rs teredo.Packet) []byte
		reason string
	}{
		{"from another address", foreign, good, "not_qualified"},
		{"from another port", netip.AddrPortFrom(primary, 3545), good, "not_qualified"},
		{"foreign nonce", primaryPort, func(rs teredo.Packet) []byte {
			rs.Auth.Nonce[7]++
			return advertisement(rs, mapping)
		}, "wrong_nonce"},
		{"no authentication", primaryPort, func(rs teredo.Packet) []byte { return good(rs)[13:] }, "wrong_nonce"},
		{"no origin", primaryPort, func(rs teredo.Packet) []byte {
			b := good(rs)
			return append(b[:13:13], b[21:]...)
		}, "no_origin"},
		{"origin with port 0", primaryPort, func(rs teredo.Packet) []byte {
			return advertisement(rs, netip.AddrPortFrom(mapping.Addr(), 0))
		}, "no_origin"},
		{"private origin", primaryPort, func(rs teredo.Packet) []byte { return advertisement(rs, local) }, "not_global"},
		{"for another host", primaryPort, func(rs teredo.Packet) []byte {
			return advertisement(rs, mapping, func(_ *teredo.Auth, ra *teredo.RouterAdvertisement) {
				ra.Dst = netip.MustParseAddr("fe80::1")
			})
		}, "wrong_advertised_prefix"},
		{"prefix of another server", primaryPort, func(rs teredo.Packet) []byte {
			return advertisement(rs, mapping, func(_ *teredo.Auth, ra *teredo.RouterAdvertisement) {
				ra.Prefix = netip.MustParsePrefix("2001:0:cb00:7102::/64")
			})
		}, "wrong_advertised_prefix"},
		{"no Teredo prefix", primaryPort, func(rs teredo.Packet) []byte {
			return advertisement(rs, mapping, func(_ *teredo.Auth, ra *teredo.RouterAdvertisement) {
				ra.Prefix = netip.MustParsePrefix("2001:db8:cb00:7101::/64")
			})
		}, "wrong_advertised_prefix"},
		{"older prefix without the option", primaryPort, func(rs teredo.Packet) []byte {
			return advertisement(rs, mapping, func(_ *teredo.Auth, ra *teredo.RouterAdvertisement) {
				ra.Prefix = netip.MustParsePrefix("3ffe:831f:cb00:7101::/64")
			})
		}, "wrong_advertised_prefix"},
		{"MTU below 1280", primaryPort, func(rs teredo.Packet) []byte {
			return advertisement(rs, mapping, func(_ *teredo.Auth, ra *teredo.RouterAdvertisement) { ra.MTU = 1279 })
		}, "bad_mtu_option"},
		{"wrong checksum", primaryPort, func(rs teredo.Packet) []byte {
			b := good(rs)
			b[len(b)-1] ^= 1
			return b
		}, "bad_checksum"},
		{"truncated", primaryPort, func(rs teredo.Packet) []byte { b := good(rs); return b[:len(b)-1] }, "bad_length"},
		{"empty", primaryPort, func(teredo.Packet) []byte { return nil }, "truncated"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.begin(client.Server{Primary: primary})
			rs := b.solicitation(primaryPort)
			b.want("output", b.udp(tt.from, tt.forge(rs)))
			if got := b.dropped(); got != tt.reason+" 1" {
				t.Errorf("dropped %q, want %s", got, tt.reason)
			}
			b.udp(primaryPort, good(rs))
			if b.c.Snapshot().State != client.Qualified {
				t.Error("the good answer behind the forged one does not count")
			}
		})
	}
}

func TestUnaskedAdvertisement(t *testing.T) {
	b := newBench(t)
	b.begin(client.Server{Primary: primary})
	ra := b.answer(mapping)
	b.udp(primaryPort, ra)
	b.want("again", b.udp(primaryPort, ra))
	if got := b.dropped(); got != "unasked_advertisement 1" {
		t.Errorf("dropped %q", got)
	}
}

func TestLegacyPrefix(t *testing.T) {
	b := newBench(t, func(c *client.Config) { c.LegacyPrefix = true })
	b.begin(client.Server{Primary: primary})
	b.udp(primaryPort, advertisement(b.solicitation(primaryPort), mapping, func(_ *teredo.Auth, ra *teredo.RouterAdvertisement) {
		ra.Prefix = netip.MustParsePrefix("3ffe:831f:cb00:7101::/64")
	}))
	if !teredo.Prefix.Contains(b.address()) {
		t.Errorf("address %s", b.address())
	}
}

// What must stop or move the client, from outside.
func TestTransitions(t *testing.T) {
	changed := netip.AddrPortFrom(mapping.Addr(), 50000)
	t.Run("native IPv6 comes and goes", func(t *testing.T) {
		b := newQualified(t)
		was := b.address()
		b.out.Reset()
		b.c.NativeChanged(true, b.now, &b.out)
		b.want("native", b.show(), "event: lost: the host has native IPv6")
		if s := b.c.Snapshot(); s.State != client.Dormant || s.Address.IsValid() || !b.c.Next().IsZero() {
			t.Errorf("snapshot %+v, next %v", s, b.c.Next())
		}
		b.out.Reset()
		b.c.LocalChanged(local, nil, b.now, &b.out)
		b.c.SetServers([]client.Server{{Primary: second}}, b.now, &b.out)
		b.want("dormant", b.show())
		b.c.SetServers([]client.Server{{Primary: primary}}, b.now, &b.out)
		b.c.NativeChanged(false, b.now, &b.out)
		b.want("no native", b.show(), "to primary: solicitation")
		b.udp(primaryPort, b.answer(mapping))
		if b.address() != was {
			t.Error("the old mapping has another address than before")
		}
	})
	t.Run("native IPv6 comes and goes beside a standby", func(t *testing.T) {
		b := newQualified(t, standby)
		was := b.address()
		b.trusted()
		b.out.Reset()
		b.c.NativeChanged(true, b.now, &b.out)
		b.want("native", b.show(), "event: standby true, "+was.String())
		if s := b.c.Snapshot(); s.State != client.Qualified || !s.Standby || s.Address != was {
			t.Errorf("snapshot %+v", s)
		}
		b.want("a proved peer", b.ip(data(was, peerAddr, "bound")), "to peer: bound")
		b.want("its answer", b.udp(peerMapping, data(peerAddr, was, "to it")), "host: to it")
		b.out.Reset()
		b.c.NativeChanged(true, b.now, &b.out)
		b.want("the same again", b.show())
		b.c.NativeChanged(false, b.now, &b.out)
		b.want("no native", b.show(), "event: standby false, "+was.String())
		b.want("the peer is still proved", b.ip(data(was, peerAddr, "on")), "to peer: on")
	})
	t.Run("a standby is kept alive", func(t *testing.T) {
		b := newQualified(t, standby)
		b.c.NativeChanged(true, b.now, &b.out)
		was := b.address()
		for range 20 {
			took, shown := b.tick()
			if took > client.DefaultRefresh {
				t.Fatalf("nothing for %v", took)
			}
			b.want("refresh", shown, "to primary: solicitation")
			b.udp(primaryPort, b.answer(mapping))
		}
		if b.address() != was {
			t.Errorf("address %s, before %s", b.address(), was)
		}
	})
	t.Run("a standby's mapping changes", func(t *testing.T) {
		b := newQualified(t, standby)
		b.c.NativeChanged(true, b.now, &b.out)
		b.tick()
		b.want("answer", b.udp(primaryPort, b.answer(changed)), "event: address changed, for 198.51.100.10:50000", "event: NAT: unknown, port not preserved")
		if s := b.c.Snapshot(); !s.Standby || s.State != client.Qualified {
			t.Errorf("snapshot %+v", s)
		}
	})
	t.Run("a standby qualifies beside native IPv6", func(t *testing.T) {
		b := newBench(t, standby)
		b.c.NativeChanged(true, b.now, &b.out)
		b.begin(client.Server{Primary: primary})
		b.udp(primaryPort, b.answer(mapping))
		if s := b.c.Snapshot(); !s.Standby || s.State != client.Qualified {
			t.Errorf("snapshot %+v", s)
		}
	})
	t.Run("IPv4 goes and comes", func(t *testing.T) {
		b := newQualified(t)
		b.out.Reset()
		b.c.LocalChanged(netip.AddrPort{}, nil, b.now, &b.out)
		b.want("gone", b.show(), "event: lost: the host has no IPv4 address")
		b.out.Reset()
		b.c.LocalChanged(local, nil, b.now, &b.out)
		b.want("there", b.show(), "to primary: solicitation")
	})
	t.Run("local address changes", func(t *testing.T) {
		b := newQualified(t)
		b.out.Reset()
		b.c.LocalChanged(netip.MustParseAddrPort("192.168.7.7:3551"), nil, b.now, &b.out)
		b.want("at once", b.show(), "to primary: solicitation")
		b.want("answer", b.udp(primaryPort, b.answer(changed)), "event: address changed, for 198.51.100.10:50000", "event: NAT: unknown, port not preserved")
	})
	t.Run("servers change", func(t *testing.T) {
		b := newQualified(t)
		b.out.Reset()
		b.c.SetServers([]client.Server{{Primary: second}, {Primary: primary}}, b.now, &b.out)
		b.want("still in the list", b.show())
		b.c.SetServers([]client.Server{{Primary: second}}, b.now, &b.out)
		b.want("not in the list", b.show(), "to secondary: solicitation", "event: lost: the server was changed")
	})
	t.Run("stop", func(t *testing.T) {
		b := newQualified(t)
		b.ip(data(b.address(), hostAddr, "x"))
		b.out.Reset()
		b.c.Stop(&b.out)
		b.want("stop", b.show(), "event: lost: the client was stopped")
		if b.dropped() != "address_gone 1" || !b.c.Next().IsZero() {
			t.Errorf("dropped %s, next %v", b.dropped(), b.c.Next())
		}
		b.ip(data(hostAddr, hostAddr, "x"))
		b.out.Reset()
		b.c.Tick(b.now.Add(time.Hour), &b.out)
		b.want("stopped", b.show())
	})
}

func TestNewRefuses(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name string
		cfg  client.Config
		want string
	}{
		{"no randomness", client.Config{}, "source of randomness"},
		{"randomness that fails", client.Config{Rand: iotest.ErrReader(broken)}, "broken"},
		{"prefix of 64 bits", client.Config{Rand: seeded(1), Prefixes: []netip.Prefix{netip.MustParsePrefix("2001::/64")}}, "32 bits"},
		{"secret too short", client.Config{Rand: seeded(1), Credential: teredo.Credential{ID: "north", Secret: []byte("short")}}, "at least 16"},
		{"IPv4 prefix", client.Config{Rand: seeded(1), Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}}, "IPv6"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := client.New(tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v", err)
			}
		})
	}
}
