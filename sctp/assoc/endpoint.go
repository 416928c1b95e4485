// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// Config is what an endpoint is made of.
type Config struct {
	Port       uint16
	Addresses  []netip.Addr // local ones that packets may come from
	Parameters Parameters   // of associations that have none of their own
	// Listen takes associations that peers set up.
	Listen bool
	// Hidden tells peers no addresses but those that packets come from, as behind a NAT (RFC 6951 section 5.7).
	Hidden bool
	// MaxAssociations bounds those that live at a time.
	MaxAssociations int
	// Random fills with octets that nobody can guess.
	Random func([]byte)
}

// Errors of calls.
var (
	ErrNoPath = errors.New("no local address is of the kind of one of the peer's")
	ErrExists = errors.New("there is an association with the peer already")
	ErrFull   = errors.New("there are as many associations as may be")
	ErrPort   = errors.New("the peer's port is 0")
)

// Endpoint is a port of this host with its associations (RFC 9260 section 1.2).
type Endpoint struct {
	Counters Counters

	config  Config
	edition uint32 // of its addresses
	secrets secrets
	spent   spent
	parted  parted
	byTag   map[uint32]*Association
	byPeer  map[netip.AddrPort]*Association
	timers  timers
	many    []netip.Addr // addresses of all hosts of a link
	origin  time.Time    // from which the beats of heartbeats count
	busyAt  time.Time    // when the user has sent something, or anything but heartbeats has come

	dice      [8]byte
	info      [infoSize]byte // of the heartbeat that is written
	heartbeat []byte         // which is it
	control   []byte         // chunks that answer the packet that is handled
	gaps      []chunk.Block  // of the SACK that is written
	free      messages
	pieces    buffers

	assemblies []*assembly // that are empty
}

// New makes an endpoint.
func New(c Config) *Endpoint {
	e := &Endpoint{config: c, byTag: map[uint32]*Association{}, byPeer: map[netip.AddrPort]*Association{}}
	e.secrets.random = c.Random
	return e
}

// SetAddresses replaces the local addresses that new associations use.
func (e *Endpoint) SetAddresses(list []netip.Addr) {
	old := e.config.Addresses
	if slices.ContainsFunc(list, func(a netip.Addr) bool { return !slices.Contains(old, a) }) || len(list) != len(old) {
		e.edition++
	}
	e.config.Addresses = slices.Clone(list)
}

// SetBroadcasts names the addresses of IPv4 that all hosts of a link have in common: no peer is at one.
func (e *Endpoint) SetBroadcasts(list []netip.Addr) { e.many = slices.Clone(list) }

// Connect sets up an association with a peer that has these addresses, or the first of them that answers (RFC
// 9260 section 5.1). udp is the port of UDP that it is reached at, 0 where packets travel in IP.
func (e *Endpoint) Connect(remote []netip.Addr, port, udp uint16, par Parameters, now time.Time, out *Output) (*Association, error) {
	switch {
	case port == 0:
		return nil, ErrPort
	case par.Check() != nil:
		return nil, par.Check()
	case len(e.byTag) >= e.config.MaxAssociations:
		return nil, ErrFull
	}
	for _, address := range remote {
		if e.byPeer[netip.AddrPortFrom(address, port)] != nil {
			return nil, ErrExists
		}
	}
	a := e.newAssociation(par, port, e.newTag())
	a.epoch, a.random, e.busyAt = now, e.random(chunk.RandomSize), now
	for _, address := range remote {
		a.addPaths(address, udp, true)
	}
	if len(a.paths) == 0 {
		return nil, ErrNoPath
	}
	a.primary = a.paths[0]
	e.enter(a)
	a.startSetup(now, out)
	e.timers.touch(a)
	return a, nil
}

// Next is when Tick wants to be called; zero if nothing waits.
func (e *Endpoint) Next() time.Time { return e.timers.next() }

// BusyAt is when an association was last set up, sent anything for its user, or had anything come but heartbeats.
func (e *Endpoint) BusyAt() time.Time { return e.busyAt }

// Tick does what is due.
func (e *Endpoint) Tick(now time.Time, out *Output) {
	for a := e.timers.due(now); a != nil; a = e.timers.due(now) {
		a.tick(now, out)
		e.settle(a)
	}
}

