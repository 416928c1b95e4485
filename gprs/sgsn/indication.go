// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// indicate tells the sender of a user packet that there is no context for it (TS 29.281
// section 7.3.1, TS 09.60 section 7.5.7), so many times in a second.
func (e *Engine) indicate(m *message, now time.Time, out *Output) {
	if !e.indications.Allow(m.from.Addr(), now) {
		e.drops[dropLimit]++
		return
	}
	e.stats.ErrorIndicationsSent++
	address, plane := planeOf(m.socket)
	to := netip.AddrPortFrom(m.from.Addr(), plane.Port())
	h := gtp.Header{Version: m.Version, HasSequence: true, FlowLabel: m.FlowLabel, TID: m.TID}
	content := gtp.ErrorIndication{}
	if m.Version == gtp.V1 {
		content = gtp.ErrorIndication{TEID: m.TEID, Address: e.set.Addresses[address]}
	}
	e.send(out, m.socket, to, h, &content)
}

// errorIndication ends the context whose packets its GGSN has no context for: tunnel
// identifier and address must be those that we send to, and the latter the sender's own. For one
// that closes or moves it tells of a packet that the request has overtaken.
func (e *Engine) errorIndication(m *message, now time.Time, out *Output) {
	e.stats.ErrorIndications++
	if !e.indications.Allow(m.from.Addr(), now) {
		e.drops[dropLimit]++
		return
	}
	var content gtp.ErrorIndication
	if e.parse(m, &content) != nil {
		return
	}
	if m.Version == gtp.V0 {
		c := e.contexts[m.TID]
		if c != nil && c.session.version() == gtp.V0 && c.next.id == 0 && c.remoteData == uint32(m.FlowLabel) && c.remoteUser.Addr() == m.from.Addr() && c.carries() {
			e.end(c, ReasonErrorIndicated, 0, 0, now, out)
		}
		return
	}
	if content.Address != m.from.Addr() {
		e.drops[dropPeer]++
		return
	}
	// It is rare, and has a limit, so there is no table by what GGSNs have chosen.
	for _, c := range e.contexts {
		if c.session.version() == gtp.V1 && c.next.id == 0 && c.carries() && c.remoteData == content.TEID && c.remoteUser.Addr() == content.Address {
			e.end(c, ReasonErrorIndicated, 0, 0, now, out)
		}
	}
}

// understood are the extension headers of which a notification says that we know them.
var understood = []byte{byte(gtp.ExtensionPDCP)}

// uncomprehended drops a datagram with an extension header that we do not know and should, and
// says which ones we know (TS 29.060 section 6.1.1, TS 29.281 section 5.2.1).
func (e *Engine) uncomprehended(m *message, now time.Time, out *Output) bool {
	if _, found := m.Extensions.Uncomprehended(); !found {
		return false
	}
	e.drops[dropExtension]++
	if m.Type == gtp.TypeSupportedExtensions {
		return true
	}
	if !e.indications.Allow(m.from.Addr(), now) {
		e.drops[dropLimit]++
		return true
	}
	e.stats.ExtensionNotificationsSent++
	h := gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: m.Sequence}
	e.send(out, m.socket, m.from, h, &gtp.SupportedExtensions{List: understood})
	return true
}

// otherVersion answers a datagram of a version that is not spoken at the port, unless it is
// such an answer (TS 29.060 section 11.1.1). The user plane has no such message.
func (e *Engine) otherVersion(m *message, b []byte, t gtp.MessageType, now time.Time, out *Output) {
	if t == gtp.TypeVersionNotSupported { // of the highest version that its sender has
		if h, err := gtp.ParseHeader(b); err == nil {
			m.Header = h
			e.versionNotSupported(m, now, out)
			return
		}
	}
	e.faults[gtp.FaultVersion]++
	if t == gtp.TypeVersionNotSupported || m.plane == PlaneUser {
		return
	}
	if !e.indications.Allow(m.from.Addr(), now) {
		e.drops[dropLimit]++
		return
	}
	// Up to version 1 the sequence number stands where the header has it; of what comes after
	// nothing is known.
	h := gtp.Header{Version: m.plane.version(), HasSequence: true}
	if of, err := gtp.ParseHeader(b); err == nil {
		h.Sequence = of.Sequence
	}
	e.stats.VersionsRefused++
	e.send(out, m.socket, m.from, h, &gtp.VersionNotSupported{})
}

// versionNotSupported ends the request that a GGSN could not read.
func (e *Engine) versionNotSupported(m *message, now time.Time, out *Output) {
	r := e.requests[requestKey{socket: m.socket, peer: m.from.Addr(), sequence: m.Sequence}]
	if r == nil {
		e.drops[dropNoRequest]++
		return
	}
	e.settle(r)
	e.failed(r, ReasonVersion, gtp.CauseVersionNotSupported, now, out)
	e.done(r, out)
}
