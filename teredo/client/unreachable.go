// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"
	"time"
)

// Implementation constants of a server that is not there yet.
const (
	// firstRetry is how soon a server is asked again whose host says that no program has its
	// port; it doubles.
	firstRetry = 250 * time.Millisecond
	// maxRetries bounds what such news, which anybody may forge, makes one exchange send
	// beyond the solicitations of RFC 4380: the last comes after 3.75 s.
	maxRetries = 4
)

// Unreachable is told by ICMP that no program has the port of a server, as when the client
// starts a moment before it. RFC 1122 section 4.1.3.3 has UDP pass that on, and section
// 3.2.2.1 has it count for whoever is told. T of RFC 4380 section 5.2.1, a default, is the
// wait for an answer; where none can come the start action is repeated sooner, a few times.
// Nothing is given up for it, and the solicitations of section 5.2.1 follow.
func (c *Client) Unreachable(server netip.AddrPort, now time.Time) {
	s := &c.primary
	if c.state != Starting || !s.active || s.server != server || s.hurried || s.early == maxRetries {
		return
	}
	if due := now.Add(firstRetry << s.early); due.Before(s.due) {
		s.due, s.hurried = due, true
	}
}
