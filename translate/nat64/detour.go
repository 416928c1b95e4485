// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// FTP control connections take a detour by a proxy on this host (RFC 6384), which needs
// neither firewall rules nor transparent sockets. Settings.DetourPrefix, P::/64, is routed
// into the translator's own device, and
//
//	P::1      is the proxy's own address, A, where it listens on port 21;
//	P:0:1::n  stands for the client of control connection n, towards the proxy;
//	P:0:2::n  is the proxy's own address towards the server of n.
//
// A segment from X',x to the server becomes one from P:0:1::n to A, and is given back to
// the host's stack; the proxy's answers become those of the server. What the proxy sends
// from P:0:2::n to the server's IPv6 form is translated as any packet is, on the account of
// the client of n: so control and data connections have the same T. For IPv4 clients of IPv6
// servers there is, see callers.go,
//
//	P:0:3::n  which stands for the server of n, towards the proxy.

// ftpControl is the port of FTP control connections (RFC 959 section 3.2).
const ftpControl = 21

// maxAliases is how many control connections there may be at a time of IPv6 clients, and of
// IPv4 clients, and maxOfClient how many a client may have of them, open or over for less than
// a connection's memory lasts.
const (
	maxAliases  = 4096
	maxOfClient = 256
)

// DetourKind is what an address of the detour's prefix is.
type DetourKind uint8

// The kinds.
const (
	DetourNone   DetourKind = iota
	DetourOwn               // A
	DetourAlias             // of a client, towards the proxy
	DetourDial              // the proxy's, towards a server
	DetourServer            // of a server with an IPv4 client, towards the proxy
)

// DetourAddress returns the address of a kind and number in the /64; the number of A is 1.
func DetourAddress(prefix netip.Prefix, kind DetourKind, n uint16) netip.Addr {
	raw := prefix.Addr().As16()
	switch kind {
	case DetourAlias:
		raw[11] = 1
	case DetourDial:
		raw[11] = 2
	case DetourServer:
		raw[11] = 3
	}
	binary.BigEndian.PutUint16(raw[14:], n)
	return netip.AddrFrom16(raw)
}

// DetourNumber is the reverse.
func DetourNumber(prefix netip.Prefix, a netip.Addr) (DetourKind, uint16) {
	if !prefix.IsValid() || !prefix.Contains(a) {
		return DetourNone, 0
	}
	raw := a.As16()
	n, kind := binary.BigEndian.Uint16(raw[14:]), DetourKind(raw[11])+DetourOwn
	if kind > DetourServer || DetourAddress(prefix, kind, n) != a || kind == DetourOwn && n != 1 {
		return DetourNone, 0
	}
	return kind, n
}

// Alias is one control connection on the detour.
type Alias struct {
	Number uint16
	Client netip.AddrPort // X',x; or Z,z
	Server netip.AddrPort // as the client wrote it: an address of pool6, port 21; or T,t

	// Of an IPv4 client: X',21, and the Y' that is the client's address there.
	Inside netip.AddrPort
	Seen   netip.Addr
}

// alias is one of them with its state as a TCP connection.
type alias struct {
	Alias
	status state.Status
	stamp  uint32
	began  uint32 // stamp of the SYN
	// real reports that the client has acknowledged something: it is there, and has not
	// sent a mere SYN, in its own name or another's.
	real bool
	// dialed is the port from which the proxy has called the server of an IPv4 client, and
	// prefix the number of that of pool6 which the client has there.
	dialed uint16
	prefix uint8
	// awaited is the session of data that was expected last for one, its index + 1, and
	// its generation.
	awaited    uint32
	generation uint16
}

const (
	// halfOpen is how long a mere SYN keeps its number: the host's stack answers it for
	// about a minute.
	halfOpen = 75 * time.Second
	// leastAge is how long any keeps it, and looked is how many are looked at for one that
	// can go when all are in use.
	leastAge = 2 * time.Second
	looked   = 64
)

type aliasKey struct{ client, server netip.AddrPort }

// aliases is a table of them.
type aliases struct {
	first uint16 // number
	index map[aliasKey]uint16
	slots []alias
	free  []uint16
	held  map[netip.Prefix]int // by each client
	next  time.Duration        // when they are looked through for those that are over
	hand  int                  // where the next is looked for that can go
}

func newAliases(first uint16) aliases {
	return aliases{first: first, index: make(map[aliasKey]uint16), held: make(map[netip.Prefix]int)}
}

