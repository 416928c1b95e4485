// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
)

// sipMove is what a move has cost, by the clocks of the captures.
type sipMove struct {
	invite      time.Duration // from the change to the re-INVITE on the wire
	answer      time.Duration // from there to the 200; 0: none came; a request of the peer's told as much (RFC 6141 section 4.4)
	down, up    sipGap
	bindings    int  // left at the server
	byeReceived bool // at the address that the terminal has moved to
}

// sipGap is the media's part, in one direction.
type sipGap struct {
	longest time.Duration // between two packets, the second of them behind the change
	lost    int
	missing []uint16 // the numbers of those
}

// sipTrace is what was seen of a move.
type sipTrace struct {
	ue, host []seen // on all links of the terminal, and at the host, in order
	from, to netip.Addr
	peer     netip.Addr
	kind     sipKind
	lossy    bool      // of SIP
	change   time.Time // just before it
	settled  time.Time // media went as before
	bindings int       // left at the server then
}

// read reads what the move has cost.
func (t sipTrace) read() (m sipMove, err error) {
	invite, ok := first(t.ue, t.change, sipSeen{from: t.to, begins: "INVITE "})
	if !ok {
		return m, fmt.Errorf("no re-INVITE has left %v within %v", t.to, t.settled.Sub(t.change))
	}
	m.invite = invite.Sub(t.change)
	answer, ok := first(t.ue, invite, sipSeen{to: t.to, begins: sipOK, method: "INVITE"})
	switch {
	case ok:
		m.answer = answer.Sub(invite)
	case !t.lossy:
		return m, fmt.Errorf("no 200 has come to %v; there were:\n%s", t.to, t.signals())
	}
	if m.down, err = gapOf(t.ue, t.change, t.settled, func(d seen) bool {
		return d.from.Addr() == t.peer && (d.to.Addr() == t.to || d.to.Addr() == t.from && (t.kind == sipSoft || d.at.Before(t.change)))
	}); err != nil {
		return m, fmt.Errorf("to the terminal: %w", err)
	}
	if m.up, err = gapOf(t.host, t.change, t.settled, func(d seen) bool { return d.to.Addr() == t.peer }); err != nil {
		return m, fmt.Errorf("from the terminal: %w", err)
	}
	_, m.byeReceived = first(t.ue, t.settled, sipSeen{from: t.peer, to: t.to, begins: "BYE "})
	m.bindings = t.bindings
	return m, nil
}

// signals are the messages at the terminal behind the change, a line each.
func (t sipTrace) signals() string {
	var lines strings.Builder
	for _, d := range t.ue {
		if m, fault := message.Parse(d.payload); fault == nil && !d.at.Before(t.change) {
			start, _, _ := bytes.Cut(d.payload, []byte("\r\n"))
			fmt.Fprintf(&lines, "%.1f ms, %v to %v: %s, CSeq %s\n", milliseconds(d.at.Sub(t.change)), d.from.Addr(), d.to.Addr(), start, m.Get("CSeq"))
		}
	}
	return lines.String()
}

// sipOK begins the answer that was hoped for.
const sipOK = "SIP/2.0 200"

// sipSeen says which message is looked for. What is not set does not matter.
type sipSeen struct {
	from, to netip.Addr
	begins   string
	method   string // of CSeq
}

// first is when the first such message since a time was seen.
func first(all []seen, since time.Time, what sipSeen) (at time.Time, ok bool) {
	d, ok := firstSeen(all, since, what)
	return d.at, ok
}

// firstSeen is that message.
func firstSeen(all []seen, since time.Time, what sipSeen) (d seen, ok bool) {
	for _, d := range all {
		if d.at.Before(since) || !bytes.HasPrefix(d.payload, []byte(what.begins)) ||
			what.from.IsValid() && d.from.Addr() != what.from || what.to.IsValid() && d.to.Addr() != what.to {
			continue
		}
		m, fault := message.Parse(d.payload)
		if fault != nil {
			continue
		}
		if _, method, ok := m.CSeq(); ok && (what.method == "" || method == what.method) {
			return d, true
		}
	}
	return seen{}, false
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
	for after := uint16(1); after <= highest; after++ {
		if !numbers[after] {
			g.missing = append(g.missing, first+after)
		}
	}
	g.lost = len(g.missing)
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
