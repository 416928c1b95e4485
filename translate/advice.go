// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"

	"github.com/isthmus-net/isthmus/internal/special"
)

// unreachable4 are the addresses that RFC 6791 section 3.1 advises against for a pool:
// filters on the way often drop what comes from there.
var unreachable4 = special.Privates4()

// Advice returns a sentence for each setting that works and that an RFC advises
// against, for the operator to read.
func (s *Settings) Advice() (sentences []string) {
	for _, pool := range s.Pool4 {
		for _, bad := range unreachable4 {
			if bad.Overlaps(pool) {
				sentences = append(sentences, fmt.Sprintf(
					"Pool %s holds private addresses; ICMP errors from there are often filtered. Choose public ones (RFC 6791 section 3.1).", pool))
			}
		}
	}
	wellKnown := false
	for i := range s.Prefixes {
		wellKnown = wellKnown || s.Prefixes[i].wellKnown
	}
	if wellKnown && len(s.Prefixes) == 1 && (s.Mappings == nil || len(s.Mappings.rows) == 0) {
		sentences = append(sentences, fmt.Sprintf(
			"Only %s translates, so IPv6 nodes need addresses in it, which should not be given out. Add a prefix of your own, or explicit mappings (RFC 6052 section 3.1).", WellKnownPrefix))
	}
	if wellKnown && s.NonGlobal {
		sentences = append(sentences, fmt.Sprintf(
			"%s carries non-global IPv4 addresses, which RFC 6052 section 3.1 forbids. Let no such packet leave your network.", WellKnownPrefix))
	}
	return sentences
}