// take returns a free number for a client; ok is false when all are in use, or too many by
// the client.
func (a *aliases) take(client netip.Prefix) (n uint16, ok bool) {
	if a.held[client] >= maxOfClient {
		return 0, false
	}
	if n, ok = a.unused(); ok {
		a.held[client]++
	}
	return n, ok
}

func (a *aliases) unused() (n uint16, ok bool) {
	if last := len(a.free) - 1; last >= 0 {
		n = a.free[last]
		a.free = a.free[:last]
		return n, true
	}
	if len(a.slots) == maxAliases {
		return 0, false
	}
	a.slots = append(a.slots, alias{})
	return a.first + uint16(len(a.slots)-1), true
}

// give takes the number of a client's connection back.
func (a *aliases) give(n uint16, client netip.Prefix) {
	old := &a.slots[n-a.first]
	delete(a.index, aliasKey{old.Client, old.Server})
	a.free = append(a.free, n)
	*old = alias{}
	if a.held[client]--; a.held[client] <= 0 {
		delete(a.held, client)
	}
}

// of returns the connection of a number, or nil.
func (a *aliases) of(n uint16) *alias {
	i := int(n) - int(a.first)
	if i < 0 || i >= len(a.slots) || a.slots[i].status == state.Free {
		return nil
	}
	return &a.slots[i]
}

// open notes a connection that begins.
func (a *aliases) open(c *call, of Alias) *alias {
	one := &a.slots[of.Number-a.first]
	a.index[aliasKey{of.Client, of.Server}] = of.Number
	*one = alias{Alias: of, status: state.V6Init, stamp: c.at, began: c.at}
	return one
}

// aliasOf returns the connection of a number, or nil.
func (e *Engine) aliasOf(n uint16) *alias {
	if n >= firstCaller {
		return e.callers.of(n)
	}
	return e.aliases.of(n)
}

// Alias returns the control connection of a number.
func (e *Engine) Alias(n uint16) (Alias, bool) {
	a := e.aliasOf(n)
	if a == nil {
		return Alias{}, false
	}
	return a.Alias, true
}

// detouring reports whether there is a detour.
func (e *Engine) detouring() bool { return e.settings.DetourPrefix.IsValid() }

// detours reports whether a packet has an address of the detour.
func (e *Engine) detours(src, dst netip.Addr) bool {
	p := e.settings.DetourPrefix
	return p.IsValid() && (p.Contains(src) || p.Contains(dst))
}

// isProxy reports whether a packet is the proxy's, towards a server.
func (e *Engine) isProxy(src netip.Addr) bool {
	kind, _ := DetourNumber(e.settings.DetourPrefix, src)
	return kind == DetourDial
}

// ownerOf returns the client on whose account an address is: of the proxy's, the client
// whose connection it carries.
func (e *Engine) ownerOf(client [16]byte) [16]byte {
	if e.detouring() {
		if kind, n := DetourNumber(e.settings.DetourPrefix, netip.AddrFrom16(client)); kind == DetourDial {
			if a := e.aliases.of(n); a != nil {
				return a.Client.Addr().As16()
			}
		}
	}
	return client
}

// insideOf returns X',x as people know it: of a connection of the proxy to a server, those of
// the connection that it carries for a client. Where the number is no longer that of the
// client who has the port outside, the proxy's own address stays.
func (e *Engine) insideOf(client [16]byte, port uint16, outside netip.AddrPort) netip.AddrPort {
	inside := netip.AddrPortFrom(netip.AddrFrom16(client), port)
	kind, n := DetourNumber(e.settings.DetourPrefix, inside.Addr())
	if kind != DetourDial {
		return inside
	}
	a := e.aliases.of(n)
	if a == nil {
		return inside
	}
	if b, ok := e.WhereOutside(outside.Addr(), outside.Port()); !ok || !b.Client.Contains(a.Client.Addr()) {
		return inside
	}
	return a.Client
}

