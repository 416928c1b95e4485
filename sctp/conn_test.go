// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"context"
	"net"
	"testing"

	"golang.org/x/net/nettest"

	"github.com/isthmus-net/isthmus/sctp/assoc"
)

// onLoopback is a Config for tests on the loopback, beside each other.
func onLoopback() *Config { return &Config{UDPPort: AnyPort} }

// listen opens a listener on the loopback that is closed with the test.
func listen(t testing.TB, c *Config, network, address string) *Listener {
	t.Helper()
	l, err := c.Listen(context.Background(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// connect returns both ends of an association over the loopback, of two paths.
func connect(t testing.TB, c *Config) (client, server *Conn) {
	t.Helper()
	return connectAt(t, c, "[::1]/127.0.0.1:0")
}

func connectAt(t testing.TB, c *Config, address string) (client, server *Conn) {
	t.Helper()
	l := listen(t, c, "sctp+udp", address)
	client, err := c.Dial(context.Background(), "sctp+udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err = l.AcceptSCTP(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Abort("the test is over")
		server.Abort("the test is over")
	})
	return client, server
}

// TestConn runs the tests that package net has of its connections.
func TestConn(t *testing.T) {
	nettest.TestConn(t, func() (client, server net.Conn, stop func(), err error) {
		c, s := connect(t, onLoopback())
		return c, s, func() {
			c.Close()
			s.Close()
		}, nil
	})
}

// TestNothingBehindTheEnd: the channel of events is closed behind the last one, whatever comes after that.
func TestNothingBehindTheEnd(t *testing.T) {
	c := loneConn(Config{})
	events := c.Events()
	for _, kind := range []EventKind{Failed, PathInactive, Closed} {
		c.note(&assoc.Event{Kind: kind, Association: c.a})
	}
	if e, open := <-events; !open || e.Kind != Failed {
		t.Errorf("the first event is %v", e.Kind)
	}
	if e, open := <-events; open {
		t.Errorf("an event %v behind the last", e.Kind)
	}
}
