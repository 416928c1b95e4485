// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package host

import "github.com/isthmus-net/isthmus/internal/port"

// DeviceOpen reports whether a TUN device is up and held open by a program.
func DeviceOpen(name string) bool {
	host, err := port.OpenHost()
	if err != nil {
		return false
	}
	defer host.Close()
	return host.Carrier(name)
}
