// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package cost measures what the fast path's XDP program costs a packet, by the
// kernel's test run: the program alone, without driver, wire and scheduler.
//
// A test run that repeats gives each run the frame of the last one, so a program
// around the relay's makes the frame again each time, with the next of many clients in
// random order. What that costs alone is measured too and is taken off.
package cost
