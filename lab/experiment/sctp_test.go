// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/sctp"
)

// Associations go over silent cuts, and their clocks are read.
func TestSCTPFailover(t *testing.T) {
	t.Parallel()
	runShort(t, sctpFailover)
}

// The study's figures of the way there and back, on real wires and by the engine in virtual time.
func TestSCTPStudy(t *testing.T) {
	t.Parallel()
	runShort(t, sctpTSN, sctpRestore)
}

// Parameters are tried in virtual time, and on real wires.
func TestSCTPParameters(t *testing.T) {
	t.Parallel()
	runShort(t, sctpParameters)
}

// Every transport carries flows over both lines, D-ITG's log is read, and control messages have streams of their own.
func TestSCTPTransports(t *testing.T) {
	t.Parallel()
	runShort(t, sctpTransports, sctpStreamsExperiment)
}

// SCTP in short form: every association and connection must be set up and carry data.
func TestSCTPTables(t *testing.T) {
	runShort(t, sctpThroughput, sctpFairness)
}

// TestSCTPThroughNAT64 sets an association up from a host with IPv6 alone to one with IPv4 alone: in UDP, and with no
// address told but those that packets come from (RFC 6951 section 5.7).
func TestSCTPThroughNAT64(t *testing.T) {
	t.Parallel()
	ctx, e := testEnv(t)
	g, err := newNAT64Guide(ctx, e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.close(); err != nil {
			t.Error(err)
		}
	})
	i := instance{g.gateway, e.Binary, g.dir, "nat64"}
	_, err = i.run(ctx, fmt.Sprintf("[[nat64]]\nname = \"gateway\"\nclients = [\"2001:db8:1::/64\"]\npool6 = [\"2001:db8:64::/96\"]\n"+
		"pool4 = [\"%s 20000-60999\"]\nkeep_state = false\n", tourGateway4))
	if err != nil {
		t.Fatal(err)
	}
	exchangeSCTP(t, ctx, g.site, "sctp4+udp", ":5000", g.client, "sctp6+udp", "[2001:db8:64::1.2.3.68]:5000")
}

// TestSCTPThroughTeredo sets associations up from behind a NAT to a host with IPv6 alone: Teredo's addresses go from end
// to end, so that SCTP needs no UDP of its own.
func TestSCTPThroughTeredo(t *testing.T) {
	t.Parallel()
	ctx, e := testEnv(t)
	n := testNet(t, ctx, e, []lab.NATKind{lab.PortRestricted})
	if err := n.startServer(ctx, isthmus); err != nil {
		t.Fatal(err)
	}
	if err := n.startRelay(ctx, isthmus); err != nil {
		t.Fatal(err)
	}
	if err := n.startClients(ctx, isthmus); err != nil {
		t.Fatal(err)
	}
	for _, network := range []string{"sctp6", "sctp6+udp"} {
		exchangeSCTP(t, ctx, n.host, network, ":5000", n.clients[0].node, network, fmt.Sprintf("[%s]:5000", hostAddr))
	}
}

// What a server sends leaves it over a silent cut, however long that lasts: no neighbour is asked for that cannot answer.
func TestSCTPSilentNeighbour(t *testing.T) {
	t.Parallel()
	ctx, e := testEnv(t)
	n, err := drawWays(ctx, e, sctpWires, studyWires(false), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.lab.Close(); err != nil {
			t.Error(err)
		}
	})
	n.wires[0].Cut()
	said := []byte("into the silence")
	left := make(chan struct{}, 1)
	_, err = n.lab.Watch(n.server, cutLinks[0], func(_ time.Time, frame []byte) {
		if bytes.HasSuffix(frame, said) {
			left <- struct{}{}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	err = n.server.Do(func() error {
		c, err := net.DialUDP("udp6", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(wireTerminal[0], cutPort)))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(said)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-left:
	case <-time.After(testutil.Patience):
		t.Error("what was sent has not left")
	}
}

// exchangeSCTP has a node send messages to another, which sends them back, in packets as large as the way takes.
func exchangeSCTP(t *testing.T, ctx context.Context, server *lab.Node, listen, at string, client *lab.Node, dial, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, testutil.Patience)
	defer cancel()
	c := sctp.Config{HideAddresses: true}
	var l *sctp.Listener
	err := server.Do(func() (err error) {
		l, err = c.Listen(ctx, listen, at)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if s, err := l.AcceptSCTP(ctx); err == nil {
			_, _ = io.Copy(s, s)
			_ = s.Shutdown(ctx)
		}
	}()
	var a *sctp.Conn
	err = client.Do(func() (err error) {
		a, err = c.Dial(ctx, dial, address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	sent := bytes.Repeat([]byte("an association through the translator "), 5000)
	go func() { _, _ = a.Write(sent) }()
	got := make([]byte, len(sent))
	if err := a.SetReadDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(a, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%s: what has come back is not what was sent: %v", dial, err)
	}
	if err := a.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}
