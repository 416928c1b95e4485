// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"errors"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// transaction is one message of a node and its answer.
type transaction struct {
	call
	socket  Socket
	from    netip.AddrPort
	ph      handle
	p       *peer
	header  gtp.Header
	hash    uint64 // of the octets of a request
	message []byte // these, of a request
	grant   *Grant // what was decided of a Create Request that has waited
	// repeated says of a Create Request that it has made its context when it came before.
	repeated bool
}

func (t *transaction) path() int { return int(t.socket % ports) }

func (t *transaction) key() answerKey {
	return answerKey{t.from.Port(), t.header.Sequence, uint8(t.path()), t.header.Type}
}

// HandleUDP takes a datagram that came by one of the node's sockets, with a traffic class. The packet
// of a G-PDU is changed in place and goes out without a copy.
func (e *Engine) HandleUDP(socket Socket, from netip.AddrPort, class uint8, payload []byte, now time.Time, out *Output) {
	c := e.begin(now, out)
	c.class = class
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	if r := e.receive(c, socket, from, payload); r != none {
		e.stats.Dropped[r]++
	}
}

func (e *Engine) receive(c call, socket Socket, from netip.AddrPort, b []byte) Reason {
	version, kind, ok := gtp.Peek(b)
	if ok && kind == gtp.TypeGPDU && socket%ports != pathControl && version == versionOf(socket) {
		return e.uplink(c, socket, from, b)
	}
	t := transaction{call: c, socket: socket, from: from, ph: e.byAddress[addressKey(from.Addr().As16())]}
	var err error
	t.header, err = gtp.ParseHeader(b)
	isPeer := e.isPeer(from.Addr())
	if !isPeer && (t.ph == 0 || t.path() != pathUser && (err != nil || version != versionOf(socket) || e.requestOf(&t) == 0)) {
		return Stranger // a node that is no peer any more answers, and says nothing else
	}
	if !ok {
		return reasonOf(err)
	}
	if t.ph, t.p, ok = e.peerOf(from.Addr()); !ok {
		return PeersFull
	}
	if isPeer {
		e.unname(t.p)
	}
	if !t.p.requests.Allow(e.requestLimit, c.now) && (err != nil || !e.awaited(&t)) {
		return RequestRate
	}
	if version != versionOf(socket) {
		return e.otherVersion(&t, kind)
	}
	if err != nil {
		return e.malformed(&t, err)
	}
	return e.message(&t, b)
}

// versionOf is the version that is spoken at a socket.
func versionOf(s Socket) gtp.Version {
	if s%ports == pathV0 {
		return gtp.V0
	}
	return gtp.V1
}

// message handles a message whose header is right.
func (e *Engine) message(t *transaction, b []byte) Reason {
	h := &t.header
	if !h.HasSequence && t.path() == pathControl {
		return SequenceMissing
	}
	if _, unknown := h.Extensions.Uncomprehended(); unknown {
		return e.notifyExtensions(t)
	}
	if h.Version == gtp.V0 {
		h.TID = e.wireTID(t.from.Addr(), h.TID)
	}
	if t.path() == pathUser {
		return e.userMessage(t)
	}
	if _, isRequest := h.Type.Response(); isRequest && h.Type != gtp.TypeEchoRequest {
		t.hash, t.message = e.hash(b), b
		if kept, ok := t.p.answers.find(t.key(), t.hash, t.at); ok {
			e.stats.Repeated++
			t.out.SendUDP(int(t.socket), t.from, t.out.Copy(kept))
			return none
		}
	}
	if e.guessed(t) {
		return LabelGuessed
	}
	switch h.Type {
	case gtp.TypeEchoRequest:
		return e.answerEcho(t)
	case gtp.TypeCreateRequest:
		return e.create(t)
	case gtp.TypeUpdateRequest:
		return e.update(t)
	case gtp.TypeDeleteRequest:
		return e.remove(t)
	case gtp.TypeInfoChangeRequest:
		return e.infoChange(t)
	case gtp.TypeErrorIndication:
		return e.indicated(t)
	case gtp.TypeEchoResponse, gtp.TypeUpdateResponse, gtp.TypeDeleteResponse:
		return e.answered(t)
	case gtp.TypeSupportedExtensions, gtp.TypeVersionNotSupported:
		return none // nothing is sent that a node would answer by it
	}
	return Reason(gtp.FaultMessageType)
}

