// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"bufio"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/translate/ftpalg/ftptest"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
	"github.com/isthmus-net/isthmus/translate/nat64"
)

// ftpCounts are the gateway's counters.
func ftpCounts(n *NAT64) map[string]float64 {
	counts := make(map[string]float64)
	n.Collect(func(m role.Metric) {
		if m.Name == "ftp_total" {
			counts[m.Reason] = m.Value
		}
	})
	return counts
}

var ftpServer = netip.AddrPortFrom(poolFour6, ftpPort)

// TestFTP has Debian's clients, which have IPv6 alone, use Debian's server, which has
// IPv4 alone: both directions, opened by either side, in clear and behind AUTH TLS.
func TestFTP(t *testing.T) {
	inModes(t, func(t *testing.T, w *gatewaytest.World, c Settings) {
		server := ftptest.Start(t, w.Four, peers.Vsftpd{Address: gatewaytest.FourAddr})
		c.FTP = true
		n := start(t, w, c)
		n.attached(t, c.FastPath)
		for _, x := range ftptest.Transfers() {
			t.Run(x.String(), func(t *testing.T) {
				before, packets := ftpCounts(n), n.forwarded()
				server.Try(t, w.Six, ftpServer, x)
				after := ftpCounts(n)
				grown := func(name string) bool { return after[name] > before[name] }
				if grown("auth_accepted") != x.TLS || grown("eprt_translated") != (x.Active && !x.TLS) || grown("epsv_translated") != (!x.Active && !x.TLS) {
					t.Errorf("before: %v\nafter: %v", before, after)
				}
				// Data that can be seen to be the client's own session.
				if got := n.forwarded() - packets; (got > 30) != (c.FastPath != fastpath.ModeOff) {
					t.Errorf("the programs have translated %d packets: %+v", got, n.fast.Status().Packets)
				}
			})
		}
	})
}

// sessionsWith lists the sessions with an IPv4 host.
func (n *NAT64) sessionsWith(peer netip.Addr) (list []nat64.SessionInfo) {
	n.walk(func(e *nat64.Engine, at uint32, now time.Time) uint32 {
		return e.Sessions(nat64.Selection{Peer: netip.PrefixFrom(peer, 32)}, at, listStep, now, func(s nat64.SessionInfo) bool {
			list = append(list, s)
			return true
		})
	})
	return list
}

// TestFTPSessions looks at what transfers leave in the table: control connections of
// the gateway's own under the client's address, as are data connections, on one address
// of several in the pool; where strangers cannot open any, an expected server can.
func TestFTPSessions(t *testing.T) {
	w := gatewaytest.NewWorld(t)
	server := ftptest.Start(t, w.Four, peers.Vsftpd{Address: gatewaytest.FourAddr})
	c := testSettings(t)
	c.FTP, c.DropExternalTCP, c.FilteringTCP = true, true, AddressDependent
	c.Pool4[0].Prefix = netip.MustParsePrefix("192.0.2.64/29")
	n := start(t, w, c)
	for _, active := range []bool{false, true} {
		server.Try(t, w.Six, ftpServer, ftptest.Transfer{Program: "curl", Active: active})
	}
	var controls, passive, active int
	pool := make(map[netip.Addr]bool)
	for _, s := range n.sessionsWith(gatewaytest.FourAddr) {
		pool[s.Outside.Addr()] = true
		switch port := s.Peer.Port(); {
		case port == ftpPort && s.Inside.Addr() == gatewaytest.SixAddr:
			controls++
		case port == 20 && s.Inside.Addr() == gatewaytest.SixAddr:
			active++
		case port > 1023 && s.Inside.Addr() == gatewaytest.SixAddr:
			passive++
		default:
			t.Errorf("what is %+v?", s)
		}
	}
	if controls != 4 || passive != 2 || active != 2 || len(pool) != 1 {
		t.Errorf("%d control connections, %d passive and %d active ones for data, from %v; want 4, 2, 2 from one address", controls, passive, active, pool)
	}
}

// talker is a control connection by hand.
type talker struct {
	net.Conn
	lines *bufio.Reader
}

// talk connects six to the server.
func talk(t *testing.T, w *gatewaytest.World) *talker {
	t.Helper()
	return talkTo(t, w.Six, ftpServer)
}

// talkTo connects a namespace to a server.
func talkTo(t *testing.T, ns *testutil.Netns, at netip.AddrPort) *talker {
	t.Helper()
	var conn net.Conn
	ns.Do(t, func() (err error) {
		conn, err = net.DialTimeout("tcp", at.String(), testutil.Patience)
		return err
	})
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	return &talker{conn, bufio.NewReader(conn)}
}

