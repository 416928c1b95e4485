// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"
	"time"
)

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
	if c.failed[at+".fast_path_devices"] {
		return
	}
	for i, name := range r.FastPathDevices {
		path := fmt.Sprintf("%s.fast_path_devices[%d]", at, i)
		if slices.Contains(r.FastPathDevices[:i], name) {
			c.fail(path, fmt.Sprintf("%s is listed twice", name), "name each device once")
		}
		if name == r.Interface {
			c.fail(path, name+" is the relay's own TUN device", "name devices that have IPv4 or IPv6 networks behind them")
		}
	}
}
