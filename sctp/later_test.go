// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-net/isthmus/sctp/assoc"
	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// loneConn is an association of an endpoint without sockets.
func loneConn(c Config) *Conn {
	e := &Endpoint{config: c, engine: assoc.New(assoc.Config{}), filling: &assoc.Output{}, conns: map[*Conn]struct{}{}}
	conn := newConn(e, true)
	conn.a = &assoc.Association{}
	return conn
}

// TestFollowLaterOnce: however many addresses the peer refuses behind a NAT, all are asked for again at one time; each refusal
// of that would begin a row of its own otherwise (RFC 6951 section 5.7).
func TestFollowLaterOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := loneConn(Config{HideAddresses: true})
		c.closing = true // nothing is asked for in the test
		refused := assoc.Event{Kind: ChangeRefused, Association: c.a, Cause: chunk.CauseUnresolvableAddress}
		for range 2 {
			c.endpoint.mu.Lock()
			c.note(&refused)
			first := c.later
			c.note(&refused)
			if first == nil || c.later != first {
				t.Error("the second refusal begins another row")
			}
			c.endpoint.mu.Unlock()
			wait := assoc.Defaults().HeartbeatInterval
			time.Sleep(wait)
			synctest.Wait()
			c.endpoint.mu.Lock()
			if c.later != nil {
				t.Error("the next refusal begins none")
			}
			c.endpoint.mu.Unlock()
		}
	})
}
