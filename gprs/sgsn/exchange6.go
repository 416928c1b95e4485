// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// exchange6 is how often a message of DHCPv6 is sent until it is answered (RFC 8415 section 7.6).
type exchange6 struct {
	kind        byte
	first, most time.Duration // IRT and MRT; no most is 0
	times       int           // MRC; 0 is no bound
}

// Exchanges of a terminal, and when it begins the first one.
var (
	solicit6 = exchange6{link.MessageSolicit, time.Second, link.MaxRepeat, 0}
	request6 = exchange6{link.MessageRequest, time.Second, 30 * time.Second, 10}
	renew6   = exchange6{link.MessageRenew, 10 * time.Second, 10 * time.Minute, 0}
	rebind6  = exchange6{link.MessageRebind, 10 * time.Second, 10 * time.Minute, 0}
	release6 = exchange6{link.MessageRelease, time.Second, 0, 4}
	inform6  = exchange6{link.MessageInformationRequest, infTimeout, link.MaxRepeat, 0}
)

// answer is the kind of message that ends an exchange.
func (x exchange6) answer() byte {
	if x.kind == solicit6.kind {
		return link.MessageAdvertise
	}
	return link.MessageReply
}

// asking is an exchange under way; of none the kind is 0.
type asking struct {
	exchange6
	transaction uint32
	began       time.Time
	sent        int
	timeout     time.Duration // after the last message
}

// begin6 begins an exchange.
func (e *Engine) begin6(a *asking, x exchange6, now time.Time) {
	*a = asking{exchange6: x, transaction: uint32(e.random.Uint64()) & 0xffffff, began: now}
}

// wait6 is how long the next message of an exchange waits for an answer (RFC 8415 section 15). Of the first
// Solicit it is not less than SOL_TIMEOUT (section 18.2.1).
func (e *Engine) wait6(a *asking) time.Duration {
	switch {
	case a.sent == 0 && a.kind == solicit6.kind:
		a.timeout = a.first + 1 + time.Duration(e.random.Uint64()%uint64(a.first/10))
	case a.sent == 0:
		a.timeout = e.about10(a.first)
	default:
		if a.timeout += e.about10(a.timeout); a.most > 0 && a.timeout > a.most {
			a.timeout = e.about10(a.most)
		}
	}
	a.sent++
	return a.timeout
}

// about10 is a time, or up to a tenth more or less.
func (e *Engine) about10(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(e.random.Uint64()%uint64(d/5+1))
}

// append6 appends a message of a terminal to all servers, or to one: with its name, since when it asks, and the
// options that it asks for (RFC 8415 section 18.2). [packet.FillUDP] completes it.
func (s *session) append6(b []byte, a *asking, server []byte, wanted []uint16, now time.Time) []byte {
	b = packet.AppendIPv6Header(b, packet.ProtoUDP, 1, 0, s.six.linkLocal, link.DHCPServers)
	b = append(b, link.ClientPort>>8, link.ClientPort&0xff, link.ServerPort>>8, link.ServerPort&0xff, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(a.kind)<<24|a.transaction)
	b = appendDHCP6(b, link.OptionClientID, duid(s.wanted.IMSI))
	if server != nil {
		b = appendDHCP6(b, link.OptionServerID, server)
	}
	b = binary.BigEndian.AppendUint16(append(b, 0, link.OptionElapsed, 0, 2), uint16(min(now.Sub(a.began), longestElapsed)/(10*time.Millisecond)))
	if len(wanted) > 0 {
		b = append(b, 0, link.OptionRequest, 0, 2*byte(len(wanted)))
	}
	for _, option := range wanted {
		b = binary.BigEndian.AppendUint16(b, option)
	}
	return b
}

// answered6 reads an answer to an exchange. mine is false if the packet is none: it is for a client behind the
// link. One that cannot be taken (RFC 8415 section 16) is counted, and r is nil.
func (e *Engine) answered6(s *session, a *asking, p packet.IPv6) (r *reply6, mine bool) {
	m := p.Payload()
	if p.NextHeader() != packet.ProtoUDP || a.kind == 0 || p.Dst() != s.six.linkLocal || len(m) < packet.UDPHeaderLen+dhcp6Header ||
		binary.BigEndian.Uint16(m[2:]) != link.ClientPort || binary.BigEndian.Uint32(m[packet.UDPHeaderLen:]) != uint32(a.answer())<<24|a.transaction {
		return nil, false
	}
	r = new(reply6)
	if int(binary.BigEndian.Uint16(m[4:])) != len(m) || binary.BigEndian.Uint16(m[6:]) == 0 ||
		packet.Checksum(p.SrcBytes(), p.DstBytes(), packet.ProtoUDP, m) != 0 || !r.parse(m[packet.UDPHeaderLen+dhcp6Header:]) ||
		r.server == nil || !slices.Equal(r.client, duid(s.wanted.IMSI)) {
		e.drops[dropDHCP]++
		return nil, true
	}
	s.six.dhcp.longest = cmp.Or(r.longest, s.six.dhcp.longest) // also of a failure (section 18.2.10)
	if d := s.six.prefix; d != nil {
		d.longest = cmp.Or(r.longestSolicit, d.longest)
	}
	return r, true
}
