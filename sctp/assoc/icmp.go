// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// ICMP is what a router, or the peer's host, has answered to a packet of ours.
type ICMP struct {
	Pair
	Kind ICMPKind
	MTU  int // of TooBig, octets of the packet of IP
	// Quoted is what there is of our packet of SCTP, from its common header on.
	Quoted []byte
}

// ICMPKind says what has happened to the packet.
type ICMPKind uint8

// Kinds of ICMP messages.
const (
	// TooBig is Packet Too Big, or Fragmentation Needed.
	TooBig ICMPKind = iota
	// NoProtocol is Protocol Unreachable, or Unrecognized Next Header; of packets in UDP also Port Unreachable (RFC
	// 6951 section 5.5).
	NoProtocol
	// Unreachable is any other Destination Unreachable but Port Unreachable of packets in IP, which is not to be handed
	// in (RFC 9260 section 10, ICMP3).
	Unreachable
)

// HandleICMP takes an ICMP message. It must quote the association's tag: who does not see our packets cannot
// forge one (RFC 9260 section 10).
func (e *Endpoint) HandleICMP(m ICMP, now time.Time, out *Output) {
	a := e.quoted(&m)
	if a == nil {
		e.Counters.BadICMP++
		return
	}
	e.begin()
	p := a.path(m.Pair)
	switch {
	case m.Kind == NoProtocol && m.Local.IsValid() && !slices.Contains(a.locals, m.Local): // so says who is on the way from there
	case m.Kind == NoProtocol && a.believesNoProtocol(p, now, out): // ICMP8
		a.fail(ReasonNoProtocol, chunk.Cause{}, out)
	case m.Kind == NoProtocol:
	case p == nil:
	case m.Kind == TooBig: // ICMP7
		a.tooBig(p, m.MTU, now)
	default: // ICMP9: no more than a reason to look
		a.suspect(p, now, out)
	}
	a.transmit(nil, now, out)
	e.settle(a)
}

// believesNoProtocol reports whether to believe that the peer's host has no SCTP. Once it has spoken it, that is to be
// said again after an RTO in which nothing has come: Linux says so of any packet that does not fit into the receive
// buffer of a raw socket. A heartbeat asks.
func (a *Association) believesNoProtocol(p *Path, now time.Time, out *Output) bool {
	switch {
	case a.state < established:
		return true
	case !a.denied.IsZero():
		return reached(a.denied, now)
	}
	a.denied = now.Add(a.destination().rto)
	if p != nil && a.alive() && p.use == normal {
		a.sendHeartbeat(p, now, out)
	}
	return false
}

// quoted finds the association whose packet a message quotes (RFC 9260 section 10, ICMP5 and ICMP6).
func (e *Endpoint) quoted(m *ICMP) *Association {
	q := m.Quoted
	if len(q) < 8 || binary.BigEndian.Uint16(q) != e.config.Port {
		return nil
	}
	a := e.byPeer[netip.AddrPortFrom(m.Remote, binary.BigEndian.Uint16(q[2:]))]
	switch tag := binary.BigEndian.Uint32(q[4:]); {
	case a == nil:
		return nil
	case tag != 0:
		if tag == a.peerTag && a.state != cookieWait {
			return a
		}
	case a.state == cookieWait && len(q) >= chunk.HeaderSize+8 && chunk.Type(q[chunk.HeaderSize]) == chunk.TypeInit:
		if binary.BigEndian.Uint32(q[chunk.HeaderSize+4:]) == a.tag {
			return a
		}
	}
	return nil
}
