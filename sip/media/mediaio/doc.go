// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package mediaio gives streams of package media their sockets and their clock, and joins
// them with the session descriptions of package offer: a [Call] is the media of one call.
//
//	host := mediaio.NewHost(mediaio.Config{})
//	defer host.Close()
//	call, err := host.NewCall(mediaio.Settings{Stream: media.Settings{Source: media.Tone(440)}, Origin: address})
//	err = call.Open(0, mediaio.Local{Address: address})
//	body, err := call.Offer(0)      // of the INVITE
//	err = call.Accept(answer)       // of its 200: media flows
//	...
//	err = call.Open(1, mediaio.Local{Address: other})
//	err = call.Move(1)              // at once, whatever signalling does
//	body, err = call.Offer(1)       // of the re-INVITE
//
// The methods Offer, Answer, Accept, Withdraw and Hold are what a user agent asks of a
// call's media. Old paths stay open for what is still under way (RFC 3264 section 8.3.1), and
// for the way back, until [Call.ClosePath].
//
//house:shared
package mediaio
