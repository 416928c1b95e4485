// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strings"
	"time"
)

// Choices of the NAT boxes.
const (
	// natLoad bounds the loading of a ruleset.
	natLoad = 20 * time.Second
	// defaultMapping is the mapping timeout RFC 4787 (REQ-5) recommends.
	defaultMapping = 300 * time.Second
	// Sequential ports: the first, and how many before they start again.
	sequentialBase  = 20000
	sequentialPorts = 200
	// randomPorts is where the later mappings of a port-preserving symmetric
	// NAT come from.
	randomPorts = "40000-60000"
)

// ruleset gives the nftables rules of a completed config as text for nft 1.0.6
// and later. Every NAT is one table:
//
//   - set and map declarations that remember mappings and remote addresses;
//   - input: what no mapping takes is dropped, if wanted;
//   - learn: what inner hosts send is remembered;
//   - pre: what comes from outside is let in by the filter of the kind. The
//     kernel lets exact answers in by itself;
//   - post: outgoing packets get the external address and a port.
func (c NATConfig) ruleset() string {
	r := rules{outside: fmt.Sprintf("%q", c.Outside), inside: quoteAll(c.Inside), external: c.External.String()}
	r.timeout = fmt.Sprintf("%ds", int(c.Timeout/time.Second))

	r.line("table ip nat_box {")
	r.memory(c)
	if c.InputDrop {
		r.line("\tchain input { type filter hook input priority 0; policy accept;")
		r.line("\t\tiifname %s meta l4proto udp drop", r.outside)
		r.line("\t}")
	}
	r.incoming(c)
	r.outgoing(c)
	r.line("}")
	return r.text.String()
}

// rules collects the text of a ruleset.
type rules struct {
	text                               strings.Builder
	outside, inside, external, timeout string
}

func (r *rules) line(format string, args ...any) { fmt.Fprintf(&r.text, format+"\n", args...) }

// learnsOwner reports whether packets from outside or from another inner host
// must find the inner host by the external port alone.
func (c NATConfig) learnsOwner() bool {
	return c.Kind == FullCone || c.Kind == AddressRestricted || c.Hairpin
}

// memory declares what the box remembers and the chain that learns it. Ports
// are preserved by these kinds, so that the inner port is the external one.
func (r *rules) memory(c NATConfig) {
	if c.learnsOwner() {
		r.line("\tmap owner { type inet_service : ipv4_addr; flags dynamic,timeout; timeout %s; }", r.timeout)
	}
	if c.Kind == AddressRestricted {
		r.line("\tset seen { type inet_service . ipv4_addr; flags dynamic,timeout; timeout %s; }", r.timeout)
	}
	if c.Kind == SymmetricPreserving {
		r.line("\tset used { type ipv4_addr . inet_service; flags dynamic,timeout; timeout %s; }", r.timeout)
	}
	if !c.learnsOwner() {
		return
	}
	r.line("\tchain learn { type filter hook forward priority 0; policy accept;")
	r.line("\t\toifname %s meta l4proto udp update @owner { udp sport : ip saddr }", r.outside)
	if c.Kind == AddressRestricted {
		r.line("\t\toifname %s meta l4proto udp update @seen { udp sport . ip daddr }", r.outside)
	}
	r.line("\t}")
}

// incoming lets packets in.
func (r *rules) incoming(c NATConfig) {
	if !c.learnsOwner() {
		return
	}
	r.line("\tchain pre { type nat hook prerouting priority -100; policy accept;")
	switch c.Kind {
	case FullCone:
		r.line("\t\tiifname %s ip daddr %s meta l4proto udp dnat to udp dport map @owner", r.outside, r.external)
	case AddressRestricted:
		r.line("\t\tiifname %s ip daddr %s udp dport . ip saddr @seen dnat to udp dport map @owner", r.outside, r.external)
	}
	if c.Hairpin {
		r.line("\t\tiifname %s ip daddr %s meta l4proto udp dnat to udp dport map @owner", r.inside, r.external)
	}
	r.line("\t}")
}

// outgoing translates what leaves.
func (r *rules) outgoing(c NATConfig) {
	r.line("\tchain post { type nat hook postrouting priority 100; policy accept;")
	if c.Hairpin {
		r.line("\t\tiifname %s oifname %s meta l4proto udp ct status dnat snat to %s", r.inside, r.inside, r.external)
	}
	switch c.Kind {
	case SymmetricRandom:
		r.line("\t\toifname %s masquerade fully-random", r.outside)
	case SymmetricSequential:
		r.line("\t\toifname %s meta l4proto udp snat ip to numgen inc mod %d map { %s }", r.outside, sequentialPorts, r.sequence())
		r.line("\t\toifname %s masquerade", r.outside)
	case SymmetricPreserving:
		r.line("\t\toifname %s meta l4proto udp ip saddr . udp sport @used masquerade to :%s fully-random", r.outside, randomPorts)
		r.line("\t\toifname %s meta l4proto udp add @used { ip saddr . udp sport } masquerade", r.outside)
		r.line("\t\toifname %s masquerade", r.outside)
	default:
		r.line("\t\toifname %s masquerade", r.outside)
	}
	r.line("\t}")
}

// sequence lists the endpoints of a sequential NAT.
func (r *rules) sequence() string {
	entries := make([]string, sequentialPorts)
	for i := range entries {
		entries[i] = fmt.Sprintf("%d : %s . %d", i, r.external, sequentialBase+i)
	}
	return strings.Join(entries, ", ")
}

func quoteAll(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = fmt.Sprintf("%q", n)
	}
	return "{ " + strings.Join(quoted, ", ") + " }"
}