// userMessage handles the messages of the user plane of version 1 that are no G-PDU.
func (e *Engine) userMessage(t *transaction) Reason {
	switch t.header.Type {
	case gtp.TypeEchoRequest:
		return e.answerEcho(t)
	case gtp.TypeEchoResponse:
		return e.answered(t)
	case gtp.TypeErrorIndication:
		return e.indicated(t)
	case gtp.TypeEndMarker:
		e.stats.EndMarkers++
		return none
	case gtp.TypeSupportedExtensions:
		return none
	}
	return Reason(gtp.FaultMessageType)
}

// answerEcho says that this node lives, and how often it has started; on the user plane of
// version 1 the number is 0 (TS 29.281 section 7.2.2).
func (e *Engine) answerEcho(t *transaction) Reason {
	if r := e.parse(t, &e.scratch.echo); r != none {
		return r
	}
	e.stats.Echoes++
	m := &e.scratch.echoed
	*m = gtp.EchoResponse{Recovery: e.settings.RestartCounter}
	if t.path() == pathUser {
		m.Recovery = 0
	}
	e.write(t, gtp.Header{}, m)
	return none
}

// otherVersion tells the highest version that is spoken at the port (TS 29.060 section
// 11.1.1, TS 09.60 section 11.1.1). No notification answers one.
func (e *Engine) otherVersion(t *transaction, kind gtp.MessageType) Reason {
	if kind != gtp.TypeVersionNotSupported && kind != gtp.TypeGPDU && t.path() != pathUser && t.p.errors.Allow(e.errorLimit, t.now) {
		e.stats.VersionsRefused++
		e.write(t, gtp.Header{}, &e.scratch.notSupported)
	}
	return Reason(gtp.FaultVersion)
}

// malformed answers a request of which no more than the header was read.
func (e *Engine) malformed(t *transaction, err error) Reason {
	if _, isRequest := t.header.Type.Response(); isRequest && t.header.HasSequence && t.path() != pathUser {
		if cause, ok := causeOf(err); ok {
			e.respond(t, cause, 0)
		}
	}
	return reasonOf(err)
}

// notifyExtensions tells which extension headers are understood (TS 29.060 section 7.2.4).
func (e *Engine) notifyExtensions(t *transaction) Reason {
	if t.p.errors.Allow(e.errorLimit, t.now) {
		m := &e.scratch.extensions
		m.List = supportedExtensions[:]
		e.write(t, gtp.Header{}, m)
	}
	return ExtensionUnknown
}

// supportedExtensions are those that are read, if only to be passed over.
var supportedExtensions = [...]byte{
	byte(gtp.ExtensionMBMSSupport), byte(gtp.ExtensionInfoChangeSupport), byte(gtp.ExtensionPDCP),
	byte(gtp.ExtensionSuspendRequest), byte(gtp.ExtensionSuspendResponse),
}

// parse reads a message. What cannot be read is dropped for that.
func (e *Engine) parse(t *transaction, m gtp.Message) Reason {
	if err := e.decode(t, m); err != nil {
		return reasonOf(err)
	}
	return none
}

// request reads a request, and answers one that cannot be read.
func (e *Engine) request(t *transaction, m gtp.Message) Reason {
	if err := e.decode(t, m); err != nil {
		return e.unreadable(t, err)
	}
	return none
}

func (e *Engine) decode(t *transaction, m gtp.Message) error {
	notes, err := e.codec.Parse(&t.header, m)
	e.stats.ElementsPassedOver += uint64(notes.Unknown) + uint64(notes.Unexpected) + uint64(notes.Incorrect)
	return err
}

func reasonOf(err error) Reason {
	var r *gtp.Refusal
	if errors.As(err, &r) {
		return Reason(r.Fault)
	}
	return Reason(gtp.FaultTruncated)
}

func causeOf(err error) (gtp.Cause, bool) {
	var r *gtp.Refusal
	if errors.As(err, &r) {
		return r.Cause()
	}
	return 0, false
}
