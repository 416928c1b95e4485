// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/internal/packet"
)

const (
	dhcp6Header    = 4 // the kind of a message and its transaction
	longestElapsed = 65535 * 10 * time.Millisecond
)

// Times of DHCPv6 (RFC 8415 section 7.6).
const (
	infMaxDelay    = time.Second
	infTimeout     = time.Second
	leastMaxRepeat = time.Minute // RFC 8415 sections 21.24 and 21.25
	mostMaxRepeat  = 24 * time.Hour
)

// dhcp6Asked are the options that a terminal asks for; the last two it must (RFC 8415 section
// 18.2.6).
var dhcp6Asked = [...]uint16{link.OptionDNS, link.OptionDomains, link.OptionRefresh, link.OptionInfMaxRT}

// client6 is the terminal's client of stateless DHCPv6, which asks where a router says that
// there is more to be had than it advertises.
type client6 struct {
	asking
	timer   timer         // of the next message; nil before the first exchange
	longest time.Duration // INF_MAX_RT; 0: as nobody has said otherwise

	servers []netip.Addr
	domains []string
}

// inform has a terminal ask, after a random delay (RFC 8415 section 18.2.6).
func (e *Engine) inform(s *session, now time.Time) {
	d := &s.six.dhcp
	d.timer.fire = func(now time.Time, out *Output) {
		e.begin6(&d.asking, inform6, now)
		e.informationRequest(s, now, out)
	}
	d.kind = 0
	e.timers.Set(&d.timer, now.Add(time.Duration(e.random.Uint64()%uint64(infMaxDelay))))
}

// informationRequest sends the question, and again until there is an answer, at ever longer
// intervals (RFC 8415 section 15).
func (e *Engine) informationRequest(s *session, now time.Time, out *Output) {
	d := &s.six.dhcp
	d.most = cmp.Or(d.longest, link.MaxRepeat)
	e.stats.InformationRequests++
	b := s.append6(out.Alloc(packet.MinMTU), &d.asking, nil, dhcp6Asked[:], now)
	packet.FillUDP(b)
	e.send6(s, b, now, out)
	d.timer.fire = func(now time.Time, out *Output) { e.informationRequest(s, now, out) }
	e.timers.Set(&d.timer, now.Add(e.wait6(&d.asking)))
}

func appendDHCP6(b []byte, option uint16, value []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, option)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(value))), value...)
}

// duid is what a terminal calls itself: a UUID (RFC 6355) of version 8 (RFC 9562) made of the
// digits of its IMSI, which stay where its interface identifier does not.
func duid(m gtp.IMSI) []byte {
	id := [18]byte{1: 4, 2 + 6: 0x80, 2 + 8: 0x80}
	copy(id[2:], m[:6])
	copy(id[2+9:], m[6:])
	return id[:]
}

// informed takes the answer to a question of this engine. It reports whether the packet was one.
func (e *Engine) informed(s *session, p packet.IPv6, now time.Time, out *Output) bool {
	d := &s.six.dhcp
	r, mine := e.answered6(s, &d.asking, p)
	if r == nil {
		return mine
	}
	if r.failed { // it is asked again when that is due
		e.drops[dropDHCP]++
		return true
	}
	e.stats.InformationReplies++
	e.timers.Stop(&d.timer)
	if d.kind = 0; r.refresh != forever {
		d.timer.fire = func(now time.Time, _ *Output) { e.inform(s, now) }
		e.timers.Set(&d.timer, now.Add(r.refresh))
	}
	if !slices.Equal(d.servers, r.servers) || !slices.Equal(d.domains, r.domains) {
		d.servers, d.domains = r.servers, r.domains
		e.tell(s.contexts[0].event(Configured), out)
		e.advertise(s, now, out)
	}
	return true
}