// toProxy gives a segment of a control connection to the proxy.
func (e *Engine) toProxy(c *call, ip []byte, v *translate.View, t tuple) Reason {
	key := aliasKey{netip.AddrPortFrom(v.Src, t.src), netip.AddrPortFrom(v.Dst, t.dst)}
	n, known := e.aliases.index[key]
	a := e.aliases.of(n)
	if !known {
		switch {
		case !e.clients.has(v.Src):
			return NotClient
		case !opens(t.flags):
			e.reset(c, v, t.flags)
			return DetourUnknown
		}
		var ok bool
		if n, ok = e.number(c, &e.aliases, v.Src); !ok {
			return DetourFull
		}
		a = e.aliases.open(c, Alias{Number: n, Client: key.client, Server: key.server})
	}
	e.stepAlias(c, a, FromIPv6, t.flags)
	src, dst := e.proxyEnds(a)
	e.redirect(c, ip, v, src, dst)
	return none
}

// proxyEnds are source and destination of what a client says to the proxy.
func (e *Engine) proxyEnds(a *alias) (src, dst netip.AddrPort) {
	p := e.settings.DetourPrefix
	return netip.AddrPortFrom(DetourAddress(p, DetourAlias, a.Number), a.Client.Port()),
		netip.AddrPortFrom(DetourAddress(p, DetourOwn, 1), ftpControl)
}

// fromProxy handles packets with an address of the detour. done is false for those that
// go on as any packet does: the proxy's own to a server.
func (e *Engine) fromProxy(c *call, ip []byte, v *translate.View) (r Reason, done bool) {
	p := e.settings.DetourPrefix
	from, number := DetourNumber(p, v.Src)
	to, n := DetourNumber(p, v.Dst)
	a := e.aliasOf(n)
	switch {
	case from == DetourDial && e.aliases.of(number) != nil && !p.Contains(v.Dst):
		r = e.judgeProxy(c, ip, v)
		return r, r != none
	case from == DetourDial && to == DetourServer && n == number && a != nil:
		return e.toCalled(c, ip, v, a), true
	}
	if from != DetourOwn || to != DetourAlias || a == nil || v.Proto != packet.ProtoTCP || v.Fragment() {
		return DetourUnknown, true
	}
	t, r := tupleOf(v)
	switch {
	case r != none:
		return r, true
	case t.src != ftpControl || t.dst != a.Client.Port():
		return DetourUnknown, true
	case ip[7] <= 1:
		return Reason(translate.ReasonHopLimit), true
	}
	e.stepAlias(c, a, FromIPv4, t.flags)
	if a.Client.Addr().Is4() {
		return e.toCaller(c, ip, v, a), true
	}
	e.redirect(c, ip, v, a.Server, a.Client)
	return none, true
}

// reset tells the client of a control connection that is not known, since this host crashed
// or the connection was silent for too long, that there is none (RFC 9293 section 3.5.2), in
// the server's name: else the client would wait until its own timers end it.
func (e *Engine) reset(c *call, v *translate.View, flags uint8) {
	if flags&flagRST == 0 && e.mayAnswer(c, ErrorUnreachable, v.Src) {
		e.stats.ErrorsSent[ErrorUnreachable]++
		c.out.SendIP(resetOf(c, v.Dst, v.Src, v.Payload))
	}
}

// resetOf makes the reset from an address to another that answers a segment.
func resetOf(c *call, src, dst netip.Addr, segment []byte) []byte {
	const size = packet.IPv6HeaderLen + 20
	b := packet.AppendIPv6Header(c.out.Alloc(size), packet.ProtoTCP, probeTTL, 20, src, dst)
	m := b[len(b):size]
	clear(m)
	copy(m, segment[2:4])
	copy(m[2:], segment[:2])
	m[12], m[13] = 5<<4, flagRST
	if flags := segment[13]; flags&flagACK != 0 {
		copy(m[4:8], segment[8:12])
	} else {
		m[13] |= flagACK
		length := len(segment) - int(segment[12]>>4)*4
		if flags&(flagSYN|flagFIN) != 0 {
			length++
		}
		binary.BigEndian.PutUint32(m[8:], binary.BigEndian.Uint32(segment[4:])+uint32(max(length, 0)))
	}
	b = b[:size]
	ip := packet.IPv6(b)
	binary.BigEndian.PutUint16(m[16:], packet.Checksum(ip.SrcBytes(), ip.DstBytes(), packet.ProtoTCP, m))
	return b
}

// DetourHops is the hop limit that the proxy sends with. Every router takes one, this host
// too: what has all of them was not forwarded here from the network (RFC 5082).
const DetourHops = 255

