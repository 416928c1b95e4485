// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

// Encapsulate appends the user's packet behind the header of a G-PDU. It writes h.Type
// itself. Where the packet lies already in its buffer, with room in front, write the
// header into that room by [Header.AppendTo].
func Encapsulate(b []byte, h *Header, packet []byte) ([]byte, error) {
	h.Type = TypeGPDU
	b, err := h.AppendTo(b, len(packet))
	if err != nil {
		return b, err
	}
	return append(b, packet...), nil
}

// Decapsulate returns header and user's packet of a G-PDU of either version, the packet
// in h.Payload. Whatever else arrives at the port of the user plane is refused with
// [FaultMessageType] and a header that says what it is. Extension headers are skipped
// over; see [Extensions.Uncomprehended] for those that must not be.
func Decapsulate(b []byte) (Header, error) {
	h, err := ParseHeader(b)
	if err == nil && h.Type != TypeGPDU {
		err = refuse(FaultMessageType, 0)
	}
	return h, err
}
