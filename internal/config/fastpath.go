// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import "time"

// The bounds of a linger. The daemon gives a sign each second; one that is a little
// late must not end the fast path.
const (
	minLinger = 3 * time.Second
	maxLinger = time.Hour
)

// relayFastPath reads the fast path of a relay.
func (c *checker) relayFastPath(at string, raw rawRelay, r *Relay) {
	set(c, at, "fast_path", raw.FastPath, &r.FastPath, oneOf(FastPathAuto, FastPathXDP, FastPathTC, FastPathOff))
	set(c, at, "fast_path_devices", raw.FastPathDevices, &r.FastPathDevices, listOf(interfaceName))
	set(c, at, "fast_path_linger", raw.FastPathLinger, &r.FastPathLinger, duration(minLinger, maxLinger))
	if r.Mode == ModeHost && r.FastPath == FastPathXDP {
		c.fail(at+".fast_path", `a program in the driver does not see what this host sends, and mode is "host"`, `write "auto", "tc" or "off"`)
	}
	c.devices(at, r.FastPathDevices, r.Interface)
}
