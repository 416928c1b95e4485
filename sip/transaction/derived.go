// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"strconv"

	"github.com/isthmus-net/isthmus/sip/message"
)

// Acknowledge makes the ACK of a refused INVITE (RFC 3261 section 17.1.1.3): it goes the INVITE's
// way and has its branch.
func Acknowledge(invite, refusal *message.Message) *message.Message {
	ack := derived(invite, "ACK")
	ack.Set("To", refusal.Get("To"))
	return ack
}

// Cancel makes the CANCEL of a request (RFC 3261 section 9.1). It must not be sent before a
// provisional response has come.
func Cancel(request *message.Message) *message.Message { return derived(request, "CANCEL") }

// derived makes a request of a transaction that belongs to another one's.
func derived(of *message.Message, method string) *message.Message {
	m := &message.Message{Method: method, URI: of.URI}
	m.Add("Via", of.Get("Via"))
	for _, route := range of.All("Route") {
		m.Add("Route", route)
	}
	number, _, _ := of.CSeq()
	m.Add("Max-Forwards", "70")
	m.Add("From", of.Get("From"))
	m.Add("To", of.Get("To"))
	m.Add("Call-ID", of.CallID())
	m.Add("CSeq", strconv.FormatUint(uint64(number), 10)+" "+method)
	return m
}
