// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

func TestNewRefuses(t *testing.T) {
	addr := netip.MustParseAddr
	for _, tt := range []struct {
		name string
		edit func(*Config)
		want string // part of the sentence
	}{
		{"no address", func(c *Config) { c.Primary = netip.Addr{} }, "no IPv4 address"},
		{"IPv6 address", func(c *Config) { c.Primary = addr("2001:db8::1") }, "no IPv4 address"},
		{"private address", func(c *Config) { c.Primary = addr("10.0.0.4") }, "10.0.0.4 is not a global IPv4 address"},
		{"private advertised secondary", func(c *Config) { c.AdvertisedSecondary = addr("10.0.0.4") }, "10.0.0.4 is not"},
		{"the same address twice", func(c *Config) { c.Secondary = c.Primary }, "are the same"},
		{"the same public address twice", func(c *Config) {
			c.AdvertisedPrimary, c.AdvertisedSecondary = addr("192.0.2.1"), addr("192.0.2.1")
		}, "are the same"},
		{"advertised secondary without a bound one", func(c *Config) {
			c.Secondary, c.AdvertisedSecondary = netip.Addr{}, addr("192.0.2.1")
		}, "192.0.2.1 is advertised but none is bound"},
		{"prefix of 64 bits", func(c *Config) { c.Prefixes = []netip.Prefix{netip.MustParsePrefix("2001:db8::/64")} }, "2001:db8::/64"},
		{"IPv4 prefix", func(c *Config) { c.Prefixes = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")} }, "192.0.2.1/32"},
		{"MTU below that of IPv6", func(c *Config) { c.MTU = 1279 }, "MTU 1279"},
		{"MTU that the option cannot mean", func(c *Config) { c.MTU = 65536 }, "MTU 65536"},
		{"no randomness", func(c *Config) { c.Rand = nil }, "randomness"},
		{"randomness that fails", func(c *Config) { c.Rand = iotest.ErrReader(errors.New("no entropy")) }, "no entropy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := config()
			tt.edit(&cfg)
			_, err := New(cfg)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestNewAccepts(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*Config)
	}{
		{"private address in a closed network", func(c *Config) {
			c.Primary, c.Secondary = netip.MustParseAddr("10.0.0.4"), netip.Addr{}
			c.Global.Allow = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		}},
		{"private address behind a 1:1 NAT", func(c *Config) {
			c.Primary, c.AdvertisedPrimary = netip.MustParseAddr("10.0.0.4"), netip.MustParseAddr("192.0.2.1")
		}},
		{"service prefix in private space", func(c *Config) { c.Prefixes = []netip.Prefix{netip.MustParsePrefix("fd00:1::/32")} }},
	} {
		t.Run(tt.name, func(t *testing.T) { newEngine(t, tt.edit) })
	}
}

func TestReconfigure(t *testing.T) {
	e := newEngine(t, nil)
	from := netip.MustParseAddrPort(clientAddr)
	var out packet.Batch
	e.HandleUDP(from, Primary, testutil.Unhex(t, rsMiredoCone), now, &out)

	bad := config()
	bad.MTU = 1
	if err := e.Reconfigure(bad); err == nil {
		t.Fatal("a bad configuration was taken")
	}
	e.HandleUDP(from, Primary, testutil.Unhex(t, rsMiredoCone), now, &out)
	if len(out.UDP) != 2 {
		t.Fatal("the engine does not work on after a bad configuration")
	}

	single := config()
	singleAddress(&single)
	if err := e.Reconfigure(single); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	e.HandleUDP(from, Primary, testutil.Unhex(t, rsMiredoCone), now, &out)
	if len(out.UDP) != 0 {
		t.Error("the old configuration is still in force")
	}
	if c := e.Counters(); c.Received != 3 || c.Advertisements != 2 || c.Dropped[ConeUnanswerable] != 1 {
		t.Errorf("counters %+v did not live on", c)
	}
}
