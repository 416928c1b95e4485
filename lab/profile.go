// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import "time"

// WLAN is the wireless LAN of the published measurements: 28 Mbit/s, round
// trip 1.0 ms with standard deviation 0.66 ms as a ping of 56 bytes sees it.
// One direction has half the mean, less the 0.03 ms that the ping itself
// takes on the line, and 1/√2 of the deviation.
func WLAN() WireConfig {
	lane := LaneConfig{Rate: 28e6, Delay: 470 * time.Microsecond, Jitter: 467 * time.Microsecond}
	return WireConfig{AtoB: lane, BtoA: lane, Seed: 1}
}

// UMTS is the cellular link of the published measurements, node A being the
// terminal: 384 kbit/s up, 2 Mbit/s down, round trip 208 ms with standard
// deviation 120 ms as a ping of 56 bytes sees it, which takes 2.6 ms on the
// line both ways.
func UMTS() WireConfig {
	const delay, jitter = 102700 * time.Microsecond, 84850 * time.Microsecond
	return WireConfig{
		AtoB: LaneConfig{Rate: 384e3, Delay: delay, Jitter: jitter},
		BtoA: LaneConfig{Rate: 2e6, Delay: delay, Jitter: jitter},
		Seed: 1,
	}
}