// wants says a line, if there is one, and checks the code of the reply.
func (k *talker) wants(t *testing.T, line, code string) {
	t.Helper()
	if line != "" {
		if _, err := io.WriteString(k, line+"\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	if reply, err := k.lines.ReadString('\n'); err != nil || len(reply) < 4 || reply[:4] != code+" " {
		t.Fatalf("the reply to %q is %q (%v), want %s", line, reply, err, code)
	}
}

// TestFTPByHand says what no client says, to vsftpd, and hears the end.
func TestFTPByHand(t *testing.T) {
	w := gatewaytest.NewWorld(t)
	ftptest.Start(t, w.Four, peers.Vsftpd{Address: gatewaytest.FourAddr})
	c := testSettings(t)
	c.FTP = true
	n := start(t, w, c)
	k := talk(t, w)
	k.wants(t, "", "220")
	k.wants(t, "ALGS STATUS64", "216") // vsftpd wants a login before NOOP
	k.wants(t, "USER anonymous", "230")
	k.wants(t, "EPSV 1", "522")
	k.wants(t, "EPSV ALL", "504")
	k.wants(t, "EPSV", "229")
	k.wants(t, "ALGS DISABLE64", "216")
	k.wants(t, "EPRT |2|2001:db8:6::2|5282|", "500") // vsftpd's own answer
	k.wants(t, "ALGS ENABLE64", "216")
	k.wants(t, "EPRT |2|2001:db8:6::2|5282|", "200")
	k.wants(t, "EPRT |2|2001:db8:6::3|5282|", "500")
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	k.wants(t, "", "421")
	if counts := ftpCounts(n); counts["stopped"] != 1 || counts["eprt_translated"] != 1 || counts["epsv_translated"] != 1 {
		t.Errorf("counted: %v", counts)
	}
}

// TestFTPRestart: a successor, which finds the device that was left to it, serves on.
func TestFTPRestart(t *testing.T) {
	inModes(t, func(t *testing.T, w *gatewaytest.World, c Settings) {
		server := ftptest.Start(t, w.Four, peers.Vsftpd{Address: gatewaytest.FourAddr})
		c.FTP = true
		for range 2 {
			n := start(t, w, c)
			n.attached(t, c.FastPath)
			for _, active := range []bool{false, true} {
				server.Try(t, w.Six, ftpServer, ftptest.Transfer{Program: "curl", Active: active})
			}
			if err := w.Leave(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestFTPWithOneAddress: the pool is the only IPv4 address that the host has.
func TestFTPWithOneAddress(t *testing.T) {
	inModes(t, func(t *testing.T, w *gatewaytest.World, c Settings) {
		if c.FastPath == fastpath.ModeOff {
			return // an address of the host's own takes a program at the cards
		}
		c.FTP = true
		c.Pool4 = []PoolRange{{Prefix: netip.PrefixFrom(gatewaytest.Gateway4, 32), Transports: AllTransports, First: 20000, Last: 29999}}
		server := ftptest.Start(t, w.Four, peers.Vsftpd{Address: gatewaytest.FourAddr})
		start(t, w, c).attached(t, c.FastPath)
		for _, active := range []bool{false, true} {
			server.Try(t, w.Six, ftpServer, ftptest.Transfer{Program: "tnftp", Active: active})
		}
	})
}

// TestFTPReloadEnds: a reload that takes the gateway away, or gives it another prefix, tells
// idle control connections, on both sides, that they end; one that does neither leaves them.
func TestFTPReloadEnds(t *testing.T) {
	inModes(t, func(t *testing.T, w *gatewaytest.World, c Settings) {
		ftptest.Start(t, w.Four, peers.Vsftpd{Address: gatewaytest.FourAddr})
		c.FTP = true
		n := start(t, w, c)
		n.attached(t, c.FastPath)
		var k *talker
		ended := 0
		for _, step := range []struct {
			name string
			to   func(*Settings)
			ends bool
		}{
			{"another limit", func(c *Settings) { c.FTPConnections = 7 }, false},
			{"another prefix", func(c *Settings) { c.AlgPrefix = netip.MustParsePrefix("fd00:db8:1:2::/64") }, true},
			{"off", func(c *Settings) { c.FTP = false }, true},
		} {
			if k == nil {
				k = talk(t, w)
				k.wants(t, "", "220")
			}
			step.to(&c)
			if left, err := roletest.Reload(Role, n, n.cfg, c); err != nil || len(left) > 0 {
				t.Fatalf("%s: %v needs a restart; %v", step.name, left, err)
			}
			if !step.ends {
				k.wants(t, "USER anonymous", "230")
				continue // it goes on to the next step
			}
			k.wants(t, "", "421")
			if _, err := k.lines.ReadByte(); err != io.EOF {
				t.Errorf("%s: behind the last word comes %v", step.name, err)
			}
			k = nil
			ended++
			if got := ftpCounts(n)["stopped"]; got != float64(ended) {
				t.Errorf("%s: %v connections were told of their end, want %d", step.name, got, ended)
			}
		}
	})
}

// TestFTPReload switches the gateway on and off, and gives it another prefix.
func TestFTPReload(t *testing.T) {
	configtest.InEffect(t, "nat64", "ftp", "ftp_connections")
	w := gatewaytest.NewWorld(t)
	server := ftptest.Start(t, w.Four, peers.Vsftpd{Address: gatewaytest.FourAddr})
	c := testSettings(t)
	n := start(t, w, c)
	passive := ftptest.Transfer{Program: "curl"}
	var translated float64
	for _, step := range []struct {
		name   string
		on     bool
		prefix netip.Prefix
	}{
		{"off", false, netip.Prefix{}},
		{"on", true, netip.Prefix{}},
		{"another prefix", true, netip.MustParsePrefix("fd00:db8:1:2::/64")},
		{"off again", false, netip.Prefix{}},
	} {
		c.FTP, c.AlgPrefix = step.on, step.prefix
		left, err := roletest.Reload(Role, n, n.cfg, c)
		if err != nil || len(left) > 0 {
			t.Fatalf("%s: %v needs a restart; %v", step.name, left, err)
		}
		server.Try(t, w.Six, ftpServer, passive)
		now := ftpCounts(n)["epsv_translated"]
		if (now > translated) != step.on {
			t.Errorf("%s: EPSV was translated %v times, before %v", step.name, now, translated)
		}
		translated = now
	}
	c.FTP, c.FTPConnections = true, 1
	if left, err := roletest.Reload(Role, n, n.cfg, c); err != nil || len(left) > 0 {
		t.Fatalf("fewer connections: %v needs a restart; %v", left, err)
	}
	talk(t, w).wants(t, "", "220")
	talk(t, w).wants(t, "", "421")
}