// judgeProxy reports whether a segment is the proxy's own, or forged by a host that wants to
// be served on the account of a client. What belongs to a session may have fewer hops: the
// kernel answers for sockets that are gone.
func (e *Engine) judgeProxy(c *call, ip []byte, v *translate.View) Reason {
	if v.Proto != packet.ProtoTCP || v.Fragment() {
		return DetourForged
	}
	t, r := tupleOf(v)
	if r != none {
		return r
	}
	to, r := e.destination(v.Dst)
	if r != none {
		return r
	}
	key := state.Key6{Client: v.Src.As16(), ClientPort: t.src, Peer: to.peer, PeerPort: t.dst, Transport: state.TCP, Prefix: to.prefix}
	var s state.Session
	if t.dst != ftpControl || ip[7] != DetourHops && (opens(t.flags) || !e.find6(c, &key, &s)) {
		return DetourForged
	}
	return none
}

// stepAlias follows the connection as any TCP session is followed; the client, of whatever
// family, counts as the IPv6 side.
func (e *Engine) stepAlias(c *call, a *alias, from Side, flags uint8) {
	change := Step(a.status, from, flags)
	switch {
	case a.status == state.BothFin && change.Next == state.V6Init: // again
		a.began, a.real = c.at, false
	case from == FromIPv6 && flags&(flagACK|flagSYN|flagRST) == flagACK:
		a.real = true
	}
	a.status = change.Next
	if change.Refresh {
		a.stamp = c.at
	}
}

// redirect sends a TCP segment on with other addresses and ports, one hop less, and a checksum
// as right or wrong as before.
func (e *Engine) redirect(c *call, ip []byte, v *translate.View, src, dst netip.AddrPort) {
	b := append(c.out.Alloc(len(ip)), ip...)
	b[7]--
	ports, field := b[v.Headers:v.Headers+4], b[v.Headers+16:v.Headers+18]
	sum := uint64(^binary.BigEndian.Uint16(field)) + uint64(^packet.Fold(packet.Sum(packet.Sum(0, ports), b[8:40])))
	from, to := src.Addr().As16(), dst.Addr().As16()
	copy(b[8:], from[:])
	copy(b[24:], to[:])
	binary.BigEndian.PutUint16(ports, src.Port())
	binary.BigEndian.PutUint16(ports[2:], dst.Port())
	sum = packet.Sum(packet.Sum(sum, ports), b[8:40])
	binary.BigEndian.PutUint16(field, ^packet.Fold(sum))
	e.stats.Detoured++
	c.out.SendIP(b)
}

// expireAliases ends connections that are over, once a second.
func (e *Engine) expireAliases(c *call) {
	for _, t := range []*aliases{&e.aliases, &e.callers} {
		e.expireThese(c, t)
	}
}

func (e *Engine) expireThese(c *call, t *aliases) {
	if len(t.index) == 0 || c.mono < t.next {
		return
	}
	t.next = c.mono + time.Second
	for i := range t.slots {
		a := &t.slots[i]
		aged := c.at-a.stamp >= e.lifetimes[state.TCP][a.status] || !a.real && c.at-a.began >= state.Units(halfOpen)
		if a.status != state.Free && aged {
			t.give(a.Number, e.holderOf(a.Client.Addr()))
		}
	}
}

// holderOf is what counts as one client: of IPv4 it is an address.
func (e *Engine) holderOf(client netip.Addr) netip.Prefix {
	if client.Is4() {
		return netip.PrefixFrom(client, 32)
	}
	return e.prefixOf(client.As16())
}

// number returns a number for a connection of a client. When all are in use, or all that
// the client may have, mere SYNs and connections that are over give theirs: else a few
// hosts that never go on could keep all others from the proxy.
func (e *Engine) number(c *call, t *aliases, of netip.Addr) (n uint16, ok bool) {
	client := e.holderOf(of)
	if n, ok = t.take(client); ok {
		return n, true
	}
	share := t.held[client] >= maxOfClient
	for range min(looked, len(t.slots)) {
		t.hand = (t.hand + 1) % len(t.slots)
		a := &t.slots[t.hand]
		owner := e.holderOf(a.Client.Addr())
		over := a.status == state.BothFin || a.status == state.Trans
		if a.status != state.Free && (over || !a.real) && c.at-a.stamp >= state.Units(leastAge) && (!share || owner == client) {
			t.give(a.Number, owner)
			return t.take(client)
		}
	}
	return 0, false
}
