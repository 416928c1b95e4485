// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import "github.com/isthmus-net/isthmus/gprs/gtp"

// maxMessage is room for each message that this node sends.
const maxMessage = 640

// write sends a message to where another came from, by the socket and with the sequence
// number of that.
func (e *Engine) write(t *transaction, h gtp.Header, m gtp.Message) []byte {
	h.Version, h.HasSequence, h.Sequence = versionOf(t.socket), true, t.header.Sequence
	if h.Version == gtp.V0 {
		h.TID = e.wireTID(t.from.Addr(), h.TID)
	}
	b, err := e.codec.Append(t.out.Alloc(maxMessage), h, m)
	if err != nil {
		return nil // no message of this package is one that the codec refuses
	}
	t.out.SendUDP(int(t.socket), t.from, b)
	return b
}

// answer sends a response and keeps it for the request that comes again.
func (e *Engine) answer(t *transaction, h gtp.Header, m gtp.Message, cause gtp.Cause) {
	b := e.write(t, h, m)
	if len(b) == 0 {
		return
	}
	e.stats.Answers[cause]++
	t.p.answers.keep(t.key(), t.hash, t.at, t.at+e.patience(), b)
}

// respond answers a request by a cause alone. teid is that of the sender, or its flow label,
// as far as it is known.
func (e *Engine) respond(t *transaction, cause gtp.Cause, teid uint32) {
	h := gtp.Header{TEID: teid, FlowLabel: uint16(teid), TID: t.header.TID}
	var m gtp.Message
	switch t.header.Type {
	case gtp.TypeCreateRequest:
		e.scratch.created = gtp.CreateResponse{Cause: cause}
		m = &e.scratch.created
	case gtp.TypeUpdateRequest:
		e.scratch.updated = gtp.UpdateResponse{Cause: cause}
		m = &e.scratch.updated
	case gtp.TypeDeleteRequest:
		e.scratch.removed = gtp.DeleteResponse{Cause: cause}
		m = &e.scratch.removed
	case gtp.TypeInfoChangeRequest:
		e.scratch.changeAnswered = gtp.InfoChangeResponse{Cause: cause}
		m = &e.scratch.changeAnswered
	default:
		return // no request that this node knows
	}
	e.answer(t, h, m, cause)
}

// unreadable answers a request whose elements were refused. Where its sender's TEID can be
// read it goes back to that.
func (e *Engine) unreadable(t *transaction, err error) Reason {
	if cause, ok := causeOf(err); ok {
		e.respond(t, cause, e.senderTEID(t))
	}
	return reasonOf(err)
}

// senderTEID returns what the answer to a request of unreadable elements is for.
func (e *Engine) senderTEID(t *transaction) uint32 {
	if s := e.sessionOf(t); s != nil {
		return s.peerTEID
	}
	elements, err := gtp.ParseElements(&t.header)
	if err != nil {
		return 0
	}
	v, ok := elements.Find(gtp.ElementTEIDControl, 0)
	teid := uint32(0)
	for i := range v {
		teid = teid<<8 | uint32(v[i])
	}
	if !ok {
		return 0
	}
	return teid
}

// sessionOf returns the session that the header of a request names; nil if it names none.
func (e *Engine) sessionOf(t *transaction) *session {
	h := e.sessionHandle(t)
	if h == 0 {
		return nil
	}
	return e.sessions.at(h)
}

func (e *Engine) sessionHandle(t *transaction) handle {
	if t.header.Version == gtp.V1 {
		return e.byControl[t.header.TEID]
	}
	x, ok := e.byTID[t.header.TID]
	if !ok {
		return 0
	}
	h := e.contexts.at(x).session
	s := e.sessions.at(h)
	if s.version != gtp.V0 || uint16(s.teid) != t.header.FlowLabel {
		return 0
	}
	return h
}
