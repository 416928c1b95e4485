// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clat

import (
	"encoding/binary"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
)

const (
	// maxMessages bounds the ICMP messages of one direction of which fragments wait.
	maxMessages = 128
	// fragmentTime is how long (RFC 6146 section 4, FRAGMENT_MIN).
	fragmentTime = 2 * time.Second
	// longestMessage fits an IPv4 packet.
	longestMessage = 65535 - 20
)

// messages are ICMP messages that come in fragments by one direction. In IPv6 their checksum
// covers the length of the whole, and in IPv4 not: so the first fragment, which has the
// checksum, waits for the last, which tells the length; all others pass as they come.
type messages struct {
	slots   [maxMessages]message
	waiting int

	expired, evicted, duplicates uint64 // first fragments that were dropped
}

// message is what is known of one message.
type message struct {
	key    messageKey
	until  time.Time // zero: the slot is free
	held   int       // slots that messages of its source have
	length int       // 0: the last fragment has not come
	first  []byte    // empty: the first has not come
}

// messageKey tells the fragments of one message (RFC 791 section 3.2, RFC 8200 section 4.5).
type messageKey struct {
	src, dst [16]byte
	id       uint32
}

// fragmentOfICMP views a packet that is a fragment of an ICMP message.
func fragmentOfICMP(ip []byte) (v translate.View, ok bool) {
	const icmp, offsetAndMore = 1, 0x3fff
	bad, proto := translate.ReasonNone, byte(packet.ProtoICMPv6)
	switch {
	case len(ip) >= packet.IPv6HeaderLen && ip[0]>>4 == 6:
		if next := ip[6]; next == packet.ProtoTCP || next == packet.ProtoUDP || next == packet.ProtoICMPv6 {
			return v, false // as nearly all are
		}
		v, bad = translate.ViewIPv6(ip)
	case len(ip) >= 20 && ip[9] == icmp && binary.BigEndian.Uint16(ip[6:])&offsetAndMore != 0:
		v, bad = translate.ViewIPv4(ip)
		proto = icmp
	default:
		return v, false
	}
	return v, bad == translate.ReasonNone && v.Proto == proto && v.Fragment()
}

// translate has a packet translated, unless it is one that waits.
func (e *Engine) translate(m *messages, ip []byte, now time.Time, out *packet.Batch) {
	v, ok := fragmentOfICMP(ip)
	end := v.Offset + len(v.Payload)
	switch {
	case !ok, end > longestMessage, v.IsError(): // these are refused
		e.translator.Handle(ip, now, out)
		return
	case v.Offset != 0 && v.More:
		e.translator.HandleFragment(ip, end, now, out)
		return
	}
	key := messageKey{src: v.Src.As16(), dst: v.Dst.As16(), id: v.ID}
	s := m.find(&key)
	if s == nil {
		s = m.begin(&key, now)
	}
	switch {
	case v.Offset != 0: // the last
		if len(s.first) > 0 {
			e.translator.HandleFragment(s.first, end, now, out)
			m.free(s)
		} else if s.length == 0 {
			s.length = end
		}
		e.translator.HandleFragment(ip, end, now, out)
	case s.length != 0:
		e.translator.HandleFragment(ip, s.length, now, out)
		m.free(s)
	case len(s.first) > 0:
		m.duplicates++
	default:
		s.first = append(s.first, ip...)
	}
}

func (m *messages) find(key *messageKey) *message {
	if m.waiting == 0 {
		return nil
	}
	for i := range m.slots {
		if s := &m.slots[i]; !s.until.IsZero() && s.key == *key {
			return s
		}
	}
	return nil
}

// begin finds a slot for a message. Without a free one the oldest message gives way of the
// source that has most.
func (m *messages) begin(key *messageKey, now time.Time) *message {
	var slot *message
	for i := range m.slots {
		s := &m.slots[i]
		if s.until.IsZero() {
			slot = s
			break
		}
		if slot == nil || s.held > slot.held || s.held == slot.held && s.until.Before(slot.until) {
			slot = s
		}
	}
	if !slot.until.IsZero() {
		if len(slot.first) > 0 {
			m.evicted++
		}
		m.free(slot)
	}
	m.waiting++
	*slot = message{key: *key, until: now.Add(fragmentTime), first: slot.first}
	m.count(&key.src)
	return slot
}

// count notes how many slots the messages of a source have.
func (m *messages) count(src *[16]byte) {
	held := 0
	for i := range m.slots {
		if s := &m.slots[i]; !s.until.IsZero() && s.key.src == *src {
			held++
		}
	}
	for i := range m.slots {
		if s := &m.slots[i]; !s.until.IsZero() && s.key.src == *src {
			s.held = held
		}
	}
}

// free ends a message. Its memory stays for the next.
func (m *messages) free(s *message) {
	m.waiting--
	s.until, s.first = time.Time{}, s.first[:0]
	m.count(&s.key.src)
}

// expire ends messages of which nothing was heard for too long.
func (m *messages) expire(now time.Time) {
	if m.waiting == 0 {
		return
	}
	for i := range m.slots {
		if s := &m.slots[i]; !s.until.IsZero() && !now.Before(s.until) {
			if len(s.first) > 0 {
				m.expired++
			}
			m.free(s)
		}
	}
}

// next is when expire has something to do; zero is never.
func (m *messages) next() (at time.Time) {
	if m.waiting == 0 {
		return at
	}
	for i := range m.slots {
		if until := m.slots[i].until; !until.IsZero() && (at.IsZero() || until.Before(at)) {
			at = until
		}
	}
	return at
}
