// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/sip/message"
)

// Target is where the messages of a transaction go, and what they leave by.
type Target struct {
	// Transport is "UDP", "TCP" or "TLS".
	Transport string
	// Local is the address of this host, Remote that of the other. Connection tells connections
	// apart; 0 is any, or a new one.
	Local, Remote netip.AddrPort
	Connection    uint64
	// Name is what a server that is called by TLS proves to be (RFC 5922); empty: its address.
	Name string
}

// Reliable reports whether nothing gets lost on the way.
func (t Target) Reliable() bool { return t.Transport != "UDP" }

// Receive notes in the topmost Via of a request where it has come from, and returns where responses
// to it go (RFC 3261 sections 18.2.1 and 18.2.2, RFC 3581).
func Receive(request *message.Message, from Target) (reply Target) {
	request.Receive(from.Remote)
	if !from.Reliable() {
		from.Remote = request.ReplyTo(from.Remote)
	}
	return from
}

// Send is a message that is to be sent.
type Send struct {
	To      Target
	Message *message.Message
}

// Kind is what an event is about.
type Kind uint8

// Kinds of events.
const (
	// Request is a new request, with the Server that answers it.
	Request Kind = iota
	// ACK is one for a 2xx, which belongs to no transaction (RFC 3261 section 13.2.2.4).
	ACK
	// Response is one to the request of Client. A 2xx to INVITE may come again and again.
	Response
	// Stray is a response to no request that is known.
	Stray
	// Timeout: there was no response to the request of Client, which stands for a 408, or no ACK
	// for that of Server, or its user has not answered in time.
	Timeout
	// Unreachable: the request of Client could not be sent, or the address that it was sent from
	// is gone, which stands for a 503 (RFC 3261 section 8.1.3.1).
	Unreachable
	// Overload: a request has come for which there is no room; Message is to be answered without
	// a transaction.
	Overload
)

// Event is what the user of the layer must know.
type Event struct {
	Kind    Kind
	Message *message.Message
	From    Target
	Client  *Client
	Server  *Server
}

// Output collects what calls make; its user empties it.
type Output struct {
	Sends  []Send
	Events []Event
}

// Reset empties the output.
func (o *Output) Reset() {
	clear(o.Sends)
	clear(o.Events)
	o.Sends, o.Events = o.Sends[:0], o.Events[:0]
}

// Refuse answers what [message.Parse] has found a fault with, without a transaction. What is nil, or
// must have no answer, is dropped. The tag is for To.
func (o *Output) Refuse(m *message.Message, f *message.Fault, from Target, tag string) {
	if m == nil {
		return
	}
	to := Receive(m, from)
	if reply, ok := message.ReplyFault(m, f, tag); ok {
		o.send(to, reply)
	}
}

func (o *Output) send(to Target, m *message.Message) { o.Sends = append(o.Sends, Send{to, m}) }

func (o *Output) event(e Event) { o.Events = append(o.Events, e) }
