// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"strconv"
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/translate/ftpalg/ftptest"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
)

// boundFTP is where the FTP server of six is to be found in IPv4.
var boundFTP = netip.MustParseAddrPort("192.0.2.66:2121")

// bindFTP has a configuration bind it, to one address of several.
func bindFTP(c *Settings) {
	c.FTP = true
	c.Pool4[0].Prefix = netip.MustParsePrefix("192.0.2.64/29")
	c.Static = []StaticBinding{{Transport: TCP, Inside: netip.AddrPortFrom(gatewaytest.SixAddr, ftpPort), Outside: boundFTP}}
}

// TestFTPFromIPv4 has Debian's clients, which have IPv4 alone, use Debian's server, which has
// IPv6 alone: both directions, opened by either side, by commands old and new.
func TestFTPFromIPv4(t *testing.T) {
	inModes(t, func(t *testing.T, w *gatewaytest.World, c Settings) {
		server := ftptest.Start(t, w.Six, peers.Vsftpd{Address: gatewaytest.SixAddr})
		bindFTP(&c)
		n := start(t, w, c)
		n.attached(t, c.FastPath)
		for _, x := range ftptest.Calls() {
			t.Run(x.String(), func(t *testing.T) {
				before, packets := ftpCounts(n), n.forwarded()
				server.Try(t, w.Four, boundFTP, x)
				after := ftpCounts(n)
				grown := func(name string) bool { return after[name] > before[name] }
				if grown("port_translated") != x.Active || (grown("epsv_translated") || grown("pasv_translated")) == x.Active || x.Old && grown("epsv_translated") {
					t.Errorf("before: %v\nafter: %v", before, after)
				}
				if got := n.forwarded() - packets; (got > 30) != (c.FastPath != fastpath.ModeOff) {
					t.Errorf("the programs have translated %d packets: %+v", got, n.fast.Status().Packets)
				}
			})
		}
		// All connections of the server, whatever address of the pool it has otherwise.
		for _, s := range n.sessionsWith(gatewaytest.FourAddr) {
			if s.Inside.Addr() != gatewaytest.SixAddr || s.Outside.Addr() != boundFTP.Addr() {
				t.Errorf("what is %+v?", s)
			}
		}
	})
}

// TestFTPFromIPv4ByPorts: behind TLS the gateway sees nothing. Passive transfers work if the
// operator has bound the server's ports for data to the same ones outside.
func TestFTPFromIPv4ByPorts(t *testing.T) {
	w := gatewaytest.NewWorld(t)
	const first, last = 30000, 30003
	server := ftptest.Start(t, w.Six, peers.Vsftpd{Address: gatewaytest.SixAddr, PassiveMin: first, PassiveMax: last})
	c := testSettings(t)
	bindFTP(&c)
	for port := uint16(first); port <= last; port++ {
		c.Static = append(c.Static, StaticBinding{Transport: TCP, Inside: netip.AddrPortFrom(gatewaytest.SixAddr, port), Outside: netip.AddrPortFrom(boundFTP.Addr(), port)})
	}
	n := start(t, w, c)
	for _, x := range []ftptest.Transfer{{Program: "curl", TLS: true}, {Program: "curl"}, {Program: "curl", Old: true}} {
		server.Try(t, w.Four, boundFTP, x)
	}
	if counts := ftpCounts(n); counts["auth_accepted"] == 0 || counts["pasv_translated"] == 0 {
		t.Errorf("counted: %v", counts)
	}
}

var sixNumbers = regexp.MustCompile(`^227 .*\(([0-9]+),([0-9]+),([0-9]+),([0-9]+),([0-9]+),([0-9]+)\)`)

// passive says PASV and returns the address of the answer.
func (k *talker) passive(t *testing.T) netip.AddrPort {
	t.Helper()
	if _, err := io.WriteString(k, "PASV\r\n"); err != nil {
		t.Fatal(err)
	}
	reply, err := k.lines.ReadString('\n')
	m := sixNumbers.FindStringSubmatch(reply)
	if m == nil {
		t.Fatalf("the reply to PASV is %q (%v)", reply, err)
	}
	high, _ := strconv.Atoi(m[5])
	low, _ := strconv.Atoi(m[6])
	return netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("%s.%s.%s.%s", m[1], m[2], m[3], m[4])), uint16(high<<8|low))
}

