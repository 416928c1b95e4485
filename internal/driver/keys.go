// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
)

// ModeKey declares which way packets take; help says what for, and what a change waits
// for.
func ModeKey(field *fastpath.Mode, help string) key.Key {
	return key.Of("fast_path", field, string(fastpath.ModeAuto),
		key.OneOf(fastpath.ModeAuto, fastpath.ModeXDP, fastpath.ModeTC, fastpath.ModeOff), key.Live, help)
}

// DevicesKey declares the devices that programs attach to.
func DevicesKey(field *[]string) key.Key {
	return key.Of("fast_path_devices", field, []string{}, key.List(key.Interface), key.Live,
		"Devices of the fast path. Empty: all Ethernet devices that are up, and come up, and are no member of another.")
}

// LingerKey declares how long programs go on without the process. It gives a sign each
// second; one that is a little late must not end them.
func LingerKey(field *time.Duration) key.Key {
	return key.Of("fast_path_linger", field, "30s", key.Duration(3*time.Second, time.Hour), key.Live,
		"How long the fast path goes on without this process.")
}

// CheckDevices checks the list of devices of an instance with TUN devices of its own.
func CheckDevices(c *config.Checker, list []string, own ...string) {
	if !c.OK("fast_path_devices") {
		return
	}
	for i, name := range list {
		path := fmt.Sprintf("fast_path_devices[%d]", i)
		if slices.Contains(list[:i], name) {
			c.Fail(path, fmt.Sprintf("%s is listed twice", name), "name each device once")
		}
		if slices.Contains(own, name) {
			c.Fail(path, name+" is the TUN device of this instance", "name devices that have IPv4 or IPv6 networks behind them")
		}
	}
}
