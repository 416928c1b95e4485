// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ftpalg

import "bytes"

// fromClient takes bytes of the client and returns how many; it stops early while
// too many commands are without a reply.
func (d *dialogue) fromClient(data []byte, out *output) (taken int) {
	for taken < len(data) && !d.full() {
		switch d.mode {
		case transparent:
			out.server = append(out.server, data[taken:]...)
			return len(data)
		case undecided:
			d.copyCommand(data[taken], out)
		case reading:
			d.readCommand(data[taken], out)
		}
		taken++
	}
	return taken
}

// endOfClient passes on what the client said last, without an end of line.
func (d *dialogue) endOfClient(out *output) {
	if d.mode == reading {
		out.server = append(out.server, d.commands.line...)
		d.commands.line = d.commands.line[:0]
	}
}

// readCommand takes one byte of a command.
func (d *dialogue) readCommand(c byte, out *output) {
	l := &d.commands
	line := &l.line
	if l.passing {
		line = &out.server
	}
	before := len(*line)
	if l.telnet.step(c, line, &out.client) {
		d.count(telnetRefused)
	}
	ended := len(*line) > before && (*line)[len(*line)-1] == '\n'
	switch {
	case l.passing:
		l.passing = !ended
	case ended:
		d.command(l.line, out)
		l.line = l.line[:0]
	case len(l.line) >= maxLine:
		d.longCommand(out)
	}
}

// command does what a whole line asks for.
func (d *dialogue) command(line []byte, out *output) {
	verb, argument := parseCommand(withoutTelnet(trimEnd(line)))
	switch {
	case verb == authVerb:
		d.pass(line, authReply, out)
		d.undecide(false)
	case d.call != nil:
		d.callCommand(verb, line, argument, out)
	case verb == algsVerb:
		d.count(algsAnswered)
		d.instead(d.algs(argument), out)
	case verb == pasvVerb:
		d.pass(line, passiveReply, out)
	case verb == epsvVerb && !d.off:
		d.epsv(line, argument, out)
	case verb == eprtVerb && !d.off:
		d.eprt(line, argument, out)
	default:
		d.pass(line, plainReply, out)
	}
}

// pass sends a command as it came.
func (d *dialogue) pass(line []byte, k kind, out *output) {
	out.server = append(out.server, line...)
	d.pending.push(pending{kind: k})
}

// instead gives the client an answer of our own. The server gets a NOOP, so that
// it hears from the client as often as the client speaks, and so that replies
// keep their order (RFC 6384 section 12).
func (d *dialogue) instead(answer string, out *output) {
	out.server = append(out.server, commandNothing...)
	d.pending.push(pending{kind: noopReply, answer: answer})
}

// algs carries out an ALGS command and returns the answer (RFC 6384 section 11).
func (d *dialogue) algs(argument string) string {
	switch string(bytes.ToUpper([]byte(argument))) {
	case "STATUS64":
	case "ENABLE64":
		d.off = false
	case "DISABLE64":
		d.off = true
	default:
		return replyArgument
	}
	switch {
	case d.off:
		return replyNone
	case d.expect == nil:
		return replyEPSV
	}
	return replyBoth
}

// epsv translates EPSV (RFC 6384 section 6), which some clients say by IPv4, too (RFC 2428
// section 3).
func (d *dialogue) epsv(line []byte, argument string, out *output) {
	protocol, other, becomes, k := protocolIPv6, replyProtocol, commandPassive, epsvReply
	if d.call != nil {
		protocol, other, becomes, k = protocolIPv4, replyProtocolIPv4, commandExtended, calledEPSV
	}
	switch parseEPSV(argument, protocol) {
	case passivePlain:
		out.server = append(out.server, becomes...)
		d.pending.push(pending{kind: k})
	case passiveProtocol:
		d.count(epsvUnsupported)
		d.instead(other, out)
	case passiveAll:
		d.count(epsvUnsupported)
		d.instead(replyAll, out)
	case passiveOdd:
		d.pass(line, plainReply, out)
	}
}

// eprt translates EPRT (RFC 6384 section 7), if it names the client itself: what
// it says of others, the server is to judge.
func (d *dialogue) eprt(line []byte, argument string, out *output) {
	at, ok := parseEPRT(argument, protocolIPv6)
	if d.expect == nil || !ok || at.Addr() != d.client {
		d.pass(line, plainReply, out)
		return
	}
	mapped, err := d.expect(at.Port())
	if err != nil || !mapped.Addr().Is4() {
		d.count(eprtUnmapped)
		d.instead(replyNoData, out)
		return
	}
	d.count(eprtTranslated)
	out.server = appendPORT(out.server, mapped)
	d.pending.push(pending{kind: plainReply})
}

// longCommand passes a line on whose end is not in sight.
func (d *dialogue) longCommand(out *output) {
	d.count(lineTooLong)
	verb, _ := parseCommand(withoutTelnet(d.commands.line))
	if verb == authVerb {
		d.pass(d.commands.line, authReply, out)
		d.undecide(true)
		return
	}
	d.pass(d.commands.line, plainReply, out)
	d.commands.line = d.commands.line[:0]
	d.commands.passing = true
}

// undecide begins to copy what the client says (RFC 6384 section 5): the server
// decides what it is. inside is true if the line of the AUTH has not ended.
func (d *dialogue) undecide(inside bool) {
	d.mode = undecided
	d.commands.line = d.commands.line[:0]
	d.commands.passing = inside
}

// copyCommand copies a byte and counts commands meanwhile, of which it keeps just
// enough to know another AUTH.
func (d *dialogue) copyCommand(c byte, out *output) {
	l := &d.commands
	out.server = append(out.server, c)
	switch {
	case l.passing:
		l.passing = c != '\n'
	case c == '\n':
		k := plainReply
		if verb, _ := parseCommand(trimEnd(l.line)); verb == authVerb {
			k = authReply
		}
		d.pending.push(pending{kind: k})
		l.line = l.line[:0]
	case len(l.line) < len("AUTH "):
		l.line = append(l.line, c)
	}
}

// resume reads commands again, behind an AUTH in vain. The rest of a line that
// was copied in part is passed on.
func (d *dialogue) resume() {
	d.mode = reading
	if len(d.commands.line) > 0 {
		d.commands.line = d.commands.line[:0]
		d.commands.passing = true
		d.pending.push(pending{kind: plainReply})
	}
}

// trimEnd returns a line without its end: LF, with a CR in front or, as some
// clients do it, without.
func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})
}
