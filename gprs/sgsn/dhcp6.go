// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// Stateless DHCPv6 (RFC 8415 sections 7 and 21).
const (
	dhcp6Client, dhcp6Server  = 546, 547
	dhcp6Reply, dhcp6Inform   = 7, 11
	dhcp6Header               = 4 // the kind of a message and its transaction
	dhcp6ClientID             = 1
	dhcp6ServerID             = 2
	dhcp6Wanted               = 6
	dhcp6Elapsed              = 8
	dhcp6Status               = 13
	dhcp6Servers              = 23 // RFC 3646 section 3
	dhcp6Domains              = 24 // RFC 3646 section 4
	dhcp6Refresh              = 32
	dhcp6MaxRepeat            = 83
	longestElapsed            = 65535 * 10 * time.Millisecond
	shortestDUID, longestDUID = 2 + 1, 2 + 128 // RFC 8415 section 11.1
)

// Times of stateless DHCPv6 (RFC 8415 section 7.6).
const (
	infMaxDelay    = time.Second
	infTimeout     = time.Second
	infMaxRepeat   = time.Hour
	refreshDefault = 24 * time.Hour // IRT_DEFAULT
	refreshAtLeast = 10 * time.Minute
	leastMaxRepeat = time.Minute // RFC 8415 section 21.25
	mostMaxRepeat  = 24 * time.Hour
)

var dhcp6AllServers = netip.AddrFrom16([16]byte{0: 0xff, 1: 0x02, 13: 1, 15: 2})

// dhcp6Asked are the options that a terminal asks for; the last two it must (RFC 8415 section
// 18.2.6).
var dhcp6Asked = [...]uint16{dhcp6Servers, dhcp6Domains, dhcp6Refresh, dhcp6MaxRepeat}

// client6 is the terminal's client of stateless DHCPv6, which asks where a router says that
// there is more to be had than it advertises.
type client6 struct {
	timer       timer // of the next message; nil before the first exchange
	transaction uint32
	began       time.Time     // the exchange
	timeout     time.Duration // of its last message; 0: no answer is waited for
	longest     time.Duration // INF_MAX_RT; 0: as nobody has said otherwise

	servers []netip.Addr
	domains []string
}

// inform has a terminal ask, after a random delay (RFC 8415 section 18.2.6).
func (e *Engine) inform(s *session, now time.Time) {
	d := &s.six.dhcp
	d.timer.fire = func(now time.Time, out *Output) { e.informationRequest(s, now, out) }
	d.timeout = 0
	e.timers.Set(&d.timer, now.Add(time.Duration(e.random.Uint64()%uint64(infMaxDelay))))
}

// informationRequest sends the question, and again until there is an answer, at ever longer
// intervals (RFC 8415 section 15).
func (e *Engine) informationRequest(s *session, now time.Time, out *Output) {
	d := &s.six.dhcp
	if d.timeout == 0 {
		d.transaction, d.began = uint32(e.random.Uint64())&0xffffff, now
		d.timeout = e.about10(infTimeout)
	} else if d.timeout += e.about10(d.timeout); d.timeout > d.most() {
		d.timeout = e.about10(d.most())
	}
	e.stats.InformationRequests++
	e.send6(s, d.request(out.Alloc(packet.MinMTU), s, now), now, out)
	e.timers.Set(&d.timer, now.Add(d.timeout))
}

// about10 is a time, or up to a tenth more or less.
func (e *Engine) about10(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(e.random.Uint64()%uint64(d/5+1))
}

func (d *client6) most() time.Duration {
	if d.longest == 0 {
		return infMaxRepeat
	}
	return d.longest
}