// Handle takes a packet that has come.
func (e *Endpoint) Handle(p Packet, now time.Time, out *Output) {
	h, chunks, err := chunk.Open(p.Octets)
	switch {
	case err != nil:
		e.Counters.BadPacket++
		return
	case h.Destination != e.config.Port || h.Source == 0 || !e.unicast(p.Remote) || !e.unicast(p.Local):
		e.Counters.NotOurs++
		return
	}
	first, _, err := chunk.Next(chunks)
	if err != nil {
		e.Counters.BadChunk++
		return
	}
	e.begin()
	in := arrival{Packet: p, header: h, chunks: chunks, now: now}
	switch {
	case first.Type == chunk.TypeInit:
		e.busyAt = now
		e.handleInit(&in, first, out)
	case h.Tag == 0: // RFC 9260 section 8.5.1, A
		e.Counters.BadTag++
	default:
		e.handleTagged(&in, first, out)
	}
}

// arrival is a packet that is handled.
type arrival struct {
	Packet
	header chunk.Header
	chunks []byte
	now    time.Time
}

// peer is where it comes from.
func (in *arrival) peer() netip.AddrPort { return netip.AddrPortFrom(in.Remote, in.header.Source) }

// handleTagged finds the association of a packet by the tag that it carries, or that its T bit stands for (RFC
// 9260 section 8.5).
func (e *Endpoint) handleTagged(in *arrival, first chunk.Chunk, out *Output) {
	if cookie, ok := cookieOf(in.chunks); ok {
		e.busyAt = in.now
		e.handleCookieEcho(in, cookie, out)
		return
	}
	a := e.byTag[in.header.Tag]
	switch {
	case a != nil && a.peerPort == in.header.Source && a.takes(in):
		a.handle(in, out)
		e.settle(a)
		return
	case a != nil:
		e.Counters.Stranger++
		return
	}
	if a = e.byPeer[in.peer()]; a == nil {
		e.outOfTheBlue(in, out)
		return
	}
	switch {
	case in.header.Tag == a.peerTag && a.peerTag != 0 && reflected(first):
		a.handleReflected(in, first, out)
		e.settle(a)
	case first.Type == chunk.TypeShutdownAck && (a.state == cookieWait || a.state == cookieEchoed): // section 8.5.1, E
		e.outOfTheBlue(in, out)
	default:
		e.Counters.BadTag++
	}
}

// cookieOf finds the cookie of a packet: in its first chunk, or in the second behind an AUTH (RFC 4895 section 6.3).
func cookieOf(chunks []byte) (cookie []byte, ok bool) {
	c, rest, err := chunk.Next(chunks)
	if err == nil && c.Type == chunk.TypeAuth {
		c, _, err = chunk.Next(rest)
	}
	return c.Body, err == nil && c.Type == chunk.TypeCookieEcho
}

// reflected is a chunk whose tag may be its sender's own (RFC 9260 section 8.5.1, B and C).
func reflected(c chunk.Chunk) bool {
	return c.Flags&chunk.Reflected != 0 && (c.Type == chunk.TypeAbort || c.Type == chunk.TypeShutdownComplete)
}

// outOfTheBlue answers a packet of no association. What it is answered with depends on all of its chunks: an ABORT
// comes before a SHUTDOWN ACK, and that before all others (RFC 9260 section 8.4).
func (e *Endpoint) outOfTheBlue(in *arrival, out *Output) {
	e.Counters.OutOfTheBlue++
	var shutdown, silent bool
	for rest := in.chunks; len(rest) > 0; {
		c, after, err := chunk.Next(rest)
		if err != nil {
			e.Counters.BadChunk++
			return
		}
		switch c.Type {
		case chunk.TypeAbort:
			return
		case chunk.TypeShutdownAck:
			shutdown = true
		case chunk.TypeShutdownComplete, chunk.TypeCookieAck:
			silent = true
		case chunk.TypeError:
			_, stale := findCause(c.Body, chunk.CauseStaleCookie)
			silent = silent || stale
		}
		rest = after
	}
	switch {
	case shutdown:
		e.reply(in, in.header.Tag, chunk.Append(nil, chunk.TypeShutdownComplete, chunk.Reflected, nil), out)
	case !silent && !e.parted.has(in.header.Tag, in.now):
		e.reply(in, in.header.Tag, chunk.AppendError(nil, chunk.TypeAbort, chunk.Reflected), out)
	}
}

