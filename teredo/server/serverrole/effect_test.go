// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package serverrole

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/server"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

// written makes a server of a text.
func written(t *testing.T, text string) *Server {
	t.Helper()
	s, err := New(*configtest.One(t, Role.Section, text).(*Settings), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// answered counts the answers to solicitations that come at once.
func answered(s *Server, from string, solicitations int) (n int) {
	at := netip.MustParseAddrPort(from)
	for range solicitations {
		var out packet.Batch
		s.engine.HandleUDP(at, server.Primary, teredo.AppendRouterSolicitation(nil, teredo.LinkLocal(0, at)), time.Unix(1_700_000_000, 0), &out)
		n += len(out.UDP)
	}
	return n
}

// TestKeysOfRates sees how many of ten solicitations are answered.
func TestKeysOfRates(t *testing.T) {
	for _, tt := range []struct {
		key, lines string
		want       int
	}{
		{"none", "", 10},
		{configtest.InEffect(t, "teredo_server", "burst"), "burst = 2", 2},
		{configtest.InEffect(t, "teredo_server", "rate_per_source"), "rate_per_source = 0\nburst = 1", 10},
		{configtest.InEffect(t, "teredo_server", "rate_total"), "rate_per_source = 0\nrate_total = 1\nburst = 2", 2},
	} {
		t.Run(tt.key, func(t *testing.T) {
			if n := answered(written(t, "[[teredo_server]]\naddress = \"203.0.113.1\"\n"+tt.lines), "198.51.100.7:40000", 10); n != tt.want {
				t.Errorf("%d answers, want %d", n, tt.want)
			}
		})
	}
}

// TestAdvertisedSecondary: no one else has the second address that clients see.
func TestAdvertisedSecondary(t *testing.T) {
	configtest.InEffect(t, "teredo_server", "advertise_secondary")
	s := written(t, "[[teredo_server]]\naddress = \"203.0.113.1\"\nsecondary = \"10.0.0.2\"\nadvertise_secondary = \"203.0.113.2\"\n")
	if answered(s, "203.0.113.2:3544", 1) != 0 || answered(s, "203.0.113.3:3544", 1) != 1 {
		t.Error("it does not tell its own address from others")
	}
}

// TestKeysInAnswers sees in the answers of a server in a closed network, behind the
// translator of a cloud, what keys do.
func TestKeysInAnswers(t *testing.T) {
	configtest.InEffect(t, "teredo_server", "name", "address", "advertise", "secondary", "prefixes", "port",
		"allow_private", "mtu", "key", "keys_file", "require_auth", "workers", "announce")
	configtest.InEffect(t, "teredo_server.key", "id", "secret", "algorithm", "expires")
	north := teredo.Credential{ID: "north", Secret: []byte("correct horse battery staple"), Algorithm: teredo.HMACSHA256}
	south := teredo.Credential{ID: "south", Secret: []byte("correct horse battery stable"), Algorithm: teredo.HMACSHA1}
	file := teredotest.File(t, fmt.Sprintf("[[key]]\nid = %q\nsecret = %q\nexpires = 2001-01-01\n", south.ID, south.Secret), 0o600)
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error { return teredotest.SetUp("lo", "10.0.0.1/32", "10.0.0.2/32", "10.0.0.7/32") })
	s := written(t, fmt.Sprintf(`
[announce]
method = "route"
[[teredo_server]]
name = "house"
address = "10.0.0.1"
advertise = "203.0.113.1"
secondary = "10.0.0.2"
advertise_secondary = "203.0.113.2"
prefixes = ["2001:db8::/32"]
port = 3600
allow_private = ["10.0.0.0/8"]
mtu = 1400
keys_file = %q
require_auth = true
workers = 3
announce = true
[[teredo_server.key]]
id = %q
secret = %q
algorithm = "hmac-sha256"
`, file, north.ID, north.Secret))
	if n := answered(s, "10.0.0.7:40000", 1); n != 0 {
		t.Error("a client without a key is answered")
	}
	roletest.Start(t, ns, s)
	if announced := s.AnnouncedPrefixes(); s.Name() != "house" || len(s.conns[server.Primary]) != 3 || len(announced) != 2 {
		t.Errorf("%s has %d sockets and announces %v", s.Name(), len(s.conns[server.Primary]), announced)
	}
	at := netip.MustParseAddrPort("10.0.0.7:40000")
	var client *net.UDPConn
	ns.Do(t, func() (err error) {
		client, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		return err
	})
	defer client.Close()
	for _, tt := range []struct {
		key     teredo.Credential
		flags   teredo.Flags
		from    string
		expired bool
	}{
		{north, 0, "10.0.0.1:3600", false},
		{north, teredo.FlagCone, "10.0.0.2:3600", false},
		{south, 0, "10.0.0.1:3600", true},
	} {
		key, request := teredo.NewKey(tt.key.Algorithm, tt.key.Secret), teredo.Auth{ClientID: []byte(tt.key.ID), Nonce: [8]byte{1, 2, 3}}
		rs := teredo.AppendRouterSolicitation(nil, teredo.LinkLocal(tt.flags, at))
		request.Value = key.Value(request.Nonce, 0, netip.AddrPort{}, rs)
		if _, err := client.WriteToUDPAddrPort(append(request.AppendTo(nil), rs...), netip.MustParseAddrPort("10.0.0.1:3600")); err != nil {
			t.Fatal(err)
		}
		p, from := teredotest.Receive(t, client)
		ra, err := teredo.ParseRouterAdvertisement(p.IPv6)
		if err != nil || from.String() != tt.from || ra.Prefix.String() != "2001:db8:cb00:7101::/64" || ra.MTU != 1400 {
			t.Errorf("%s advertises %s with MTU %d, %v", from, ra.Prefix, ra.MTU, err)
		}
		if !key.Verify(&p) || (p.Auth.Confirmation != 0) != tt.expired {
			t.Errorf("%s: the answer has the confirmation %d, verified %v", tt.key.ID, p.Auth.Confirmation, key.Verify(&p))
		}
	}
}