// request appends the question.
func (d *client6) request(b []byte, s *session, now time.Time) []byte {
	b = packet.AppendIPv6Header(b, packet.ProtoUDP, 1, 0, s.six.linkLocal, dhcp6AllServers)
	b = append(b, dhcp6Client>>8, dhcp6Client&0xff, dhcp6Server>>8, dhcp6Server&0xff, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, dhcp6Inform<<24|d.transaction)
	b = appendDHCP6(b, dhcp6ClientID, duid(s.wanted.IMSI))
	b = binary.BigEndian.AppendUint16(append(b, 0, dhcp6Elapsed, 0, 2), uint16(min(now.Sub(d.began), longestElapsed)/(10*time.Millisecond)))
	b = append(b, 0, dhcp6Wanted, 0, 2*byte(len(dhcp6Asked)))
	for _, option := range dhcp6Asked {
		b = binary.BigEndian.AppendUint16(b, option)
	}
	packet.FillUDP(b)
	return b
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

// informed takes the answer to a question of this engine. It reports whether the packet was one:
// others are for a client behind the link.
func (e *Engine) informed(s *session, p packet.IPv6, now time.Time, out *Output) bool {
	d, m := &s.six.dhcp, p.Payload()
	if p.NextHeader() != packet.ProtoUDP || d.timeout == 0 || p.Dst() != s.six.linkLocal || len(m) < packet.UDPHeaderLen+dhcp6Header ||
		binary.BigEndian.Uint16(m[2:]) != dhcp6Client || binary.BigEndian.Uint32(m[packet.UDPHeaderLen:]) != dhcp6Reply<<24|d.transaction {
		return false
	}
	var r reply6
	if int(binary.BigEndian.Uint16(m[4:])) != len(m) || binary.BigEndian.Uint16(m[6:]) == 0 ||
		packet.Checksum(p.SrcBytes(), p.DstBytes(), packet.ProtoUDP, m) != 0 || !r.parse(m[packet.UDPHeaderLen+dhcp6Header:]) ||
		!r.served || !slices.Equal(r.client, duid(s.wanted.IMSI)) {
		e.drops[dropDHCP]++
		return true
	}
	if r.longest != 0 {
		d.longest = r.longest
	}
	if r.failed { // it is asked again when that is due
		e.drops[dropDHCP]++
		return true
	}
	e.stats.InformationReplies++
	e.timers.Stop(&d.timer)
	if d.timeout = 0; r.refresh != forever {
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

// reply6 is what a terminal needs of a Reply.
type reply6 struct {
	client  []byte
	served  bool // a server has named itself
	failed  bool // it has no answer
	refresh time.Duration
	longest time.Duration // 0: not told
	servers []netip.Addr
	domains []string
}

// parse reads the options. What is known and malformed spoils all of it (RFC 8415 section 16).
func (r *reply6) parse(b []byte) bool {
	r.refresh = refreshDefault
	for len(b) > 0 {
		if len(b) < 4 || len(b) < 4+int(binary.BigEndian.Uint16(b[2:])) {
			return false
		}
		end := 4 + int(binary.BigEndian.Uint16(b[2:]))
		if !r.option(binary.BigEndian.Uint16(b), b[4:end]) {
			return false
		}
		b = b[end:]
	}
	return true
}

func (r *reply6) option(code uint16, v []byte) (ok bool) {
	switch code {
	case dhcp6ClientID:
		r.client = v
	case dhcp6ServerID:
		r.served = true
		return len(v) >= shortestDUID && len(v) <= longestDUID
	case dhcp6Status:
		r.failed = len(v) >= 2 && binary.BigEndian.Uint16(v) != 0
		return len(v) >= 2
	case dhcp6Servers:
		for rest := v; len(rest) >= 16; rest = rest[16:] {
			r.servers = addServer(r.servers, rest[:16])
		}
		return len(v)%16 == 0
	case dhcp6Domains:
		r.domains, ok = parseDomains(v)
		return ok
	case dhcp6Refresh:
		if len(v) != 4 {
			return false
		}
		r.refresh = max(seconds32(v), refreshAtLeast) // RFC 8415 section 21.23
	case dhcp6MaxRepeat:
		if len(v) != 4 {
			return false
		}
		if t := seconds32(v); t >= leastMaxRepeat && t <= mostMaxRepeat { // others do not count
			r.longest = t
		}
	}
	return true
}
