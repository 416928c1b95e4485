// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import "github.com/isthmus-net/isthmus/translate/nat64/state"

// udp6 and udp4 find or make the session of a UDP packet (RFC 6146 section 3.5.1).
func (e *Engine) udp6(c *call, k *state.Key6, s *state.Session) Reason { return e.open6(c, k, s) }

func (e *Engine) udp4(c *call, k *state.Key4, s *state.Session) Reason {
	return e.open4(c, k, e.settings.FilterUDP, s)
}

// open6 serves the transports whose sessions have one state. A packet from the IPv6 side
// always begins the lifetime again.
func (e *Engine) open6(c *call, k *state.Key6, s *state.Session) Reason {
	if e.find6(c, k, s) {
		e.table.Touch(s, c.at)
		return none
	}
	return e.make6(c, k, state.Opened, s)
}

// open4 does the same for the IPv4 side, which may be told not to prolong a session
// (RFC 4787 REQ-6), and whose packets need a binding.
func (e *Engine) open4(c *call, k *state.Key4, filtering Filtering, s *state.Session) Reason {
	if e.find4(c, k, s) {
		if !e.settings.OutboundRefreshOnly {
			e.table.Touch(s, c.at)
		}
		return none
	}
	var b state.Binding
	out := state.Outside{Pool: k.Pool, Port: k.PoolPort, Transport: k.Transport}
	switch {
	case !e.table.FindBinding4(&out, &b):
		return NoBinding
	case filtering == AddressDependent && !e.allowsPeer(c.at, &b, k.Peer):
		return Filtered
	}
	return e.make4(c, &b, k, state.Opened, s)
}
