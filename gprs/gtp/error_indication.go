// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import "net/netip"

// ErrorIndication says that a user packet came for no context (TS 29.281 section
// 7.3.1). Version 0 has no elements: flow label and TID of the packet are in its header
// (TS 09.60 section 7.5.7).
type ErrorIndication struct {
	TEID    uint32     // of the packet
	Address netip.Addr // to which the packet was sent
	Private Optional[PrivateExtension]
}

// Type returns [TypeErrorIndication].
func (*ErrorIndication) Type() MessageType { return TypeErrorIndication }

func (m *ErrorIndication) walk(w *walk) {
	if w.version == V1 {
		value(w, ElementTEIDData, &m.TEID, uint32s)
		value(w, ElementGSNAddress, &m.Address, address)
	} else if !w.writing {
		m.TEID, m.Address = 0, netip.Addr{}
	}
	element(w, ElementPrivateExtension, optional, &m.Private, privateExtension)
}
