// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net"
	"syscall"
	"testing"
)

// shortListener has no file for the first connection, and is closed at the next.
type shortListener struct {
	net.Listener
	asked int
}

func (l *shortListener) Accept() (net.Conn, error) {
	if l.asked++; l.asked == 1 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return nil, net.ErrClosed
}

// TestAcceptOutlivesShortage: when others have opened so many connections that no file is left, those that come
// later are taken again.
func TestAcceptOutlivesShortage(t *testing.T) {
	l := new(shortListener)
	new(Agent).accept(&path{tcp: l})
	if l.asked != 2 {
		t.Errorf("connections were asked for %d times, want 2", l.asked)
	}
}
