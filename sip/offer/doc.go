// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package offer is one side's half of the offer/answer model of SDP (RFC 3264) for a call
// with one stream of G.711: it makes offers, answers them, and says what both sides have
// agreed on, for the first time and whenever the call changes.
//
// A [Session] lives as long as the dialog. Who calls:
//
//	s, err := offer.New(offer.Settings{ID: id, Origin: address, Random: rand.Reader})
//	body, err := s.Offer(offer.Local{RTP: socket, Send: true, Receive: true})
//	... INVITE with the body; of the 200:
//	agreed, err := s.Answered(answer)
//
// Who is called gives the body to [Session.Offered], then asks [Session.Answer] for the
// answer. A change is the same again with another [Local]: with a new address after a
// move, without Receive and Send for a call on hold. Where the peer refuses (488, 491), or
// the request fails, [Session.Withdraw] leaves all as it was. A request without an offer is
// answered with [Session.Offer], and what its ACK brings goes to [Session.Answered].
//
// What is told is bounded and judged before it has an effect; see [ErrMalformed] and its
// brothers for the status that SIP has for each.
//
//house:part
package offer
