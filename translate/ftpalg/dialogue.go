// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ftpalg

import "net/netip"

// Bounds of a dialogue.
const (
	// maxLine is how much of a line is looked at; a longer one goes on unseen. No
	// command or reply that means something here comes near it, and no server's
	// own limit is known to be higher.
	maxLine = 4096
	// maxPending is how many commands may be without a reply. A client with more is
	// not read until the server has caught up.
	maxPending = 64
)

// mode is how far the dialogue looks into what is said.
type mode uint8

const (
	reading     mode = iota // commands and replies are read and some translated
	undecided               // AUTH was issued: commands are copied, replies still counted
	transparent             // all is copied
)

// output collects what is to be sent. Its buffers are reused.
type output struct {
	client, server []byte
	// end, if not zero, is why the connection is to be closed after sending.
	end Counter
}

func (o *output) reset() { o.client, o.server, o.end = o.client[:0], o.server[:0], 0 }

// dialogue is the state of one control connection: bytes of either side in, bytes
// for both out. It knows no socket and no clock.
type dialogue struct {
	client netip.Addr
	// call is not nil for an IPv4 client of an IPv6 server.
	call *call
	// expect makes a port reachable in IPv4 and returns as what: one of the client, of a
	// call one of the server; nil if EPRT is not translated.
	expect func(port uint16) (netip.AddrPort, error)
	count  func(Counter)

	mode mode
	// off is set by ALGS DISABLE64.
	off bool

	commands, replies lines
	reply             reply
	pending           queue
}

// lines cuts the stream of one side into lines.
type lines struct {
	telnet telnet
	// line is the present one so far, as it is to be sent on.
	line []byte
	// passing is true inside a line that was already looked at.
	passing bool
}

// reply is where in the server's present reply we are.
type reply struct {
	// code of a reply of several lines that has begun, else 0.
	code int
	// swallow keeps the reply from the client.
	swallow bool
	// last is true in the line that ends the reply.
	last bool
	// port is what a 227, or a 229 of a call, has named so far, else 0.
	port uint16
	// preliminary is true while the oldest command without a reply has had one of
	// 1xx: a transfer goes on.
	preliminary bool
}

// newDialogue returns the dialogue of a client by its address.
func newDialogue(client netip.Addr, expect func(uint16) (netip.AddrPort, error), count func(Counter)) *dialogue {
	d := &dialogue{client: client, expect: expect, count: count}
	d.commands.telnet.interrupts = true
	d.pending.push(pending{kind: plainReply}) // the greeting
	return d
}

// full is true if the client is not to be read before the server says something.
func (d *dialogue) full() bool { return d.mode != transparent && d.pending.full() }

// transferring is true while the server carries out a command, as far as can be
// seen.
func (d *dialogue) transferring() bool { return d.mode != transparent && d.reply.preliminary }

// interruptible is true if a reply of our own may be sent now.
func (d *dialogue) interruptible() bool {
	return d.mode == reading && d.reply.code == 0 && !d.replies.passing
}

// kind is what is to be done with the reply to a command.
type kind uint8

const (
	plainReply   kind = iota // it goes to the client
	passiveReply             // so does this; it may be a 227
	epsvReply                // to the PASV that EPSV became
	noopReply                // to a NOOP in place of a command that was not passed on
	authReply                // it decides the mode
	calledPASV               // to the EPSV that PASV of a call became
	calledEPSV               // to EPSV of a call
)

// pending is a command without a reply.
type pending struct {
	kind kind
	// answer is what the client is told when a NOOP has been answered.
	answer string
	// passed is true when a reply has come that was no answer to this command, and was
	// taken for the end of something earlier.
	passed bool
}

// queue holds the commands without a reply, oldest first.
type queue struct {
	ring        [maxPending]pending
	first, size int
}

func (q *queue) full() bool { return q.size == maxPending }

func (q *queue) push(p pending) {
	q.ring[(q.first+q.size)%maxPending] = p
	q.size++
}

// head returns the oldest; without one, a plain reply is that of no one.
func (q *queue) head() pending {
	if q.size == 0 {
		return pending{}
	}
	return q.ring[q.first]
}

func (q *queue) pop() {
	if q.size > 0 {
		q.first = (q.first + 1) % maxPending
		q.size--
	}
}

// find returns how many are older than the first of a kind, or -1. The search begins behind
// the oldest from.
func (q *queue) find(from int, kinds ...kind) int {
	for i := from; i < q.size; i++ {
		for _, k := range kinds {
			if q.ring[(q.first+i)%maxPending].kind == k {
				return i
			}
		}
	}
	return -1
}
