// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package control

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestCrowdOfOneUser: connections that say nothing do not keep the daemon's memory, and a
// place that is given back is free again.
func TestCrowdOfOneUser(t *testing.T) {
	client := start(t, &source{})
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("unix", client.path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(testutil.Patience)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	greets := func(conn net.Conn) bool {
		if _, err := conn.Write([]byte("GET " + pathStatus + " HTTP/1.1\r\nHost: isthmus\r\n\r\n")); err != nil {
			return false
		}
		n, err := conn.Read(make([]byte, 1))
		return err == nil && n == 1
	}
	var held []net.Conn
	for range maxOfUser {
		conn := dial()
		if !greets(conn) { // by its answer it is known to count
			t.Fatalf("connection %d has no answer", len(held))
		}
		held = append(held, conn)
	}
	if greets(dial()) {
		t.Error("one more was answered")
	}
	if _, err := client.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "hung up") {
		t.Errorf("error %v", err)
	}
	held[0].Close()
	for end := time.Now().Add(testutil.Patience); !greets(dial()); {
		if time.Now().After(end) {
			t.Fatal("a place that was given back is not free")
		}
	}
}

// TestClientsLeaveNoConnections: programs that ask again and again, each time by a new client,
// do not fill the places of their user.
func TestClientsLeaveNoConnections(t *testing.T) {
	path := start(t, &source{}).path
	for i := range 2 * maxOfUser {
		for end := time.Now().Add(testutil.Patience); ; {
			_, err := NewClient(path).Status(t.Context())
			if err == nil {
				break
			}
			if time.Now().After(end) { // the last ones may be about to close
				t.Fatalf("client %d: %v", i, err)
			}
		}
	}
}

// TestCrowdOfUsers: no one user, nor all of them, keep root and the daemon's own user out.
func TestCrowdOfUsers(t *testing.T) {
	const stranger = 1 << 20
	c := newCrowd()
	enter := func(user, n int) (conns []net.Conn) {
		for range n {
			conn, other := net.Pipe()
			t.Cleanup(func() { conn.Close(); other.Close() })
			if c.enter(conn, user) {
				conns = append(conns, conn)
			}
		}
		return conns
	}
	first := enter(stranger, 100)
	if len(first) != maxOfUser {
		t.Errorf("one user has %d connections, want %d", len(first), maxOfUser)
	}
	others := 0
	for n := range 100 {
		others += len(enter(stranger+1+n, 1))
	}
	if others != maxOfOthers-maxOfUser {
		t.Errorf("others have %d", others)
	}
	if got := len(enter(noUser, 1)); got != 0 {
		t.Error("one whose user is not known was let in beyond the limit")
	}
	if got := len(enter(0, 100)); got != maxOfUser {
		t.Errorf("root has %d", got)
	}
	if own := os.Geteuid(); own != 0 && len(enter(own, 100)) != maxOfUser {
		t.Error("the daemon's own user has no room")
	}
	for _, conn := range first {
		c.leave(conn)
		c.leave(conn) // a second time changes nothing
	}
	if got := len(enter(stranger+1000, 100)); got != maxOfUser {
		t.Errorf("of the places that were given back another user has %d", got)
	}
}
