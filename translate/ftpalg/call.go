// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ftpalg

import (
	"net/netip"
	"strconv"
	"strings"
)

// call is what a dialogue knows of an IPv4 client that has called an IPv6 server. RFC 6384
// is for the other direction; this does the same the other way round: PASV goes as EPSV,
// whose port becomes reachable in IPv4 before the client hears of it, and PORT goes as
// EPRT. The server judges addresses by the one that it knows the client by.
type call struct {
	// client is the client's own address, seen the one the server sees, and called the
	// address that the client has called.
	client, seen, called netip.Addr
	// announce tells the translator that the server will call a port of the client.
	announce func(port uint16) error
}

// newCall returns the dialogue of an IPv4 client with an IPv6 server. expect makes a port
// of the server reachable for the client.
func newCall(c call, expect func(uint16) (netip.AddrPort, error), count func(Counter)) *dialogue {
	d := newDialogue(c.client, expect, count)
	d.call = &c
	return d
}

// callCommand does what a whole line of an IPv4 client asks for, other than AUTH.
func (d *dialogue) callCommand(v verb, line []byte, argument string, out *output) {
	switch v {
	case pasvVerb:
		out.server = append(out.server, commandExtended...)
		d.pending.push(pending{kind: calledPASV})
	case epsvVerb:
		d.epsv(line, argument, out)
	case portVerb:
		at, ok := parsePORT(argument)
		d.callEPRT(at, ok, line, out)
	case eprtVerb:
		at, ok := parseEPRT(argument, protocolIPv4)
		d.callEPRT(at, ok, line, out)
	default:
		d.pass(line, plainReply, out)
	}
}

// callEPRT has the server call the client, if the client names itself. What the server opens
// from another port than 20, which it may, the translator carries without being told.
func (d *dialogue) callEPRT(at netip.AddrPort, ok bool, line []byte, out *output) {
	if !ok || at.Addr() != d.client {
		d.pass(line, plainReply, out)
		return
	}
	if d.call.announce(at.Port()) != nil {
		d.count(portUnmapped)
		d.instead(replyNoData, out)
		return
	}
	d.count(portTranslated)
	out.server = appendEPRT(out.server, netip.AddrPortFrom(d.call.seen, at.Port()))
	d.pending.push(pending{kind: plainReply})
}

// callReplied tells the client where the server's port is to be found.
func (d *dialogue) callReplied(k kind, port uint16, out *output) {
	mapped, err := d.expect(port)
	switch {
	case err != nil || !mapped.Addr().Is4() || k == calledEPSV && mapped.Addr() != d.call.called:
		// A 229 names no address: the port must be one of the address that was called.
		d.count(pasvUnmapped)
		out.client = append(out.client, replyNoData...)
	case k == calledEPSV:
		d.count(epsvTranslated)
		out.client = appendExtendedPassive(out.client, mapped.Port())
	default:
		d.count(pasvTranslated)
		out.client = appendPassive(out.client, mapped)
	}
}

// parsePORT reads the argument of PORT (RFC 959 section 4.1.2): six numbers.
func parsePORT(argument string) (netip.AddrPort, bool) {
	fields := strings.Split(argument, ",")
	if len(fields) != 6 {
		return netip.AddrPort{}, false
	}
	var octets [6]byte
	for i, f := range fields {
		n, err := strconv.ParseUint(f, 10, 8)
		if err != nil {
			return netip.AddrPort{}, false
		}
		octets[i] = byte(n)
	}
	port := uint16(octets[4])<<8 | uint16(octets[5])
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(octets[:4])), port), port != 0
}

// parseExtended finds the port in a line of a reply 229 (RFC 2428 section 3):
//
//	(<d><d><d>port<d>)
func parseExtended(line []byte) (port uint16, ok bool) {
	for i := 0; i+5 < len(line); i++ {
		d := line[i+1]
		if line[i] != '(' || d < 33 || d > 126 || line[i+2] != d || line[i+3] != d {
			continue
		}
		n, end := 0, i+4
		for ; end < len(line) && line[end] >= '0' && line[end] <= '9'; end++ {
			n = min(10*n+int(line[end]-'0'), 1<<16)
		}
		if end+1 < len(line) && line[end] == d && line[end+1] == ')' && n > 0 && n < 1<<16 {
			return uint16(n), true
		}
	}
	return 0, false
}

// appendEPRT appends an EPRT command for an IPv6 address (RFC 2428 section 2).
func appendEPRT(b []byte, at netip.AddrPort) []byte {
	b = append(b, "EPRT |2|"...)
	b = append(at.Addr().AppendTo(b), '|')
	b = strconv.AppendUint(b, uint64(at.Port()), 10)
	return append(b, "|\r\n"...)
}

// appendPassive appends the reply to PASV (RFC 959 section 4.1.2).
func appendPassive(b []byte, at netip.AddrPort) []byte {
	return append(appendNumbers(append(b, "227 Entering Passive Mode ("...), at), ").\r\n"...)
}
