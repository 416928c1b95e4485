// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"
	"time"
)

func (e *Engine) uplink(c call, socket Socket, from netip.AddrPort, b []byte) Reason { return none }

// HandleIP takes a packet for terminals that came from a network. The packet is changed.
func (e *Engine) HandleIP(vrf uint8, ip []byte, now time.Time, out *Output) {}

func (e *Engine) greet(x handle, c call) {}

func (e *Engine) advertDue(s *session, c call) {}
