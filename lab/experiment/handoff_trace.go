// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/teredo"
)

// handoffTrace is what was seen of a handoff.
type handoffTrace struct {
	sipTrace
	kind handoffKind
	air  []seen // on both links of the terminal, in order, as it is on the air
}

// handoffMove is what a handoff has cost, by the clocks of the captures.
type handoffMove struct {
	sipMove
	stages []handoffStage
	voice  handoffDemand // the first media from the terminal, with what goes before it on the line
	hangs  bool          // the host has ended the call behind it
	radio  lab.WireConfig
	fates  []string // of packets that a soft handoff has lost, which it should not
}

// handoffStage is a part of a handoff: it begins where the last one ended.
type handoffStage struct {
	name    string
	took    time.Duration
	demands []handoffDemand // what must cross the radio for it
}

// handoffDemand is something that must cross the radio.
type handoffDemand struct {
	up     bool
	octets int
}

// Names of stages.
const (
	stageAttach  = "detection and attach"
	stageAddress = "address"
	stageQualify = "qualification"
	stageRelay   = "relay discovery"
	stageInvite  = "re-INVITE to its 200"
	stageMedia   = "first media"
)

// handoffStages are all, in order.
var handoffStages = []string{stageAttach, stageAddress, stageQualify, stageRelay, stageInvite, stageMedia}

// read reads what the handoff has cost.
func (t *handoffTrace) read(radio lab.WireConfig) (m handoffMove, err error) {
	m.radio = radio
	if m.sipMove, err = t.sipTrace.read(); err != nil {
		return m, err
	}
	_, m.hangs = first(t.host, t.settled, sipSeen{from: t.peer, begins: "BYE "})
	if t.kind.media() == sipSoft {
		m.fates = t.fates(m.sipMove)
	}
	at := t.change
	for _, one := range t.milestones() {
		s, end, err := t.stage(one, at)
		if err != nil {
			return m, err
		}
		if one.name == stageInvite { // media come behind what asks for them
			m.voice = s.demands[0]
			if p, ok := t.find(at, t.mediaUp); ok {
				m.voice.octets += p.octets()
			}
		}
		m.stages = append(m.stages, s)
		at = end
	}
	return m, nil
}

// fates tell how far the packets have come that a move has lost.
func (t *handoffTrace) fates(m sipMove) (lines []string) {
	tell := func(missing []uint16, what string, sent []seen, by func(seen) bool) {
		for _, number := range missing {
			i := slices.IndexFunc(sent, func(d seen) bool {
				n, ok := rtpNumber(d.payload)
				return ok && n == number && by(d)
			})
			if i < 0 {
				lines = append(lines, fmt.Sprintf("packet %d %s was not sent", number, what))
				continue
			}
			lines = append(lines, fmt.Sprintf("packet %d %s was sent %.1f ms behind the change, from %v to %v, and did not come",
				number, what, milliseconds(sent[i].at.Sub(t.change)), sent[i].from, sent[i].to))
		}
	}
	tell(m.up.missing, "from the terminal", t.ue, func(d seen) bool { return d.to.Addr() == t.peer })
	tell(m.down.missing, "to the terminal", t.host, func(d seen) bool { return d.from.Addr() == t.peer })
	return lines
}

// readCall reads how long a call of the host's has taken.
func (t *handoffTrace) readCall(begin time.Time, radio lab.WireConfig) (c handoffCall, err error) {
	if c.sipEarlyMove, err = t.readCalled(begin, false); err != nil {
		return c, err
	}
	s, _, err := t.stage(milestone{"a call to the terminal", t.answersCall, []handoffNeed{
		{packets: []func(seen) bool{t.callsTerminal}}, {up: true, packets: []func(seen) bool{t.answersCall}},
	}}, begin)
	c.theory = s.theory(radio)
	return c, err
}

// milestone is what ends a stage, and what must cross the radio for it.
type milestone struct {
	name  string
	ends  func(seen) bool
	needs []handoffNeed
}

// handoffNeed are packets that go one after the other.
type handoffNeed struct {
	up      bool
	packets []func(seen) bool
	octets  int // of more that the captures do not have
}

// stage reads a stage that has begun.
func (t *handoffTrace) stage(m milestone, begun time.Time) (s handoffStage, end time.Time, err error) {
	last, ok := t.find(begun, m.ends)
	if !ok {
		return s, end, fmt.Errorf("the captures do not show the end of: %s", m.name)
	}
	s = handoffStage{name: m.name, took: last.at.Sub(begun)}
	for _, n := range m.needs {
		d := handoffDemand{n.up, n.octets}
		for _, which := range n.packets {
			p, ok := t.find(begun, which)
			if !ok {
				return s, end, fmt.Errorf("the captures do not show what is sent for: %s", m.name)
			}
			d.octets += p.octets()
		}
		s.demands = append(s.demands, d)
	}
	return s, last.at, nil
}

// What a router of IPv6 is asked and says (RFC 4861 section 4), which is no UDP: with its own address
// the one, with a prefix, the MTU and its address the other.
const (
	solicitationOctets  = 40 + 8 + 8
	advertisementOctets = 40 + 16 + 32 + 8 + 8
)

