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
	n := state.Fresh{Peer: server.As4(), PeerPort: ftpData, Status: state.V4Init}
	s, err := e.expect(&c, in, n, func(b *state.Binding, n *state.Fresh) Reason {
		r, ok := e.bind(&c, in, b), false
		if r == none {
			n.Prefix, ok = e.prefixFor(b, n.Peer)
		}
		if r == none && !ok {
			r = Reason(translate.ReasonNonGlobal)
		}
		return r
	})
	return outsideOf(&s), err
}

// outsideOf is T,t; without a session it is nothing.
func outsideOf(s *state.Session) netip.AddrPort {
	if s.Word == 0 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(netip.AddrFrom4(s.Pool), s.PoolPort)
}

// ExpectCaller does the same for the IPv4 client of a control connection and a port of its
// server, on the address that the client has called. System ports are not for data: whoever
// made a server name one would have it reached from outside.
func (e *Engine) ExpectCaller(number, port uint16, now time.Time, out *Out) (netip.AddrPort, error) {
	a := e.callers.of(number)
	if a == nil || port < 1024 {
		return netip.AddrPort{}, fmt.Errorf("port %d of the server of connection %d is not to be reached", port, number)
	}
	return e.expectFor(a, port, state.Fresh{PeerPort: ftpData, Status: state.V4Init}, now, out)
}

// ExpectCalled binds port 20 of that server, for a connection to a port of the client, to the
// address that the client has called. A server that calls from another port has what its
// packets make.
func (e *Engine) ExpectCalled(number, port uint16, now time.Time, out *Out) error {
	a := e.callers.of(number)
	if a == nil || port == 0 {
		return fmt.Errorf("the server of connection %d has no client with port %d", number, port)
	}
	_, err := e.expectFor(a, ftpData, state.Fresh{PeerPort: port, Status: state.V6Init}, now, out)
	return err
}

// expectFor expects a session between a port of a server and its IPv4 client. It takes the
// place of the last one of that control connection, if nothing has come for that.
func (e *Engine) expectFor(a *alias, port uint16, n state.Fresh, now time.Time, out *Out) (netip.AddrPort, error) {
	c := e.begin(translate.Path{}, now, out)
	n.Peer, n.Prefix = a.Client.Addr().As4(), a.prefix // or the server would see two clients
	in := state.Inside{Client: a.Inside.Addr().As16(), Port: port, Transport: state.TCP}
	s, err := e.expect(&c, in, n, func(b *state.Binding, _ *state.Fresh) Reason {
		return e.bindOn(&c, in, a.Server.Addr().As4(), b)
	})
	if err != nil {
		return netip.AddrPort{}, err
	}
	var last state.Session
	if a.awaited != s.Index+1 && e.table.View(a.awaited-1, &last) && last.Word.Generation() == a.generation && last.Word.Flags()&state.Expected != 0 {
		e.end(&c, &last)
	}
	a.awaited, a.generation = s.Index+1, s.Word.Generation()
	return outsideOf(&s), nil
}

// expect makes a session that waits for its first packet, with the binding of X',x.
func (e *Engine) expect(c *call, in state.Inside, n state.Fresh, bind func(*state.Binding, *state.Fresh) Reason) (s state.Session, err error) {
	inside, peer := netip.AddrPortFrom(netip.AddrFrom16(in.Client), in.Port), netip.AddrFrom4(n.Peer)
	n.Flags, n.Stamp = state.Expected, c.at
	var b state.Binding
	for range maxRetries {
		if r := bind(&b, &n); r != none {
			return s, fmt.Errorf("no port for a connection of %s with %s: %s", inside, peer, r)
		}
		switch e.table.NewSession(&b, n, &s) {
		case state.Made:
			e.stats.SessionsMade++
			e.remember(c.at, &s)
			e.sessionEvent(c, SessionStart, &s)
			return s, nil
		case state.Found, state.OtherPrefix:
			if e.usable(c, &s) {
				e.table.Touch(&s, c.at)
				return s, nil
			}
		case state.Gone:
		default:
			e.table.Reap(&b)
			return state.Session{}, errors.New("no room for a connection that is expected")
		}
	}
	return state.Session{}, errors.New("the state is busy; the connection cannot be expected now")
}
