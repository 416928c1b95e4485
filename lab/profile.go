// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import "time"

// Of Ethernet (IEEE 802.3 3.1.1, 4.4.2): with each frame a line carries preamble, header,
// check sequence and gap, and at least a frame of 64 bytes.
const (
	ethernetOverhead = 8 + 14 + 4 + 12
	ethernetLeast    = 8 + 64 + 12
)

// Ethernet is a cable of that rate in bit/s, such as 10e6 or 100e6, in full duplex. Its delay
// is left out: 100 m take half a microsecond.
func Ethernet(rate int64) WireConfig {
	lane := LaneConfig{Rate: rate, Overhead: ethernetOverhead, Least: ethernetLeast}
	return WireConfig{AtoB: lane, BtoA: lane}
}

// Seeds of the profiles, chosen among thousands: in the first 30 and 60 s round trips have the
// stated mean and deviation to 5 %, so that a short run meets the medium and not a spell of it.
const (
	seedWLAN = 271
	seedUMTS = 313
)

// WLAN is the wireless LAN of the published measurements: 28 Mbit/s, round
// trip 1.0 ms with standard deviation 0.66 ms as a ping of 56 bytes sees it
// (the study of SCTP multihoming on the native IPv6 UMTS-WLAN testbed).
// One direction has half the mean, less the 0.03 ms that the ping itself
// takes on the line, and 1/√2 of the deviation.
func WLAN() WireConfig {
	lane := LaneConfig{Rate: 28e6, Delay: 470 * time.Microsecond, Jitter: 467 * time.Microsecond}
	return WireConfig{AtoB: lane, BtoA: lane, Seed: seedWLAN}
}

// UMTS is the cellular link of the published measurements, node A being the
// terminal: 384 kbit/s up, 2 Mbit/s down, round trip 208 ms with standard
// deviation 120 ms as a ping of 56 bytes sees it, which takes 2.6 ms on the
// line both ways (the same study).
func UMTS() WireConfig {
	const delay, jitter = 102700 * time.Microsecond, 84850 * time.Microsecond
	return WireConfig{
		AtoB: LaneConfig{Rate: 384e3, Delay: delay, Jitter: jitter},
		BtoA: LaneConfig{Rate: 2e6, Delay: delay, Jitter: jitter},
		Seed: seedUMTS,
	}
}
