// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// ftpData is the port that FTP servers open data connections from (RFC 959 section 3.2).
const ftpData = 20

// Expect binds X',x for a connection that an IPv4 host will open, and returns T,t to be
// told to it (RFC 6384 section 6.1). The binding is held for Timers.Expected; a connection
// made in that time keeps it. One from the server's port 20 finds its session there; from
// another port filtering decides, which counts the server as met.
func (e *Engine) Expect(client netip.AddrPort, server netip.Addr, now time.Time, out *Out) (netip.AddrPort, error) {
	if !client.Addr().Is6() || !server.Is4() || client.Port() == 0 || !translate.Forwarded(server) {
		return netip.AddrPort{}, fmt.Errorf("no connection from %s to %s can be expected", server, client)
	}
	c := e.begin(translate.Path{}, now, out)
	in := state.Inside{Client: client.Addr().As16(), Port: client.Port(), Transport: state.TCP}
	var b state.Binding
	for range maxRetries {
		if r := e.bind(&c, in, &b); r != none {
			return netip.AddrPort{}, fmt.Errorf("no port for a connection from %s to %s: %s", server, client, r)
		}
		prefix, ok := e.prefixFor(&b, server.As4())
		if !ok {
			return netip.AddrPort{}, fmt.Errorf("no prefix of pool6 may stand for %s", server)
		}
		var s state.Session
		n := state.Fresh{
			Peer: server.As4(), PeerPort: ftpData, Prefix: prefix,
			Status: state.V4Init, Flags: state.Expected, Stamp: c.at,
		}
		switch e.table.NewSession(&b, n, &s) {
		case state.Made:
			e.stats.SessionsMade++
			e.sessionEvent(&c, SessionStart, &s)
			return netip.AddrPortFrom(netip.AddrFrom4(b.Pool), b.PoolPort), nil
		case state.Found, state.OtherPrefix:
			if e.usable(&c, &s) {
				e.table.Touch(&s, c.at)
				return netip.AddrPortFrom(netip.AddrFrom4(b.Pool), b.PoolPort), nil
			}
		case state.Gone:
		default:
			e.table.Reap(&b)
			return netip.AddrPort{}, errors.New("no room for a connection that is expected")
		}
	}
	return netip.AddrPort{}, errors.New("the state is busy; the connection cannot be expected now")
}
