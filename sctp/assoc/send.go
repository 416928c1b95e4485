// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"errors"
	"time"
)

// sender is what an association keeps of what it sends.
type sender struct {
	firstTSN uint32
	nextTSN  uint32
	acked    uint32 // the cumulative TSN that the peer has acknowledged
	streams  uint16 // that we may use

	highestGap uint32 // that the last SACK has acknowledged

	outs    []outStream  // as far as used
	ready   ring[uint16] // streams with messages, in turn
	turn    int          // octets of messages that left the first of these in its turn
	cutting *message     // of which some fragments have TSNs
	sent    ring[sent]   // the chunks behind acked, in the order of their TSNs
	queued  int          // octets in the send buffer
	kept    int          // messages there
	blocked bool         // our user waits for room

	peerWindow int // octets that the peer has room for (RFC 9260 section 6.2.1)
	announced  int // window of the last SACK
	outside    int // octets of user data in flight
	marked     int // chunks that are to be sent again

	windowTime time.Duration
	ask        bool   // the time has come: one chunk may go
	forwarded  uint32 // the TSN that it was told
	probing    bool   // a chunk was sent into a closed window
	sackHeard  bool   // since that, or since the last timeout
}

// outStream is a stream to the peer.
type outStream struct {
	waiting         ring[*message]
	octets          int    // of those messages
	next, nextLoose uint32 // numbers of messages, of ordered ones and (in I-DATA) of others
}

// Message is what a user sends.
type Message struct {
	Stream    uint16
	Protocol  uint32 // which the peer's user gets (RFC 9260 section 3.3.1)
	Unordered bool
	Immediate bool // the peer is to acknowledge it at once
	// Lifetime is after when it is given up, if the peer can be told to (RFC 3758), else if it is not yet begun;
	// 0 is never. Tries is how often its chunks may be sent; 0 is without end.
	Lifetime time.Duration
	Tries    int
	User     []byte
}

// message is one that waits, or whose chunks are not all acknowledged.
type message struct {
	Message
	number    uint32
	cut       int    // octets that have TSNs
	fragments uint32 // that they are
	open      int    // of them that are not acknowledged
	deadline  time.Time
	abandoned bool
}

// Errors of Send.
var (
	ErrNotOpen  = errors.New("the association takes no messages: it is not set up yet, or ends")
	ErrStream   = errors.New("the peer has not as many streams")
	ErrEmpty    = errors.New("a message has at least one octet")
	ErrBlocked  = errors.New("the send buffer has no room for this stream: wait for the event Writable")
	ErrTooLarge = errors.New("the message is larger than the send buffer")
)

// greed is how many times as much as the send buffer has left one stream may have waiting: streams full of data leave
// room for the few messages of others, which by their turn (RFC 8260 section 3.2) are then sent before that data.
const greed = 4

// leastCost is what a message takes of the send buffer at least, in octets: many small ones are not to take many times as
// much memory as the buffer has.
const leastCost = 64

// filled is how much of the send buffer is taken.
func (a *Association) filled() int { return max(a.queued, leastCost*a.kept) }

// halfFull reports whether more than half of the send buffer is taken.
func (a *Association) halfFull() bool { return a.filled() > a.par.SendBuffer/2 }

// setFirst begins with a TSN.
func (s *sender) setFirst(tsn uint32) {
	s.firstTSN, s.nextTSN, s.acked, s.highestGap = tsn, tsn, tsn-1, tsn-1
}

// Streams is how many the user may send by.
func (a *Association) Streams() uint16 { return a.streams }

// Send takes a message, and copies it. What a stream has waiting may be greed times as much as the send buffer has left.
func (a *Association) Send(m Message, now time.Time, out *Output) error {
	switch {
	case a.state != established && a.state != cookieEchoed:
		return ErrNotOpen
	case m.Stream >= a.streams:
		return ErrStream
	case len(m.User) == 0:
		return ErrEmpty
	case len(m.User) > a.par.SendBuffer:
		return ErrTooLarge
	}
	for int(m.Stream) >= len(a.outs) {
		a.outs = append(a.outs, outStream{})
	}
	s := &a.outs[m.Stream]
	if !a.hasRoom(s, len(m.User), now, out) {
		return ErrBlocked
	}
	if s.waiting.length == 0 {
		*a.ready.push() = m.Stream
	}
	a.endpoint.busyAt = now
	one := a.endpoint.free.take(m)
	if m.Lifetime > 0 {
		one.deadline = now.Add(m.Lifetime)
	}
	*s.waiting.push() = one
	s.octets += len(m.User)
	a.queued += len(m.User)
	a.kept++
	a.endpoint.begin()
	a.transmit(nil, now, out)
	a.endpoint.settle(a)
	return nil
}

// upcoming is the message whose octets are sent next: the rest of the one that is cut into fragments (RFC 9260
// section 6.9), else that of the stream whose turn it is.
func (a *Association) upcoming() *message {
	switch {
	case a.cutting != nil:
		return a.cutting
	case a.ready.length == 0:
		return nil
	}
	return *a.outs[*a.ready.at(0)].waiting.at(0)
}

