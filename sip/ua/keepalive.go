// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"bytes"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/stun"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// flow keeps the way to the first hop open, and finds out when it is gone (RFC 5626
// section 4.4): by STUN binding requests over UDP, by empty lines over TCP.
type flow struct {
	e      *Engine
	on     bool
	hop    transaction.Target
	most   time.Duration // of Flow-Timer, 0 for none
	timer  *transaction.Timer
	id     [12]byte
	asked  int // requests since the last answer
	mapped netip.AddrPort
}

// Times of RFC 5626 section 4.4; STUN's requests are repeated as RFC 8489 section 6.2.1 has it,
// but fewer, for a flow of ours has 10 s as that of TCP.
const (
	udpLow, udpHigh = 24 * time.Second, 29 * time.Second
	tcpLow, tcpHigh = 95 * time.Second, 120 * time.Second
	pongWithin      = 10 * time.Second
	stunFirst       = 500 * time.Millisecond
	stunTries       = 5
)

var ping, pong = []byte("\r\n\r\n"), []byte("\r\n")

func (f *flow) init(e *Engine) {
	f.e = e
	f.timer = e.timer(f.due)
}

// begin keeps the flow alive on which a registration was made.
func (f *flow) begin(hop transaction.Target, res *message.Message) {
	if hop != f.hop || !f.on {
		f.mapped = netip.AddrPort{}
	}
	f.on, f.hop, f.asked = true, hop, 0
	f.most, _ = seconds(res.Get("Flow-Timer"))
	f.plan()
}

func (f *flow) stop() {
	f.on = false
	f.e.layer.StopTimer(f.timer)
}

// plan sets the time of the next keep-alive.
func (f *flow) plan() {
	low, high := udpLow, udpHigh
	if f.hop.Reliable() {
		low, high = tcpLow, tcpHigh
	}
	if f.most > 0 {
		low, high = f.most*8/10, f.most
	}
	f.e.after(f.timer, f.e.between(low, high))
}

// due sends a keep-alive, repeats it, or gives the flow up.
func (f *flow) due() {
	e := f.e
	if e.use == nil || e.use.Local != f.hop.Local {
		f.stop() // the path is left; the next registration begins with another
		return
	}
	tcp := f.hop.Reliable()
	if tcp && f.asked > 0 || f.asked >= stunTries {
		e.stats.KeepAlivesLost++
		f.failed()
		return
	}
	f.asked++
	e.stats.KeepAlivesSent++
	if tcp {
		f.send(bytes.Clone(ping))
		e.after(f.timer, pongWithin)
		return
	}
	if f.asked == 1 {
		_, _ = e.random.Read(f.id[:])
	}
	f.send(stun.AppendRequest(nil, f.id))
	e.after(f.timer, stunFirst<<(f.asked-1))
}

func (f *flow) send(b []byte) { f.e.out.Packets = append(f.e.out.Packets, Packet{To: f.hop, Data: b}) }

// failed registers anew: the flow is gone, or what the far end sees of us is.
func (f *flow) failed() {
	f.stop()
	r := &f.e.reg
	r.flow.mapped = netip.AddrPort{}
	r.begin()
}

// keepAliveAnswer takes what came if it is no SIP message but the answer to a keep-alive, or
// one that asks for nothing.
func (r *registration) keepAliveAnswer(b []byte, hop transaction.Target) bool {
	f := &r.flow
	if len(bytes.Trim(b, "\r\n")) == 0 {
		if f.on && hop == f.hop && hop.Reliable() && bytes.Equal(b, pong) {
			f.answered()
		}
		return true
	}
	if !stun.IsMessage(b) {
		return false
	}
	if mapped, ok := stun.Mapped(b, f.id); ok && f.on && hop == f.hop && f.asked > 0 {
		changed := f.mapped.IsValid() && mapped != f.mapped
		f.mapped = mapped
		if changed {
			f.failed() // another mapping is another flow (RFC 5626 section 4.4.2)
			return true
		}
		f.answered()
	}
	return true
}

func (f *flow) answered() {
	f.asked = 0
	f.plan()
}
