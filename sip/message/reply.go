// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package message

import "strings"

// Reply makes the response to a request (RFC 3261 section 8.2.6.2), from whatever fields the
// request has. The tag is for To, where the request has none and the response is not 100; empty:
// none is given.
func Reply(request *Message, status int, reason, tag string) *Message {
	r := &Message{Status: status, Reason: reason, Headers: make([]Header, 0, 8)}
	for _, h := range request.Headers {
		switch {
		case h.Name == "To" && tag != "" && status != 100:
			h.Value = tagged(h.Value, tag)
		case h.Name == "Timestamp" && status == 100, h.Name == "Via", h.Name == "From", h.Name == "To", h.Name == "Call-ID", h.Name == "CSeq":
		default:
			continue
		}
		r.Headers = append(r.Headers, h)
	}
	return r
}

// tagged is an address with a tag, if it had none and can be read.
func tagged(value, tag string) string {
	a, err := ParseAddress(value)
	if err != nil || a.Tag() != "" {
		return value
	}
	a.Params = a.Params.With("tag", tag)
	return a.String()
}

// ReplyFault is the answer to a request with a fault, which has a status. Not ok: an ACK gets no
// answer (RFC 3261 section 17).
func ReplyFault(request *Message, f *Fault, tag string) (r *Message, ok bool) {
	if f.Status == 0 || strings.EqualFold(request.Method, "ACK") {
		return nil, false
	}
	return Reply(request, f.Status, f.Reason, tag), true
}
