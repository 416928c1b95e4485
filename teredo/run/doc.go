// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package run makes the Teredo engines work on this host: it opens their
// sockets and devices, drives them from loops, and undoes on exit what it
// changed. It is the only Teredo package that touches the system.
package run
