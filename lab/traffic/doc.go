// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package traffic generates and receives traffic in the manner of D-ITG: messages of stated sizes at stated times, by
// UDP, TCP, SCTP and MPTCP, each with its number and the time at which it was sent, so that the receiver knows delay,
// jitter, loss and throughput. Both ends must go by one clock, as namespaces of one machine do.
//
// What is sent when ([Flow], [Schedule]), the header of messages, the statistics ([Meter]) and the rows that D-ITG's
// own tools read are pure; [Flow.Send] and [Receiver] do the I/O.
package traffic
