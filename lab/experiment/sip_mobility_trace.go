// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
)

// sipMove is what a move has cost, by the clocks of the captures.
type sipMove struct {
	invite      time.Duration // from the change to the re-INVITE on the wire
	answer      time.Duration // from there to the 200
	down, up    sipGap
	bindings    int  // left at the server
	byeReceived bool // at the address that the terminal has moved to
}

// sipGap is the media's part, in one direction.
type sipGap struct {
	longest time.Duration // between two packets, the second of them behind the change
	lost    int
}

// sipTrace is what was seen of a move.
type sipTrace struct {
	ue, host []seen // on all links of the terminal, and at the host, in order
	from, to netip.Addr
	peer     netip.Addr
	kind     sipKind
	change   time.Time // just before it
	settled  time.Time // media went as before
	bindings int       // left at the server then
}

// read reads what the move has cost.
func (t sipTrace) read() (m sipMove, err error) {
	invite, cseq, ok := t.reinvite()
	if !ok {
		return m, fmt.Errorf("no re-INVITE has left %v within %v", t.to, t.settled.Sub(t.change))
	}
	m.invite = invite.Sub(t.change)
	answer, ok := t.answer(cseq)
	if !ok {
		return m, fmt.Errorf("no 200 has come to %v within %v", t.to, t.settled.Sub(t.change))
	}
	m.answer = answer.Sub(invite)
	if m.down, err = gapOf(t.ue, t.change, t.settled, func(d seen) bool {
		return d.from.Addr() == t.peer && (d.to.Addr() == t.to || d.to.Addr() == t.from && (t.kind == sipSoft || d.at.Before(t.change)))
	}); err != nil {
		return m, fmt.Errorf("to the terminal: %w", err)
	}
	if m.up, err = gapOf(t.host, t.change, t.settled, func(d seen) bool { return d.to.Addr() == t.peer }); err != nil {
		return m, fmt.Errorf("from the terminal: %w", err)
	}
	_, _, m.byeReceived = first(t.ue, t.settled, sipSeen{from: t.peer, to: t.to, begins: "BYE "})
	m.bindings = t.bindings
	return m, nil
}

// reinvite is the first INVITE behind the change, which leaves by the new address.
func (t sipTrace) reinvite() (at time.Time, cseq uint32, ok bool) {
	return first(t.ue, t.change, sipSeen{from: t.to, begins: "INVITE "})
}

// answer is when the first 200 to that INVITE, or to one that came after it, has come.
func (t sipTrace) answer(cseq uint32) (at time.Time, ok bool) {
	at, _, ok = first(t.ue, t.change, sipSeen{to: t.to, begins: sipOK, method: "INVITE", cseq: cseq})
	return at, ok
}

// sipOK begins the answer that was hoped for.
const sipOK = "SIP/2.0 200"

// sipSeen says which message is looked for. What is not set does not matter.
type sipSeen struct {
	from, to netip.Addr
	begins   string
	method   string // of CSeq
	cseq     uint32 // the least
}

// first is the first such message since a time, and its CSeq.
func first(all []seen, since time.Time, what sipSeen) (at time.Time, cseq uint32, ok bool) {
	for _, d := range all {
		if d.at.Before(since) || !bytes.HasPrefix(d.payload, []byte(what.begins)) ||
			what.from.IsValid() && d.from.Addr() != what.from || what.to.IsValid() && d.to.Addr() != what.to {
			continue
		}
		m, fault := message.Parse(d.payload)
		if fault != nil {
			continue
		}
		n, method, ok := m.CSeq()
		if ok && n >= what.cseq && (what.method == "" || method == what.method) {
			return d.at, n, true
		}
	}
	return at, 0, false
}

// gapOf reads the media that arrive: those that are counted begin with the last packet before
// the change.
func gapOf(all []seen, change, settled time.Time, arrives func(seen) bool) (g sipGap, err error) {
	var last time.Time
	var first uint16
	numbers := map[uint16]bool{} // from first on
	highest := uint16(0)
	for _, d := range all {
		number, ok := rtpNumber(d.payload)
		if !ok || d.at.After(settled) || !arrives(d) {
			continue
		}
		if d.at.Before(change) {
			last, first = d.at, number
			continue
		}
		if last.IsZero() {
			return g, fmt.Errorf("no media before the change")
		}
		g.longest = max(g.longest, d.at.Sub(last))
		last = d.at
		if after := number - first; int16(after) > 0 { // RFC 3550 counts modulo 2^16
			numbers[after] = true
			highest = max(highest, after)
		}
	}
	if len(numbers) == 0 {
		return g, fmt.Errorf("no media behind the change")
	}
	g.lost = int(highest) - len(numbers)
	return g, nil
}

// rtpNumber is the sequence number of an RTP packet of PCMU or PCMA.
func rtpNumber(b []byte) (number uint16, ok bool) {
	if len(b) < 12 || b[0]>>6 != 2 || b[1]&0x7f != 0 && b[1]&0x7f != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint16(b[2:]), true
}

// inOrder are datagrams of two captures by their time.
func inOrder(a, b []seen) []seen {
	all := slices.Concat(a, b)
	slices.SortStableFunc(all, func(x, y seen) int { return x.at.Compare(y.at) })
	return all
}
