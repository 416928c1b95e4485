// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import "github.com/isthmus-net/isthmus/translate/nat64/state"

// icmp6 and icmp4 find or make the session of an ICMP query (RFC 6146 section 3.5.3).
// Queries differ from UDP in what finds them alone: the identifier stands for the ports.
func (e *Engine) icmp6(c *call, k *state.Key6, s *state.Session) Reason { return e.open6(c, k, s) }

func (e *Engine) icmp4(c *call, k *state.Key4, s *state.Session) Reason {
	return e.open4(c, k, e.settings.FilterICMP, s)
}
