// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// young is the age below which a context does not end by an Error Indication:
// a router advertisement may have overtaken the answer that tells the node of the context.
const young = time.Second

// indicated takes word of a node that it has no context for a G-PDU (TS 29.281 section
// 7.3.1). The context that has this TEID there ends; of a direct tunnel, which has its user
// plane elsewhere, the SGSN is asked for another end.
func (e *Engine) indicated(t *transaction) Reason {
	m := &e.scratch.indication
	if r := e.parse(t, m); r != none {
		return r
	}
	e.stats.IndicationsReceived++
	x := e.indicatedContext(t, m)
	if x == 0 {
		return IndicationWrong
	}
	u := e.contexts.at(x)
	s := e.sessions.at(u.session)
	switch {
	case t.at-u.createdAt < young:
		return IndicationWrong
	case u.user != s.peer && e.accessPoint(s).DirectTunnel && s.version == gtp.V1:
		e.startChange(u.session, change{context: x, indicate: true}, t.call)
	default:
		e.end(x, EndErrorReport, t.call)
	}
	return none
}

// indicatedContext returns the context whose user plane is at the node, with the TEID, or of
// version 0 the TID and flow label, that the indication names.
func (e *Engine) indicatedContext(t *transaction, m *gtp.ErrorIndication) handle {
	if t.header.Version == gtp.V0 {
		x := e.byTID[t.header.TID]
		if x == 0 {
			return 0
		}
		u := e.contexts.at(x)
		if u.user != t.ph || uint16(u.peerTEID) != t.header.FlowLabel || e.sessions.at(u.session).version != gtp.V0 {
			return 0
		}
		return x
	}
	if t.path() != pathUser || m.Address != t.from.Addr() {
		return 0
	}
	return e.byPeer[peerTEID{t.ph, m.TEID}]
}

// indicate tells a node that there is no context for its G-PDU: once in a while, for there is
// one for each packet otherwise. A packet that comes late is no fault of the node, which may
// take the indication for one of a context that it has made meanwhile. Its packet went to an
// address of this node. It returns why the packet is dropped.
func (e *Engine) indicate(c call, socket Socket, from netip.AddrPort, h *gtp.Header) Reason {
	switch {
	case e.ended.has(h, c.at):
		return TEIDUnknown
	case !e.isPeer(from.Addr()) && e.byAddress[addressKey(from.Addr().As16())] == 0:
		return Stranger
	}
	ph, p, ok := e.peerOf(from.Addr())
	if !ok || !p.errors.Allow(e.errorLimit, c.now) {
		return TEIDUnknown
	}
	e.stats.Indications++
	t := transaction{call: c, socket: socket, from: netip.AddrPortFrom(from.Addr(), socket.Port()), ph: ph, p: p}
	m := &e.scratch.indication
	*m = gtp.ErrorIndication{TEID: h.TEID, Address: e.own(from.Addr())}
	e.write(&t, gtp.Header{TID: h.TID, FlowLabel: h.FlowLabel}, m)
	return TEIDUnknown
}
