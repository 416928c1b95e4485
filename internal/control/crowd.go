// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package control

import (
	"net"
	"net/http"
	"sync"
)

// How many connections there may be at once: of one user, and of all but root and the user
// who runs the daemon. Those two keep room for as many more.
const (
	maxOfUser   = 16
	maxOfOthers = 48
)

// crowd counts the connections that are open, and hangs up on those beyond the limits.
type crowd struct {
	mu     sync.Mutex
	users  map[net.Conn]int // that count
	of     map[int]int      // by user
	others int              // of those who may change nothing
}

func newCrowd() *crowd { return &crowd{users: make(map[net.Conn]int), of: make(map[int]int)} }

// follow is a [http.Server.ConnState].
func (c *crowd) follow(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if !c.enter(conn, userOf(conn)) {
			_ = conn.Close() // it ends as one that says nothing
		}
	case http.StateClosed, http.StateHijacked:
		c.leave(conn)
	}
}

func (c *crowd) enter(conn net.Conn, user int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[user] >= maxOfUser || !mayChange(user) && c.others >= maxOfOthers {
		return false
	}
	c.count(user, 1)
	c.users[conn] = user
	return true
}

func (c *crowd) leave(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if user, ok := c.users[conn]; ok {
		delete(c.users, conn)
		c.count(user, -1)
	}
}

func (c *crowd) count(user, n int) {
	if !mayChange(user) {
		c.others += n
	}
	if c.of[user] += n; c.of[user] == 0 {
		delete(c.of, user)
	}
}
