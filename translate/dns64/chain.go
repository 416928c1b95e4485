// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import (
	"strings"

	"github.com/miekg/dns"
)

// maxChain bounds the aliases between a question and its data.
const maxChain = 16

// onlyAsked returns what of an answer section is about the question: the chain of CNAME and
// DNAME from its name, the records of its type at the chain's end, and what signs these. The
// rest no one has asked for, and clients would keep it.
func onlyAsked(a Ask, section []dns.RR) []dns.RR {
	asked := make([]bool, len(section))
	name := a.Name
	for range maxChain {
		next := aliasOf(name, section)
		for i, rr := range section {
			asked[i] = asked[i] || (rr.Header().Class == a.Class || a.Class == dns.ClassANY) && a.concerns(rr, name, next)
		}
		if next == "" || !a.follows() {
			break
		}
		name = next
	}
	var kept []dns.RR
	for i, rr := range section {
		if asked[i] {
			kept = append(kept, rr)
		}
	}
	return kept
}

// follows reports whether an alias leads on to the data (RFC 1034 section 4.3.2).
func (a Ask) follows() bool { return a.Type != dns.TypeCNAME && a.Type != dns.TypeANY }

// aliasOf returns the name that a name is an alias of; none is empty. By a DNAME above it is
// one only if it has no records itself.
func aliasOf(name string, section []dns.RR) (target string) {
	here := false
	for _, rr := range section {
		here = here || strings.EqualFold(rr.Header().Name, name)
		switch alias := rr.(type) {
		case *dns.CNAME:
			if strings.EqualFold(alias.Hdr.Name, name) {
				return alias.Target
			}
		case *dns.DNAME:
			if target == "" {
				target = substitute(alias, name)
			}
		}
	}
	if here {
		return ""
	}
	return target
}

// substitute returns a name with the owner of a DNAME replaced by its target (RFC 6672
// section 2.2); it is empty if the name is not below the owner.
func substitute(alias *dns.DNAME, name string) string {
	owner := alias.Hdr.Name
	if owner == "." || !dns.IsSubDomain(owner, name) || len(owner) >= len(name) {
		return ""
	}
	return name[:len(name)-len(owner)] + strings.TrimPrefix(alias.Target, ".")
}

// concerns reports whether a record belongs to the answer at a name of the chain, which is
// an alias of next if that is not empty.
func (a Ask) concerns(rr dns.RR, name, next string) bool {
	h := rr.Header()
	kind := h.Rrtype
	if signature, ok := rr.(*dns.RRSIG); ok && a.Type != dns.TypeRRSIG {
		kind = signature.TypeCovered
	}
	here := strings.EqualFold(h.Name, name)
	switch alias := rr.(type) {
	case *dns.CNAME:
		return here && strings.EqualFold(alias.Target, next)
	case *dns.DNAME:
		if next != "" && strings.EqualFold(substitute(alias, name), next) {
			return true
		}
	}
	switch {
	case kind == dns.TypeDNAME && !here: // the signature of one above
		return next != "" && dns.IsSubDomain(h.Name, name) && h.Rrtype == dns.TypeRRSIG
	case !here:
		return false
	case next != "" && a.follows():
		return kind == dns.TypeCNAME
	}
	return kind == a.Type || a.Type == dns.TypeANY || kind == dns.TypeCNAME
}
