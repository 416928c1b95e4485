// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ftpalg

// fromServer takes bytes of the server.
func (d *dialogue) fromServer(data []byte, out *output) {
	for i := range data {
		if d.mode == transparent {
			out.client = append(out.client, data[i:]...)
			return
		}
		d.readReply(data[i], out)
		if out.end != 0 {
			return
		}
	}
}

// endOfServer passes on what the server said last, without an end of line. No
// reply is waited for from now on.
func (d *dialogue) endOfServer(out *output) {
	if d.mode != transparent && !d.reply.swallow {
		out.client = append(out.client, d.replies.line...)
	}
	d.replies.line = d.replies.line[:0]
	d.mode = transparent
}

// readReply takes one byte of a reply.
func (d *dialogue) readReply(c byte, out *output) {
	l := &d.replies
	before := len(l.line)
	if l.telnet.step(c, &l.line, &out.server) {
		d.count(telnetRefused)
	}
	if len(l.line) == before {
		return
	}
	ended := l.line[len(l.line)-1] == '\n'
	if !ended && len(l.line) < maxLine {
		return
	}
	if !l.passing {
		if !ended {
			d.count(lineTooLong)
		}
		d.replyLine(withoutTelnet(trimEnd(l.line)), out)
		if out.end != 0 {
			return
		}
	}
	if !d.reply.swallow {
		out.client = append(out.client, l.line...)
	}
	l.line = l.line[:0]
	l.passing = !ended
	if ended && d.reply.last {
		d.replied(out)
	}
}

// replyLine looks at a line, or as much of it as is looked at.
func (d *dialogue) replyLine(line []byte, out *output) {
	r := &d.reply
	code, more, ok := parseReply(line)
	switch {
	case r.code != 0: // inside a reply of several lines
		r.last = ok && !more && code == r.code
	case !ok: // no reply at all
		return
	default:
		d.beginReply(code, out)
		r.code, r.last = code, !more
	}
	switch {
	case r.port != 0:
	case d.call != nil && r.code == codeExtended:
		r.port, _ = parseExtended(line)
	case d.call == nil && r.code == codePassive:
		r.port, _ = parsePassive(line)
	}
}

// beginReply decides what becomes of a reply by its code.
func (d *dialogue) beginReply(code int, out *output) {
	r := &d.reply
	r.swallow, r.port = false, 0
	d.catchUp(code == codePassive || d.call != nil && code == codeExtended)
	switch d.pending.head().kind {
	case epsvReply:
		r.swallow = code == codePassive
	case calledPASV, calledEPSV:
		r.swallow = code == codeExtended
	case noopReply:
		// Servers want to know who speaks before they do even nothing.
		r.swallow = code == codeNothing || code == codeNotLoggedIn
		if !r.swallow && code >= 200 && code != codeClosing {
			// Replies and commands are out of step; whoever is told what now, it may
			// be wrong (RFC 6384 section 12).
			out.client = append(out.client, replyStop...)
			out.end = noopRefused
		}
	}
}

// catchUp forgets commands that the server has left without a reply, when it
// answers one of which the code tells: passive is true for the code of a passive mode.
// One that was passed over had its reply then, if a younger one is without.
func (d *dialogue) catchUp(passive bool) {
	for d.pending.size > 1 {
		head := d.pending.head()
		left := head.passed || passive && head.kind == plainReply
		if !left || passive && d.pending.find(1, epsvReply, passiveReply, calledPASV, calledEPSV) < 0 {
			return
		}
		d.pending.pop()
	}
}

// replied ends a reply.
func (d *dialogue) replied(out *output) {
	r := &d.reply
	code, head := r.code, d.pending.head()
	swallowed, port := r.swallow, r.port
	*r = reply{preliminary: r.preliminary}
	if code < 200 {
		r.preliminary = d.pending.size > 0
		return
	}
	switch head.kind {
	case epsvReply, calledPASV, calledEPSV:
		if !d.passiveReplied(head.kind, code, swallowed, port, out) {
			return
		}
	case noopReply:
		if swallowed {
			out.client = append(out.client, head.answer...)
		}
	}
	r.preliminary = false
	d.pending.pop()
	if head.kind == authReply {
		d.decide(code)
	}
}

// passiveReplied ends the reply to an EPSV, or to what it became, and reports whether it was
// one.
func (d *dialogue) passiveReplied(k kind, code int, swallowed bool, port uint16, out *output) bool {
	switch {
	case swallowed && port != 0 && k != epsvReply:
		d.callReplied(k, port, out)
	case swallowed && port != 0:
		d.count(epsvTranslated)
		out.client = appendExtendedPassive(out.client, port)
	case swallowed:
		d.count(badPassiveReply)
		out.client = append(out.client, replyNoData...)
	case code >= 400:
		d.count(epsvFailed)
	default:
		// The end of something earlier, of which we thought that it had ended, or no
		// answer that a server should give.
		d.pending.ring[d.pending.first].passed = true
		return false
	}
	return true
}

// decide follows the server's reply to AUTH (RFC 6384 section 5).
func (d *dialogue) decide(code int) {
	if code < 400 {
		d.count(authAccepted)
		d.mode = transparent
		return
	}
	d.count(authRefused)
	if d.pending.find(0, authReply) < 0 {
		d.resume()
	}
}

// codeClosing is the reply of a server that is about to close the connection.
const codeClosing = 421
