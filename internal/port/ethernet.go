// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"fmt"
	"net"
)

// Ethernet tells the address of an Ethernet device, and whether it is one end of a
// veth pair, behind which another stack of this machine sends.
func (h *Host) Ethernet(index int) (mac net.HardwareAddr, veth bool, err error) {
	l, err := h.handle.LinkByIndex(index)
	if err != nil {
		return nil, false, fmt.Errorf("cannot look at network interface %d: %w", index, err)
	}
	return l.Attrs().HardwareAddr, l.Type() == "veth", nil
}