// milestones are those of the kind of handoff.
func (t *handoffTrace) milestones() []milestone {
	asks, answers := func(what ...func(seen) bool) handoffNeed { return handoffNeed{up: true, packets: what} },
		func(what ...func(seen) bool) handoffNeed { return handoffNeed{packets: what} }
	invite := milestone{stageInvite, t.answered, []handoffNeed{asks(t.invites), answers(t.answered)}}
	media := milestone{stageMedia, t.mediaDown, nil}
	switch t.kind {
	case handoffCold:
		invite.needs[0] = asks(t.opens, t.invites)
		return []milestone{
			{stageAttach, t.asksLease, nil},
			{stageAddress, t.givesLease, []handoffNeed{asks(t.asksLease), answers(t.givesLease)}},
			{stageQualify, t.advertises, []handoffNeed{asks(t.solicits), answers(t.advertises)}},
			{stageRelay, t.echoes, []handoffNeed{asks(t.tests), answers(t.echoes)}},
			invite, media,
		}
	case handoffBack:
		return []milestone{
			{stageAddress, t.invites, []handoffNeed{{up: true, octets: solicitationOctets}, {octets: advertisementOctets}}},
			invite, media,
		}
	}
	return []milestone{{stageAttach, t.invites, nil}, invite, media}
}

// find is the first such packet on the air since a time.
func (t *handoffTrace) find(since time.Time, is func(seen) bool) (seen, bool) {
	for _, d := range t.air {
		if !d.at.Before(since) && is(d) {
			return d, true
		}
	}
	return seen{}, false
}

// octets are those of the packet: of IP, UDP and what it carries.
func (d seen) octets() int {
	if d.to.Addr().Is4() {
		return ipv4MinLen + packet.UDPHeaderLen + len(d.payload)
	}
	return packet.IPv6HeaderLen + packet.UDPHeaderLen + len(d.payload)
}

// Ports of DHCP (RFC 2131 section 4.1).
const dhcpServer, dhcpClient = 67, 68

// Which packets are looked for.

func (t *handoffTrace) asksLease(d seen) bool  { return d.from.Port() == dhcpClient }
func (t *handoffTrace) givesLease(d seen) bool { return d.to.Port() == dhcpClient }

func (t *handoffTrace) solicits(d seen) bool {
	return d.to.Port() == teredo.Port && carries(d, packet.ICMPv6RouterSolicitation)
}

func (t *handoffTrace) advertises(d seen) bool {
	return d.from.Port() == teredo.Port && carries(d, packet.ICMPv6RouterAdvert)
}

// tests and echoes are of the host's relay, not of the SIP server's.
func (t *handoffTrace) tests(d seen) bool {
	p, err := teredo.Parse(d.payload)
	return err == nil && carries(d, packet.ICMPv6EchoRequest) && p.IPv6.Dst() == t.peer
}

func (t *handoffTrace) echoes(d seen) bool {
	p, err := teredo.Parse(d.payload)
	return err == nil && carries(d, packet.ICMPv6EchoReply) && p.IPv6.Src() == t.peer
}

// opens is a bubble to the relay.
func (t *handoffTrace) opens(d seen) bool {
	p, err := teredo.Parse(d.payload)
	return err == nil && d.to.Addr() == relayBind.Addr() && teredo.IsBubble(p.IPv6)
}

func (t *handoffTrace) invites(d seen) bool {
	d = unwrapped([]seen{d})[0]
	return d.from.Addr() == t.to && d.to.Addr() == t.peer && bytes.HasPrefix(d.payload, []byte("INVITE "))
}

func (t *handoffTrace) answered(d seen) bool {
	d = unwrapped([]seen{d})[0]
	return d.to.Addr() == t.to && answersInvite(d)
}

// callsTerminal and answersCall go by the SIP server.

func (t *handoffTrace) callsTerminal(d seen) bool {
	d = unwrapped([]seen{d})[0]
	return d.from.Addr() == handoffSIP && bytes.HasPrefix(d.payload, []byte("INVITE "))
}

func (t *handoffTrace) answersCall(d seen) bool {
	d = unwrapped([]seen{d})[0]
	return d.to.Addr() == handoffSIP && answersInvite(d)
}

// answersInvite reports whether a message is the 200 to an INVITE.
func answersInvite(d seen) bool {
	if !bytes.HasPrefix(d.payload, []byte(sipOK)) {
		return false
	}
	m, fault := message.Parse(d.payload)
	if fault != nil {
		return false
	}
	_, method, _ := m.CSeq()
	return method == "INVITE"
}

func (t *handoffTrace) mediaDown(d seen) bool {
	d = unwrapped([]seen{d})[0]
	_, ok := rtpNumber(d.payload)
	return ok && d.from.Addr() == t.peer && d.to.Addr() == t.to
}

func (t *handoffTrace) mediaUp(d seen) bool {
	d = unwrapped([]seen{d})[0]
	_, ok := rtpNumber(d.payload)
	return ok && d.from.Addr() == t.to && d.to.Addr() == t.peer
}

// carries reports whether Teredo carries an ICMPv6 message of a type.
func carries(d seen, kind byte) bool {
	p, err := teredo.Parse(d.payload)
	if err != nil {
		return false
	}
	m, ok := p.IPv6.ICMPv6()
	return ok && m[0] == kind
}
