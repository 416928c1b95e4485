// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Delegations has the prefix that the terminal of one link may have for what is behind it
// (RFC 8415 section 6.3). The server asks for each IA_PD of a message.
type Delegations interface {
	// Delegate does a step for an association. ok is false if there is no prefix for it, or
	// of the steps from Extend on no binding.
	Delegate(Step, Association) (d Delegated, ok bool)
}

// Step is what a client wants of an association (RFC 8415 section 18.3).
type Step uint8

// The steps.
const (
	Offer   Step = iota // to be told what it would get
	Commit              // to have it from now on
	Extend              // to keep it
	Release             // to have it no more
	Look                // nothing yet: the server asks what it has
)

// Association is an IA_PD of a client: who it is, and which of its own.
type Association struct {
	Client []byte // the DUID
	IAID   uint32
	// Exclude says that the client knows of prefixes that are left out (RFC 6603 section 5.1).
	Exclude bool
	// Beside are the IAIDs of all in the same message, itself included.
	Beside []uint32
}

// Delegated is a prefix with its lifetime, from now on.
type Delegated struct {
	Prefix netip.Prefix
	// Excluded is the /64 of the link, if it is within Prefix (RFC 6603 section 4.2); not
	// valid: it is not.
	Excluded netip.Prefix
	Lifetime time.Duration
}

const (
	// MaxAssociations is how many a message may have: an answer to all fits a packet.
	MaxAssociations = 8
	// longestAssociation is an answer to one: with a prefix and what is left out of it.
	longestAssociation = 4 + 12 + 4 + 25 + 4 + 1 + 8
)

// association is an IA of a message, with the options behind its times, which are whole.
type association struct {
	code    uint16
	iaid    uint32
	options []byte
}

// addAssociation notes an IA (RFC 8415 sections 21.4, 21.5 and 21.21), whose options must be
// whole. Those beyond the bound are counted.
func (q *question) addAssociation(code uint16, v []byte) bool {
	fixed := 12
	if code == OptionIATA {
		fixed = 4
	}
	if len(v) < fixed || !wholeOptions(v[fixed:], code == OptionIAPD) {
		return false
	}
	if q.count < len(q.associations) {
		q.associations[q.count] = association{code, binary.BigEndian.Uint32(v), v[fixed:]}
	}
	q.count++
	return true
}

// prefixIAIDs are those of the associations that ask for prefixes.
func (q *question) prefixIAIDs() (list []uint32) {
	for _, a := range q.associations[:q.count] {
		if a.code == OptionIAPD {
			list = append(list, a.iaid)
		}
	}
	return list
}

// wholeOptions reports whether options within another are. Prefixes have room for what they
// say.
func wholeOptions(b []byte, prefixes bool) bool {
	for len(b) > 0 {
		if len(b) < 4 || len(b) < 4+int(binary.BigEndian.Uint16(b[2:])) {
			return false
		}
		end := 4 + int(binary.BigEndian.Uint16(b[2:]))
		if prefixes && binary.BigEndian.Uint16(b) == OptionPrefix {
			const fixed = 4 + 25
			if end < fixed || b[12] > 128 || !wholeOptions(b[fixed:end], false) {
				return false
			}
		}
		b = b[end:]
	}
	return true
}

// checkStateful applies RFC 8415 sections 16.2 to 16.9 to a message about associations.
// Addresses are made from advertisements alone (RFC 6459 section 5.2), so that there is
// nothing to confirm or decline.
func (r *Router) checkStateful(q *question) Verdict {
	named := q.kind == MessageRequest || q.kind == MessageRenew || q.kind == MessageRelease
	switch {
	case q.kind == MessageConfirm, q.kind == MessageDecline:
		return DHCPStateful
	case q.client == nil, named != (q.server != nil):
		return DHCPMalformed
	case named && string(q.server) != string(r.server):
		return DHCPOtherServer
	case q.count > MaxAssociations:
		return DHCPTooMany
	}
	return none
}

// stateful answers a message about prefixes.
func (r *Router) stateful(b []byte, l Link, to netip.Addr, q *question) ([]byte, Verdict) {
	if v := r.checkStateful(q); v != none {
		return b, v
	}
	start := len(b)
	b = r.beginReply(b, to, q)
	step := Extend
	switch {
	case q.kind == MessageSolicit && !q.rapid:
		step = Offer
	case q.kind == MessageSolicit, q.kind == MessageRequest:
		step = Commit
	case q.kind == MessageRelease:
		step = Release
		b = appendStatus(b, 0)
	}
	given, beside := false, q.prefixIAIDs()
	for _, a := range q.associations[:q.count] {
		if a.code != OptionIAPD {
			b = appendNone(b, a, step)
			continue
		}
		of := Association{q.client[4:], a.iaid, q.exclude, beside}
		var d Delegated
		var ok bool
		if step == Release {
			ok = a.release(l.Delegations, of)
		} else {
			d, ok = l.Delegations.Delegate(step, of)
		}
		given = given || ok
		switch {
		case !ok:
			b = appendNone(b, a, step)
		case step != Release:
			b = appendDelegated(b, a, d)
		}
	}
	switch {
	case q.kind != MessageSolicit || !given:
	case q.rapid: // RFC 8415 section 18.3.1
		b[start+packet.IPv6HeaderLen+packet.UDPHeaderLen] = MessageReply
		b = appendOption(b, OptionRapidCommit, 0)
	default: // the link has two ends: there is no other server to wait for
		b = append(appendOption(b, OptionPreference, 1), MostPreferred)
	}
	v := DHCPReplied
	if given {
		v = DHCPDelegated
	}
	return r.endReply(b, start, q), v
}

// appendNone appends an association for which there is nothing, and why (RFC 8415 sections
// 18.3.2 to 18.3.7).
func appendNone(b []byte, a association, s Step) []byte {
	status, fixed := uint16(StatusNoAddresses), 12
	if a.code == OptionIAPD {
		status = StatusNoPrefixes
	}
	if s >= Extend {
		status = StatusNoBinding
	}
	if a.code == OptionIATA {
		fixed = 4
	}
	b = binary.BigEndian.AppendUint32(appendOption(b, a.code, fixed+6), a.iaid)
	return appendStatus(append(b, make([]byte, fixed-4)...), status)
}

func appendStatus(b []byte, status uint16) []byte {
	return binary.BigEndian.AppendUint16(appendOption(b, OptionStatus, 2), status)
}

// appendDelegated appends an association with its prefix, to be extended after half of its
// lifetime (RFC 8415 sections 21.21 and 21.22).
func appendDelegated(b []byte, a association, d Delegated) []byte {
	seconds := uint32(d.Lifetime / time.Second)
	raw, excluded := d.Prefix.Addr().As16(), AppendExcluded(nil, d.Prefix, d.Excluded)
	b = binary.BigEndian.AppendUint32(appendOption(b, OptionIAPD, 12+4+25+len(excluded)), a.iaid)
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, seconds/2), uint32(uint64(seconds)*4/5))
	b = appendOption(b, OptionPrefix, 25+len(excluded))
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, seconds), seconds)
	b = append(append(b, byte(d.Prefix.Bits())), raw[:]...)
	return append(b, excluded...)
}
