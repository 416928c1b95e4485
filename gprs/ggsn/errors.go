// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
)

// origin is where a packet came from, and what is said of it goes.
type origin struct {
	vrf     uint8
	context handle // of the terminal; 0: the network
}

// reply sends a packet of the node's own to where another came from.
func (e *Engine) reply(c call, o origin, p []byte) {
	if o.context == 0 {
		c.out.sendIP(o.vrf, p)
		return
	}
	e.encapsulate(c, o.context, e.sessions.at(e.contexts.at(o.context).session), p)
}

// complaint is an ICMP error in both families.
type complaint struct {
	type4, code4, type6, code6 byte
	mtu                        int
}

var (
	complainExceeded   = complaint{type4: 11, type6: packet.ICMPv6TimeExceeded}
	complainProhibited = complaint{type4: 3, code4: 13, type6: packet.ICMPv6Unreachable, code6: packet.UnreachableAdmin}
	complainNoHost     = complaint{type4: 3, code4: 1, type6: packet.ICMPv6Unreachable, code6: packet.UnreachableAddress}
)

// speaker is the node as a network's host: where its ICMP errors come from.
type speaker struct {
	router4, router6 netip.Addr
	silent           bool
}

func (a *access) speaker() speaker { return speaker{a.Router4, a.Router6, a.SilentICMP} }

// complain sends an ICMP error about a packet, if its source may be sent one and the rate
// allows it. Without errors about sizes path MTU discovery fails, so those are never
// silenced.
func (e *Engine) complain(c call, o origin, s speaker, what complaint, p []byte) {
	if s.silent && what.mtu == 0 {
		return
	}
	b := c.out.Alloc(packet.MinMTU)
	if p[0]>>4 == 6 && s.router6.IsValid() {
		b = packet.AppendICMPv6Error(b, s.router6, what.type6, what.code6, uint32(what.mtu), p)
	} else if p[0]>>4 == 4 && s.router4.IsValid() {
		b = packet.AppendICMPv4Error(b, s.router4, what.type4, what.code4, uint32(what.mtu), p)
	}
	if len(b) == 0 {
		return
	}
	source, _ := netip.AddrFromSlice(b[16:20])
	if p[0]>>4 == 6 {
		source = packet.IPv6(p).Src()
	}
	if share := e.icmpSources.Take(source, c.now); share == ratelimit.NoShare || !e.icmpBucket.Take(e.icmpLimit, share, c.now) {
		e.stats.ICMPLimited++
		return
	}
	e.stats.ICMPErrors++
	e.reply(c, o, b)
}

func (e *Engine) timeExceeded(c call, o origin, s *session, p []byte) {
	e.complain(c, o, e.accessPoint(s).speaker(), complainExceeded, p)
}

func (e *Engine) prohibited(c call, o origin, s *session, p []byte) {
	e.complain(c, o, e.accessPoint(s).speaker(), complainProhibited, p)
}

func (e *Engine) unreachable(c call, o origin, p []byte) {
	e.complain(c, o, e.vrfs[o.vrf].speaker, complainNoHost, p)
}
