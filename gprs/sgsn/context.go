// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// State is how far a context is.
type State uint8

// States of a context.
const (
	Opening  State = iota // the GGSN has not answered yet
	Open                  // packets pass
	Updating              // an update is under way; packets pass
	Closing               // the GGSN was asked to delete it
)

// String returns the state in words.
func (s State) String() string {
	return [...]string{"opening", "open", "updating", "closing"}[s&3]
}

// carries reports whether packets pass.
func (c *PDPContext) carries() bool { return c.state == Open || c.state == Updating }

// session is what a primary context and its secondary ones share: the terminal's address and
// the tunnel of signalling.
type session struct {
	wanted Attachment
	local  int   // the place of the SGSN's address
	path   *path // of signalling
	// control are the tunnel identifiers of signalling, in version 0 flow labels.
	control, remoteControl uint32
	contexts               []*PDPContext // the primary first, as long as it is there
	agreed                 time.Time     // when the GGSN has last granted something of it

	kind  gtp.PDPType // what the GGSN has given
	four  netip.Addr
	six   host6
	given given
	moved *move       // nil: it does not move
	again *Attachment // what to ask for when it has ended; nil: nothing
}

// PDPContext is one context of a terminal: a tunnel of the user plane.
type PDPContext struct {
	session *session
	key     gtp.TID
	state   State
	path    *path // of the user plane, version 1; nil before the context is open
	// request is the one that waits for its response; nil: none.
	request *request
	linked  bool // a secondary context
	tft     []byte
	filters []gtp.PacketFilter // of tft

	// data and remoteData are the tunnel identifiers of the user plane, in version 0 flow
	// labels. earlier is ours of before the last move, as long as packets may come by it, and
	// next that of after a move under way.
	data, remoteData uint32
	earlier, next    tunnel
	forget           timer // of earlier
	local            int   // the place of the address that it sends from
	remoteUser       netip.AddrPort
	sequence         uint16
	qos              gtp.QoS
	charging         uint32

	began  time.Time
	early  []tunnelled // until it is open
	counts Traffic
}

// tunnel is a tunnel identifier of ours, and the version of GTP that it is of; of none it is 0.
type tunnel struct {
	version gtp.Version
	id      uint32
}

// labelled reports whether packets of version 0 with a flow label are the context's.
func (c *PDPContext) labelled(label uint32) bool {
	for _, t := range [...]tunnel{{c.session.version(), c.data}, c.earlier, c.next} {
		if t.version == gtp.V0 && t.id == label && label != 0 {
			return true
		}
	}
	return false
}

// Traffic are the user packets of a context, and their octets without those of GTP. What a terminal's stack here says
// and hears on the link, such as router advertisements, is among them.
type Traffic struct {
	UpPackets, UpOctets, DownPackets, DownOctets uint64
}

func (s *session) version() gtp.Version { return s.wanted.Version }

// controlPlane is that of signalling by a version.
func controlPlane(v gtp.Version) Plane {
	if v == gtp.V0 {
		return PlaneV0
	}
	return PlaneControl
}

// userPlane is that of user packets.
func userPlane(v gtp.Version) Plane {
	if v == gtp.V0 {
		return PlaneV0
	}
	return PlaneUser
}

// key identifies the session: it is that of its primary context.
func (s *session) key() gtp.TID { return s.wanted.key() }

// at returns the context of an NSAPI.
func (s *session) at(nsapi uint8) *PDPContext {
	i := slices.IndexFunc(s.contexts, func(c *PDPContext) bool { return c.key.NSAPI() == nsapi })
	if i < 0 {
		return nil
	}
	return s.contexts[i]
}

// event is one about the context.
func (c *PDPContext) event(k EventKind) Event {
	return Event{Kind: k, Key: c.key, Link: c.session.wanted.Link, Peer: c.session.wanted.GGSN}
}

// source is where packets of a terminal come from: its link, and an IPv4 address, a
// link-local one, or the network of 64 bits of another.
type source struct {
	link int
	addr netip.Addr
}

// network returns the address with zeros behind the 64 bits of its network.
func network(a netip.Addr) netip.Addr {
	raw := a.As16()
	clear(raw[8:])
	return netip.AddrFrom16(raw)
}