// TestFTPFromIPv4ByHand says what no client says, to vsftpd, and hears the end.
func TestFTPFromIPv4ByHand(t *testing.T) {
	configtest.InEffect(t, "nat64", "ftp_connections_per_client")
	w := gatewaytest.NewWorld(t)
	ftptest.Start(t, w.Six, peers.Vsftpd{Address: gatewaytest.SixAddr})
	c := testSettings(t)
	bindFTP(&c)
	c.FTPConnectionsPerClient = 2
	n := start(t, w, c)
	k := talkTo(t, w.Four, boundFTP)
	k.wants(t, "", "220")
	k.wants(t, "USER anonymous", "230")
	k.wants(t, "EPSV 2", "522")
	k.wants(t, "EPSV ALL", "504")
	k.wants(t, "PORT 192,0,2,3,20,162", "500") // vsftpd's own answer
	k.wants(t, "PORT 192,0,2,2,20,162", "200")
	k.wants(t, "EPRT |1|192.0.2.2|5282|", "200")
	at := k.passive(t)
	if at.Addr() != boundFTP.Addr() {
		t.Errorf("data at %s, want the address that was called, %s", at, boundFTP)
	}
	if next := k.passive(t); next == at {
		t.Errorf("%s twice, for two ports of the server", at)
	}
	// Only the last is kept, beside the two control connections.
	second := talkTo(t, w.Four, boundFTP)
	second.wants(t, "", "220")
	if got := n.sessionsWith(gatewaytest.FourAddr); len(got) != 3 {
		t.Errorf("%d sessions, want two control connections and one that is expected: %+v", len(got), got)
	}
	talkTo(t, w.Four, boundFTP).wants(t, "", "421") // an address may have two
	k.wants(t, "NOOP", "200")
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	k.wants(t, "", "421")
	second.wants(t, "", "421")
	if counts := ftpCounts(n); counts["stopped"] != 2 || counts["port_translated"] != 2 || counts["pasv_translated"] != 2 {
		t.Errorf("counted: %v", counts)
	}
}

// TestFTPFromIPv4Reload: a reload that takes the gateway away tells idle clients of the end,
// and leaves the server to them; one that gives it back takes new connections to the gateway.
func TestFTPFromIPv4Reload(t *testing.T) {
	inModes(t, func(t *testing.T, w *gatewaytest.World, c Settings) {
		ftptest.Start(t, w.Six, peers.Vsftpd{Address: gatewaytest.SixAddr})
		bindFTP(&c)
		n := start(t, w, c)
		n.attached(t, c.FastPath)
		switchTo := func(on bool) {
			t.Helper()
			c.FTP = on
			if left, err := roletest.Reload(Role, n, n.cfg, c); err != nil || len(left) > 0 {
				t.Fatalf("%v needs a restart; %v", left, err)
			}
			if table := n.fast.table; table != nil && table.Settings().Detour != on {
				t.Error("after a reload the programs go by what was before")
			}
		}
		k := talkTo(t, w.Four, boundFTP)
		k.wants(t, "", "220")
		switchTo(false)
		k.wants(t, "", "421")
		if _, err := k.lines.ReadByte(); err != io.EOF {
			t.Errorf("behind the last word comes %v", err)
		}
		plain := talkTo(t, w.Four, boundFTP)
		plain.wants(t, "", "220")
		switchTo(true)
		plain.wants(t, "USER anonymous", "230") // it began without the gateway, and goes on so
		plain.wants(t, "PORT 192,0,2,2,20,162", "500")
		again := talkTo(t, w.Four, boundFTP)
		again.wants(t, "", "220")
		again.wants(t, "USER anonymous", "230")
		again.wants(t, "PORT 192,0,2,2,20,162", "200")
		if counts := ftpCounts(n); counts["stopped"] != 1 || counts["port_translated"] != 1 {
			t.Errorf("counted: %v", counts)
		}
	})
}
