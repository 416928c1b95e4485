// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package run makes the translators work on this host: it opens their TUN devices and
// sets what leads packets there, drives their engines from loops, attaches their fast
// path, and undoes on exit what it changed.
package run
