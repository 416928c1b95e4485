// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/lab"
)

// echoPort is the UDP port of probes.
const echoPort = 7

// probeResult is what became of one UDP packet that was sent and echoed.
type probeResult struct {
	// There is the time from sending until it arrived, Back until the echo
	// was back. Both clocks are this process's.
	There, Back time.Duration
}

// probe sends one UDP packet to addr of the other node, which echoes it. The
// packet is sent once, so that what is measured is the system under test and
// not a repetition.
func probe(ctx context.Context, from, to *lab.Node, addr netip.Addr, wait time.Duration) (probeResult, error) {
	var r probeResult
	var server, client *net.UDPConn
	if err := to.Do(func() (err error) {
		server, err = net.ListenUDP("udp6", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, echoPort)))
		return err
	}); err != nil {
		return r, err
	}
	defer server.Close()
	if err := from.Do(func() (err error) {
		client, err = net.ListenUDP("udp6", nil)
		return err
	}); err != nil {
		return r, err
	}
	defer client.Close()
	deadline := time.Now().Add(wait)
	_ = server.SetDeadline(deadline)
	_ = client.SetDeadline(deadline)
	defer context.AfterFunc(ctx, func() { server.Close(); client.Close() })()

	arrived := make(chan time.Time, 1)
	go echoOnce(server, arrived)
	sent := time.Now()
	if _, err := client.WriteToUDPAddrPort([]byte("first packet"), netip.AddrPortFrom(addr, echoPort)); err != nil {
		return r, err
	}
	if _, err := client.Read(make([]byte, 64)); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("no answer within %v", wait)
		}
		return r, fmt.Errorf("first packet from %s to %s: %w", from.Name(), to.Name(), err)
	}
	r.Back = time.Since(sent)
	r.There = (<-arrived).Sub(sent)
	return r, nil
}

// echoOnce reports when the first packet came and sends it back.
func echoOnce(conn *net.UDPConn, arrived chan<- time.Time) {
	buf := make([]byte, 64)
	n, from, err := conn.ReadFromUDPAddrPort(buf)
	if err != nil {
		return // the sender reports what is missing
	}
	arrived <- time.Now()
	_, _ = conn.WriteToUDPAddrPort(buf[:n], from)
}

// shownLines is how much of a log an error shows.
const shownLines = 12

func lastLines(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	return "\t" + strings.Join(lines[max(0, len(lines)-shownLines):], "\n\t")
}

// listenUDP opens a socket of a node.
func listenUDP(node *lab.Node, at netip.AddrPort) (conn *net.UDPConn, err error) {
	err = node.Do(func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	})
	return conn, err
}
