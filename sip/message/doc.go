// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package message reads, checks and writes SIP messages (RFC 3261 sections 7, 18 to 20 and 25).
//
// A [Message] keeps every field as it came, so that a proxy sends on what it got: names of
// methods with their capitals, parameters of routes, quotations. What a field means is read when
// it is asked for. [Parse] judges as strictly as RFC 4475 and RFC 5118 ask for and says by a
// [Fault] how the request is to be answered, or why a message is dropped; [Reply] writes that
// answer from whatever fields there are.
//
//house:codec
package message