// number gives a message that is begun its place in the stream (RFC 9260 section 6.5, RFC 8260 section 2.1).
func (a *Association) number(m *message) {
	s := &a.outs[m.Stream]
	switch {
	case !m.Unordered:
		m.number, s.next = s.next, nextMessage(s.next, a.interleaved)
	case a.interleaved:
		m.number = s.nextLoose
		s.nextLoose++
	}
}

// cutOff gives the next octets of a message a TSN. With its last ones the message leaves the queue, and the next
// stream has its turn; with each if messages may be interleaved (RFC 8260 section 2.2.1).
func (a *Association) cutOff(m *message, octets int) *sent {
	if m.cut == 0 {
		a.number(m)
	}
	c := a.sent.push()
	*c = sent{message: m, offset: m.cut, size: octets, fragment: m.fragments}
	m.cut += octets
	m.fragments++
	m.open++
	a.nextTSN++
	a.endpoint.Counters.Sent++
	switch {
	case m.cut == len(m.User):
		a.leaveQueue()
	case a.interleaved:
		a.nextStream()
	default:
		a.cutting = m
	}
	return c
}

// leaveQueue takes the message whose turn it was out of its stream, and sends that to the end of the line, unless the next
// message fits into what is a packet's with those that it had its turn with: a stream of small messages has no smaller
// share of the line than its neighbours for that (RFC 8260 section 3.3).
func (a *Association) leaveQueue() {
	a.turn += a.dropFirst()
	if next := a.outs[*a.ready.at(0)].waiting; next.length == 0 || a.turn+len((*next.at(0)).User) > a.largestFragment() {
		a.nextStream()
	}
}

// dropFirst takes the message whose turn it was out of its stream. It returns its octets.
func (a *Association) dropFirst() int {
	s := &a.outs[*a.ready.at(0)]
	octets := len((*s.waiting.at(0)).User)
	s.octets -= octets
	s.waiting.drop()
	a.cutting = nil
	return octets
}

// nextStream sends the stream whose turn it was to the end of the line, if it has more messages.
func (a *Association) nextStream() {
	stream := *a.ready.at(0)
	a.ready.drop()
	a.turn = 0
	if a.outs[stream].waiting.length > 0 {
		*a.ready.push() = stream
	}
}

// leaveStream takes a message that is begun out of its stream, wherever that stands in line.
func (a *Association) leaveStream(m *message) {
	for range a.ready.length {
		if *a.ready.at(0) == m.Stream {
			a.dropFirst()
		}
		a.nextStream()
	}
}

// settleMessage books a chunk of a message that needs no more of us.
func (a *Association) settleMessage(c *sent, out *Output) {
	m := c.message
	m.open--
	a.queued -= c.size
	if m.open == 0 && m.cut == len(m.User) {
		a.kept--
		a.endpoint.free.give(m)
	}
	a.unblock(out)
}

// unblock tells a user that waits for room once half of the send buffer is empty.
func (a *Association) unblock(out *Output) {
	if a.blocked && !a.halfFull() {
		a.blocked = false
		a.event(out, Event{Kind: Writable})
	}
}

// failMessages tells the user of each message that was not delivered (RFC 9260 section 11.2.2).
func (a *Association) failMessages(why Reason, out *Output) {
	var last *message
	tell := func(m *message) {
		if m != last {
			last = m
			a.event(out, Event{Kind: SendFailed, Reason: why, Data: Data{m.Stream, m.Unordered, m.Protocol, true, true, m.User}})
		}
	}
	for i := range a.sent.length {
		if c := a.sent.at(i); !c.acked {
			tell(c.message)
		}
	}
	for i := range a.outs {
		for k := range a.outs[i].waiting.length {
			tell(*a.outs[i].waiting.at(k))
		}
	}
	a.sent, a.ready, a.outs, a.cutting, a.queued, a.kept, a.marked = ring[sent]{}, ring[uint16]{}, nil, nil, 0, 0, 0
}

// messages keeps the memory of messages for the next ones.
type messages struct {
	free []*message
	kept int // octets of them
}

// What of messages is kept: octets, and of small ones how many.
const (
	maxKept     = 1 << 20
	maxMessages = 4096
)

// take makes a message with a copy of its octets.
func (f *messages) take(m Message) *message {
	var one *message
	if last := len(f.free) - 1; last >= 0 {
		one = f.free[last]
		f.free[last], f.free = nil, f.free[:last]
		f.kept -= cap(one.User)
	} else {
		one = &message{}
	}
	octets := append(one.User[:0], m.User...)
	*one = message{Message: m}
	one.User = octets
	return one
}

// give takes the memory of a message back.
func (f *messages) give(m *message) {
	if len(f.free) < maxMessages && f.kept+cap(m.User) <= maxKept {
		f.free = append(f.free, m)
		f.kept += cap(m.User)
	}
}
