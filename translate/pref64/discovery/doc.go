// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package discovery tells hosts of a link about the prefixes of a NAT64 ([Announcer]), and
// learns about them as a host of a link does ([Discover], [Watch]). What the messages
// mean is decided in translate/pref64.
//
//house:shared
package discovery
