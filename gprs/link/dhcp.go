// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Lengths of an option with a DUID.
const shortestID, longestID = 4 + ShortestDUID, 4 + LongestDUID

// dhcpCodes are the options that a client may ask for.
var dhcpCodes = [...]uint16{OptionDNS, OptionDomains, OptionRefresh, OptionInfMaxRT, OptionSolMaxRT}

const numDHCPOptions = len(dhcpCodes)

// dhcpOptions writes what the server tells; nothing of what it does not know.
func (s *Settings) dhcpOptions(domains []byte) (list [numDHCPOptions][]byte) {
	if len(s.DNS) > 0 {
		list[0] = appendAddresses(appendOption(nil, OptionDNS, 16*len(s.DNS)), s.DNS)
	}
	if len(domains) > 0 {
		list[1] = append(appendOption(nil, OptionDomains, len(domains)), domains...)
	}
	list[2] = binary.BigEndian.AppendUint32(appendOption(nil, OptionRefresh, 4), uint32(s.Refresh/time.Second))
	list[3] = binary.BigEndian.AppendUint32(appendOption(nil, OptionInfMaxRT, 4), uint32(MaxRepeat/time.Second))
	list[4] = binary.BigEndian.AppendUint32(appendOption(nil, OptionSolMaxRT, 4), uint32(MaxRepeat/time.Second))
	return list
}

// longestReply is the size of a packet with all that a client can ask for.
func (r *Router) longestReply() int {
	n := packet.IPv6HeaderLen + packet.UDPHeaderLen + 4 + len(r.server) + longestID
	for _, o := range r.options {
		n += len(o)
	}
	if r.delegates {
		n += MaxAssociations*longestAssociation + 4 + 6 // a rapid commit or how much it is preferred, a status
	}
	return n
}

func appendOption(b []byte, code uint16, length int) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, code), uint16(length))
}

// question is what matters of a client's message. Slices lie over it.
type question struct {
	kind           byte
	transaction    []byte
	client, server []byte // options with their headers; nil: not there
	associations   [MaxAssociations]association
	count          int    // of them, and of those beyond
	rapid          bool   // two messages are enough
	exclude        bool   // the client wants to hear of prefixes that are left out
	dns            []byte // the option of the link's own name servers; nil: it has none
	wanted         [numDHCPOptions]bool
}

// dhcp answers a message to the server, whose checksum is right.
func (r *Router) dhcp(b []byte, l Link, p packet.IPv6, m []byte) ([]byte, Verdict) {
	length := int(binary.BigEndian.Uint16(m[4:]))
	switch {
	case length != len(m):
		return b, Malformed
	case m[6]|m[7] == 0: // RFC 8200 section 8.1
		return b, BadChecksum
	case len(r.server) == 0 || binary.BigEndian.Uint16(m[2:]) != ServerPort || p.Src().IsUnspecified():
		return b, NotServed
	}
	q, v := parseQuestion(m[packet.UDPHeaderLen:])
	if v != none {
		return b, v
	}
	if len(l.DNS) > 0 {
		own := r.own(l)
		q.dns = appendAddresses(appendOption(nil, OptionDNS, 16*len(own)), own)
	}
	switch {
	case p.Dst() == RouterAddress: // RFC 8415 section 18.4
		return r.appendReply(b, p.Src(), &q, []byte{0, OptionStatus, 0, 2, 0, StatusUseMulticast}), DHCPUnicast
	case p.Dst() != DHCPServers:
		return b, NotServed
	case q.kind != MessageInformationRequest && r.delegates && l.Delegations != nil:
		return r.stateful(b, l, p.Src(), &q)
	case q.kind != MessageInformationRequest:
		return b, DHCPStateful
	case q.count > 0:
		return b, DHCPMalformed
	case q.server != nil && string(q.server) != string(r.server):
		return b, DHCPOtherServer
	}
	return r.appendReply(b, p.Src(), &q, nil), DHCPReplied
}

// parseQuestion reads a client's message (RFC 8415 section 8). Options that are not known
// do not matter (section 16), and of one that is there twice the first counts. Zeros at the end
// that are no option do not matter either: dhcpcd 9.4.1 leaves two behind, where it repeats what is
// left out of a prefix.
func parseQuestion(m []byte) (q question, v Verdict) {
	if len(m) < 4 {
		return q, DHCPMalformed
	}
	q.kind, q.transaction = m[0], m[1:4]
	switch q.kind {
	case MessageSolicit, MessageRequest, MessageConfirm, MessageRenew, MessageRebind, MessageRelease, MessageDecline, MessageInformationRequest:
	default: // what servers and relays say, and what nobody knows
		return q, NotServed
	}
	for rest := m[4:]; len(rest) > 3 || len(bytes.Trim(rest, "\x00")) > 0; {
		if len(rest) < 4 || len(rest) < 4+int(binary.BigEndian.Uint16(rest[2:])) {
			return q, DHCPMalformed
		}
		end := 4 + int(binary.BigEndian.Uint16(rest[2:]))
		if !q.option(rest[:end:end]) {
			return q, DHCPMalformed
		}
		rest = rest[end:]
	}
	return q, none
}

// option takes one option, and reports whether it can be what it says.
func (q *question) option(o []byte) bool {
	switch code := binary.BigEndian.Uint16(o); code {
	case OptionClientID, OptionServerID:
		if len(o) < shortestID || len(o) > longestID {
			return false
		}
		if code == OptionClientID && q.client == nil {
			q.client = o
		} else if code == OptionServerID && q.server == nil {
			q.server = o
		}
	case OptionIANA, OptionIATA, OptionIAPD:
		return q.addAssociation(code, o[4:])
	case OptionRapidCommit:
		q.rapid = true
	case OptionRequest:
		if len(o)%2 != 0 {
			return false
		}
		for codes := o[4:]; len(codes) > 0; codes = codes[2:] {
			q.exclude = q.exclude || binary.BigEndian.Uint16(codes) == OptionExclude
			for i, known := range dhcpCodes {
				q.wanted[i] = q.wanted[i] || binary.BigEndian.Uint16(codes) == known
			}
		}
	}
	return true
}

// appendReply appends the packet that answers a question (RFC 8415 section 18.3.6): with
// a status alone, or with what the client wants.
func (r *Router) appendReply(b []byte, to netip.Addr, q *question, status []byte) []byte {
	start := len(b)
	b = append(r.beginReply(b, to, q), status...)
	if status != nil {
		q.wanted = [numDHCPOptions]bool{}
	}
	return r.endReply(b, start, q)
}

// beginReply appends the headers of an answer, and who asked whom.
func (r *Router) beginReply(b []byte, to netip.Addr, q *question) []byte {
	b = packet.AppendIPv6Header(b, packet.ProtoUDP, 64, 0, RouterAddress, to)
	b = append(b, ServerPort>>8, ServerPort&0xff, ClientPort>>8, ClientPort&0xff, 0, 0, 0, 0)
	kind := byte(MessageReply)
	if q.kind == MessageSolicit {
		kind = MessageAdvertise
	}
	b = append(append(b, kind), q.transaction...)
	return append(append(b, r.server...), q.client...)
}

// endReply appends what the client wants to the answer that begins at start, and completes it.
func (r *Router) endReply(b []byte, start int, q *question) []byte {
	for i, wanted := range q.wanted {
		switch {
		case wanted && dhcpCodes[i] == OptionDNS && q.dns != nil:
			b = append(b, q.dns...)
		case wanted:
			b = append(b, r.options[i]...)
		}
	}
	packet.FillUDP(packet.IPv6(b[start:]))
	return b
}
