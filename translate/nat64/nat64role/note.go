// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64"
)

// note is what a process leaves for a successor to know of its sessions, beside them.
type note struct {
	prefixes []translate.Prefix // of pool6, by the number that sessions have
	own      []nat64.Range      // the ports that were the translator's at addresses of this host
}

// maxNotedOwn is how many ranges there is room for.
const maxNotedOwn = 2 * maxOwnLeaving

// String returns it as words: 64:ff9b::/96, 192.0.2.1:20000-29999/7.
func (n note) String() string {
	var words []string
	for _, p := range n.prefixes {
		words = append(words, p.Prefix().String())
	}
	for _, r := range n.own[:min(len(n.own), maxNotedOwn)] {
		words = append(words, fmt.Sprintf("%s:%d-%d/%d", r.Prefix.Addr(), r.First, r.Last, r.Transports))
	}
	return strings.Join(words, " ")
}

// parseNote reads one. Of one that is damaged nothing is known.
func parseNote(text string) (n note) {
	for word := range strings.FieldsSeq(text) {
		if first, rest, is := strings.Cut(word, "-"); is {
			r, ok := parseOwn(first, rest)
			if !ok || len(n.own) == maxNotedOwn {
				return note{}
			}
			n.own = append(n.own, r)
			continue
		}
		p, err := netip.ParsePrefix(word)
		if err != nil {
			return note{}
		}
		prefix, err := translate.NewPrefix(p)
		if err != nil {
			return note{}
		}
		n.prefixes = append(n.prefixes, prefix)
	}
	return n
}

// parseOwn reads a range of ports from what is before its hyphen, and behind it.
func parseOwn(before, behind string) (r nat64.Range, ok bool) {
	at, err := netip.ParseAddrPort(before)
	last, set, _ := strings.Cut(behind, "/")
	to, err2 := strconv.ParseUint(last, 10, 16)
	transports, err3 := strconv.ParseUint(set, 10, 8)
	if err != nil || err2 != nil || err3 != nil || !at.Addr().Is4() {
		return r, false
	}
	r = nat64.Range{
		Prefix: netip.PrefixFrom(at.Addr(), 32), First: at.Port(), Last: uint16(to),
		Transports: nat64.Transports(transports), Own: true,
	}
	return r, r.Check() == nil && transports > 0 && r.First > 0
}