// findCause is the first cause with a code in the body of an ERROR.
func findCause(list []byte, code chunk.CauseCode) (chunk.Cause, bool) {
	for len(list) > 0 {
		cause, rest, err := chunk.NextCause(list)
		if err != nil {
			break
		}
		if cause.Code == code {
			return cause, true
		}
		list = rest
	}
	return chunk.Cause{}, false
}

// reply sends a chunk alone to where a packet came from.
func (e *Endpoint) reply(in *arrival, tag uint32, c []byte, out *Output) {
	b := chunk.Begin(out.alloc(chunk.HeaderSize+len(c)), chunk.Header{Source: e.config.Port, Destination: in.header.Source, Tag: tag})
	b = append(b, c...)
	chunk.Seal(b)
	p := Path{Pair: in.Pair, port: in.Port}
	p.mtu = p.base()
	out.Packets = append(out.Packets, Packet{Pair: in.Pair, Port: in.Port, Fragment: len(b) > p.room(), Octets: b})
}

// begin forgets what the last call has left behind.
func (e *Endpoint) begin() {
	e.control = e.control[:0]
	e.pieces.reclaim()
}

// settle books what a call has changed: an association that has ended leaves, all others have their timers.
func (e *Endpoint) settle(a *Association) {
	if a.state == closed {
		e.leave(a)
		return
	}
	e.timers.touch(a)
}

// enter makes an association known by its tag and its peer's addresses.
func (e *Endpoint) enter(a *Association) {
	e.byTag[a.tag] = a
	for r := range a.remotes() {
		e.byPeer[netip.AddrPortFrom(r.address, a.peerPort)] = a
	}
}

// leave forgets an association.
func (e *Endpoint) leave(a *Association) {
	e.timers.remove(a)
	if e.config.Listen && !a.since.IsZero() {
		e.spent.add(spentTag{a.tag, a.since})
	}
	if e.byTag[a.tag] == a {
		delete(e.byTag, a.tag)
	}
	for r := range a.remotes() {
		e.forget(a, r.address)
	}
}

// forget takes an address of a peer away from an association.
func (e *Endpoint) forget(a *Association, remote netip.Addr) {
	key := netip.AddrPortFrom(remote, a.peerPort)
	if e.byPeer[key] == a {
		delete(e.byPeer, key)
	}
}

// newTag draws a verification tag that no association has or had of late (RFC 9260 section 5.3.1).
func (e *Endpoint) newTag() uint32 {
	for {
		tag := e.random32()
		if _, used := e.spent.tags[tag]; tag != 0 && !used && e.byTag[tag] == nil {
			return tag
		}
	}
}

// random is so many octets that nobody can guess.
func (e *Endpoint) random(n int) []byte {
	b := make([]byte, n)
	e.config.Random(b)
	return b
}

func (e *Endpoint) random32() uint32 { return uint32(e.random64()) }

func (e *Endpoint) random64() uint64 {
	e.config.Random(e.dice[:])
	return binary.BigEndian.Uint64(e.dice[:])
}

// unicast reports whether an address is that of one host, as far as the endpoint knows.
func (e *Endpoint) unicast(a netip.Addr) bool { return unicast(a) && !slices.Contains(e.many, a) }

// unicast reports whether an address is that of one host, in the form of its own family.
func unicast(a netip.Addr) bool {
	return a.IsValid() && !a.Is4In6() && !a.IsMulticast() && !a.IsUnspecified() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// reach reports whether packets can go from one address to another: they are of a family and of a scope, and the
// other one is of one host.
func reach(local, remote netip.Addr) bool {
	return unicast(remote) && local.Is4() == remote.Is4() && local.IsLoopback() == remote.IsLoopback() &&
		local.IsLinkLocalUnicast() == remote.IsLinkLocalUnicast() && local.Zone() == remote.Zone()
}
