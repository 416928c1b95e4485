// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package chunk

import "encoding/binary"

// ParseHeartbeat reads the information in a HEARTBEAT or a HEARTBEAT ACK, which is its sender's own (RFC 9260
// section 3.3.5). A HEARTBEAT is answered with all of its body, whatever that is.
func ParseHeartbeat(body []byte) (info []byte, err error) {
	p, _, err := NextParameter(body)
	if err == nil && p.Type != ParamHeartbeatInfo {
		err = ErrLength
	}
	return p.Value, err
}

// AppendHeartbeat writes a HEARTBEAT with information.
func AppendHeartbeat(b []byte, info []byte) []byte {
	b, at := open(b, TypeHeartbeat, 0)
	return closeList(AppendParameter(b, ParamHeartbeatInfo, info), at, 0)
}

// AppendPad writes a PAD of so many octets, its header included: a multiple of 4, and at least 4 (RFC 4820 section 3).
func AppendPad(b []byte, size int) []byte {
	b, at := open(b, TypePad, 0)
	for range size - chunkHeader {
		b = append(b, 0)
	}
	return closeChunk(b, at)
}

// ParseShutdown reads the cumulative TSN of a SHUTDOWN (RFC 9260 section 3.3.8).
func ParseShutdown(body []byte) (tsn uint32, err error) {
	if len(body) < 4 {
		return 0, ErrLength
	}
	return binary.BigEndian.Uint32(body), nil
}

// AppendShutdown writes a SHUTDOWN.
func AppendShutdown(b []byte, tsn uint32) []byte {
	b, at := open(b, TypeShutdown, 0)
	return closeChunk(binary.BigEndian.AppendUint32(b, tsn), at)
}
