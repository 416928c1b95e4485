// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"errors"
	"fmt"
)

// maxLinkPrefixes is how many prefixes a link can have.
const maxLinkPrefixes = 16

func (a *APN) checkLinkPrefixes() error {
	switch n := a.LinkPrefixes; {
	case n <= 1:
		return nil
	case n > maxLinkPrefixes || n&(n-1) != 0:
		return fmt.Errorf("a link cannot have %d prefixes: it is 1, 2, 4, 8 or %d", n, maxLinkPrefixes)
	case a.Delegate > 0:
		return errors.New("it delegates what follows the first prefix of a link, so that a link has no more")
	}
	return nil
}

// morePrefixes is how many prefixes the link of a session has behind the first. A static one has none.
func (a *access) morePrefixes(s *session) int {
	if a.Delegate > 0 || a.LinkPrefixes <= 1 || s.marked(markStatic6) || !s.has.has(TypeIPv6) {
		return 0
	}
	return a.LinkPrefixes - 1
}
