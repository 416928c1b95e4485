// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"github.com/isthmus-net/isthmus/internal/packet"
)

// icmpReply is the ICMP error that a reason earns the sender. Without one it is silent.
type icmpReply struct {
	known        bool
	type4, code4 uint8
	type6, code6 uint8
	// unlessICMPv6: not about any ICMPv6 message (RFC 7915 section 5.4). The errors of
	// a plain router have no such rule, or path MTU discovery and traceroute would
	// fail for echo requests.
	unlessICMPv6 bool
}

// prohibited is the error where no rule names another (RFC 7915 sections 4.4, 5.4).
var prohibited = icmpReply{true, icmpUnreachable, codeAdminProhibited, packet.ICMPv6Unreachable, packet.UnreachableAdmin, true}

var icmpReplies = [numReasons]icmpReply{
	ReasonSourceRoute:         {known: true, type4: icmpUnreachable, code4: codeSourceRoute},
	ReasonSegmentsLeft:        {known: true, type6: packet.ICMPv6ParameterProblem},
	ReasonHopLimit:            {known: true, type4: icmpTimeExceeded, type6: packet.ICMPv6TimeExceeded},
	ReasonTooBig:              {known: true, type4: icmpUnreachable, code4: codeFragmentation, type6: packet.ICMPv6PacketTooBig},
	ReasonFragmentExtension:   prohibited,
	ReasonSourceUnmapped:      prohibited,
	ReasonDestinationUnmapped: prohibited,
	ReasonNonGlobal:           prohibited,
	ReasonMisplacedProtocol:   prohibited,
	ReasonUDPZeroChecksum:     prohibited,
	ReasonUDPZeroFragment:     prohibited,
	ReasonUDPLength:           prohibited,
	ReasonFragmentedICMP:      prohibited,
}

// reject4 returns the result for an IPv4 packet that was not translated, with the error
// that its sender may be sent (RFC 7915 section 4.4, RFC 1812 section 4.3.2.7).
func (t *Translator) reject4(h *header4, f fault, path Path, out *packet.Batch) Result {
	o := icmpReplies[f.reason]
	if !o.known || !t.own4.IsValid() {
		return Result{Verdict: Drop, Reason: f.reason}
	}
	b := t.error4(h, o.type4, o.code4, f.param, path, out)
	if len(b) == 0 {
		return Result{Verdict: Drop, Reason: f.reason}
	}
	return Result{Verdict: Error, Reason: f.reason, Error: b}
}

// error4 makes an ICMP error about a packet (RFC 792, RFC 1812 section 4.3.2); empty where
// none may be sent.
func (t *Translator) error4(h *header4, typ, code uint8, param uint32, path Path, out *packet.Batch) []byte {
	id := path.nextID(t.own4.As4(), h.src)
	return packet.AppendICMPv4Error(out.Alloc(maxError4), t.own4, id, typ, code, param, h.packet)
}

// reject6 is the IPv6 counterpart (RFC 7915 section 5.4, RFC 4443 section 2.4 e).
func (t *Translator) reject6(h *header6, f fault, out *packet.Batch) Result {
	o := icmpReplies[f.reason]
	if !o.known || !t.own6.IsValid() || o.unlessICMPv6 && h.proto == packet.ProtoICMPv6 {
		return Result{Verdict: Drop, Reason: f.reason}
	}
	b := packet.AppendICMPv6Error(out.Alloc(maxError6), t.own6, o.type6, o.code6, f.param, packet.IPv6(h.packet))
	if len(b) == 0 {
		return Result{Verdict: Drop, Reason: f.reason}
	}
	return Result{Verdict: Error, Reason: f.reason, Error: b}
}
