// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package chunk is the codec of SCTP's packets: the common header with its checksum (RFC
// 9260), and the chunks, parameters and error causes of RFC 9260, 3758, 4895, 5061 and 8260.
// Octets in, values out: no socket, no clock, no state.
//
// [Open] checks a packet and returns what follows its header; [Next] cuts one chunk after the
// other off that, whatever its type. Each type that this package knows has a value with a
// Parse function, which takes the chunk's body, and an Append method, which writes the whole
// chunk with its padding. [Begin] and [Seal] make a packet of chunks.
//
// Values alias the packet where they hold slices; whoever keeps them copies. Encoding appends
// to the caller's buffer. Nothing is allocated but the lists of a set-up.
//
//house:codec
package chunk
