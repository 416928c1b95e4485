// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/translate"
)

// Check says what is wrong with the settings.
func (s *Settings) Check() error {
	for _, check := range []func() error{s.checkPool6, s.checkPool4, s.checkClients, s.Timers.check, s.Limits.check, s.checkDetour} {
		if err := check(); err != nil {
			return err
		}
	}
	if s.FilterTCP > AddressDependent || s.FilterUDP > AddressDependent || s.FilterICMP > AddressDependent {
		return errors.New("unknown filtering; choose endpoint-independent or address-dependent")
	}
	if s.Deterministic != nil {
		if err := s.Deterministic.check(); err != nil {
			return err
		}
	}
	_, err := translate.New(s.Translate)
	return err
}

func (s *Settings) checkPool6() error {
	switch n := len(s.Translate.Prefixes); {
	case n == 0:
		return fmt.Errorf("pool6 is empty; write a prefix, for instance %s", translate.WellKnownPrefix)
	case n > MaxPrefixes:
		return fmt.Errorf("pool6 has %d prefixes; %d is the most", n, MaxPrefixes)
	case s.Translate.Mappings != nil:
		return errors.New("a NAT64 has no explicit mappings; use static bindings")
	}
	return nil
}

func (s *Settings) checkPool4() error {
	if len(s.Pool4) == 0 {
		return errors.New("pool4 is empty; write an IPv4 address that is routed to this host")
	}
	for i, r := range s.Pool4 {
		if err := r.Check(); err != nil {
			return err
		}
		for _, other := range s.Pool4[:i] {
			if r.overlaps(other) {
				return fmt.Errorf("pool4: %s overlaps %s; remove one of them", r, other)
			}
			if r.Own != other.Own && r.Prefix.Overlaps(other.Prefix) {
				return fmt.Errorf("pool4: %s is the host's own and not its own at once", r.Prefix)
			}
		}
	}
	if _, err := poolAddresses(s.Pool4); err != nil {
		return err
	}
	return nil
}

// Check says what is wrong with one range.
func (r Range) Check() error {
	first, last := r.ports()
	switch {
	case !r.Prefix.IsValid() || !r.Prefix.Addr().Is4():
		return fmt.Errorf("pool4: %s is no IPv4 address or prefix", r.Prefix)
	case r.Prefix.Masked() != r.Prefix:
		return fmt.Errorf("pool4: %s has bits set behind its length; write %s", r.Prefix, r.Prefix.Masked())
	case !translate.Forwarded(r.Prefix.Addr()):
		return fmt.Errorf("pool4: %s holds no addresses that packets are forwarded to", r.Prefix)
	case first > last:
		return fmt.Errorf("pool4: %s: the ports %d-%d are in the wrong order", r.Prefix, first, last)
	case r.Transports > AllTransports:
		return fmt.Errorf("pool4: %s names an unknown transport", r.Prefix)
	}
	return nil
}

// ports returns the range with its default.
func (r Range) ports() (first, last int) {
	if r.First == 0 && r.Last == 0 {
		return 1024, 65535
	}
	return int(r.First), int(r.Last)
}

// transports returns the set with its default.
func (r Range) transports() Transports {
	if r.Transports == 0 {
		return AllTransports
	}
	return r.Transports
}

// String returns the range as an operator would write it.
func (r Range) String() string {
	first, last := r.ports()
	return fmt.Sprintf("%s %d-%d", r.Prefix, first, last)
}

func (r Range) overlaps(o Range) bool {
	first, last := r.ports()
	otherFirst, otherLast := o.ports()
	return r.Prefix.Overlaps(o.Prefix) && first <= otherLast && otherFirst <= last && r.transports()&o.transports() != 0
}

func (s *Settings) checkClients() error {
	if len(s.Clients) == 0 {
		return errors.New("no clients may use this NAT64; write their prefixes")
	}
	for _, c := range s.Clients {
		switch {
		case !c.IsValid() || !c.Addr().Is6() || c.Addr().Is4In6():
			return fmt.Errorf("clients: %s is no IPv6 prefix", c)
		case c.Masked() != c:
			return fmt.Errorf("clients: %s has bits set behind its length; write %s", c, c.Masked())
		}
	}
	return nil
}

func (t *Timers) check() error {
	for _, e := range t.list() {
		if e.value < 0 || e.least > 0 && e.value == 0 {
			return fmt.Errorf("the timer of %s is %v; write at least a second", e.name, e.value)
		}
		if e.value > 365*24*time.Hour {
			return fmt.Errorf("the timer of %s is %v, more than a year", e.name, e.value)
		}
	}
	return nil
}

// timer is one row of section 4 with its floor and where that comes from.
type timer struct {
	name         string
	value, floor time.Duration
	least        time.Duration // above 0: it may not be 0
	from         string
}

func (t *Timers) list() []timer {
	return []timer{
		{"UDP sessions", t.UDP, 2 * time.Minute, 1, "RFC 6146 section 4, UDP_MIN"},
		{"established TCP connections", t.TCPEstablished, 2 * time.Hour, 1, "RFC 6146 section 4, TCP_EST"},
		{"TCP connections that end", t.TCPTransitory, 4 * time.Minute, 1, "RFC 6146 section 4, TCP_TRANS"},
		{"TCP connections that begin", t.opening(), 4 * time.Minute, 1, "RFC 6146 section 4, TCP_TRANS"},
		{"incoming SYNs", t.IncomingSYN, 6 * time.Second, 1, "RFC 6146 section 4, TCP_INCOMING_SYN"},
		{"ICMP queries", t.ICMP, time.Minute, 1, "RFC 6146 section 4, ICMP_DEFAULT"},
		{"fragments", t.Fragments, 2 * time.Second, 1, "RFC 6146 section 4, FRAGMENT_MIN"},
		{"expected connections", t.Expected, 30 * time.Second, 1, "RFC 6384 section 6"},
		{"port quarantine", t.Quarantine, 2 * time.Minute, 0, "RFC 6888 REQ-8"},
	}
}

// opening returns the lifetime of connections that begin.
func (t *Timers) opening() time.Duration {
	if t.TCPOpening == 0 {
		return t.TCPTransitory
	}
	return t.TCPOpening
}

func (l *Limits) check() error {
	switch {
	case l.ClientSessions < 0 || l.StoredSYNs < 0 || l.StoredSYNsSource < 0 || l.FragmentPackets < 0 || l.FragmentPacketsSource < 0 || l.FragmentMemory < 0 || l.FragmentMemorySource < 0:
		return errors.New("a limit of the NAT64 is negative; 0 is none at all, or no limit for sessions of a client")
	case l.ClientBlocks < 1 || l.ClientBlocks > maxBlocks:
		return fmt.Errorf("a client may have 1 to %d blocks of ports, not %d", maxBlocks, l.ClientBlocks)
	case l.StoredSYNs > 1<<20 || l.FragmentPackets > 1<<20 || l.FragmentMemory > 1<<30:
		return errors.New("too much memory for SYNs or fragments that wait; 2^20 of each and 1 GiB are the most")
	case l.SweepSlice < 1:
		return errors.New("a sweep looks at no session at all; write at least 1")
	}
	return nil
}

// Advice returns a sentence for each setting that works and that an RFC advises
// against, for the operator to read.
func (s *Settings) Advice() []string {
	var sentences []string
	for _, t := range s.Timers.list() {
		if t.value < t.floor {
			sentences = append(sentences, fmt.Sprintf("The timer of %s is %v; it should be at least %v (%s).", t.name, t.value, t.floor, t.from))
		}
	}
	if slices.ContainsFunc(s.Clients, func(c netip.Prefix) bool { return c.Bits() < 8 }) {
		sentences = append(sentences, "Nearly everybody may use this NAT64; others will send in your name. Name your own prefixes as clients (RFC 6146 section 5).")
	}
	if s.Translate.UDPZeroChecksum != translate.ZeroChecksumCompute {
		sentences = append(sentences, "UDP packets without a checksum are not translated; a stateful translator has to compute one (RFC 6146 section 3.4).")
	}
	if s.Limits.FragmentPackets == 0 || s.Limits.FragmentMemory == 0 {
		sentences = append(sentences, "Fragments that come out of order are dropped; a NAT64 has to handle them (RFC 6146 section 3.4).")
	}
	if s.DropICMPInfo {
		sentences = append(sentences, "Pings are dropped; a NAT has to let them pass (RFC 5508 REQ-1).")
	}
	if s.FilterTCP == EndpointIndependent && s.DropExternalTCP {
		sentences = append(sentences, "Connections from the IPv4 side are dropped, so simultaneous open fails too (RFC 5382 REQ-2).")
	}
	return sentences
}

func (s *Settings) checkDetour() error {
	p := s.DetourPrefix
	if !p.IsValid() {
		return nil
	}
	if p.Bits() != 64 || !p.Addr().Is6() || p.Masked() != p {
		return fmt.Errorf("the detour prefix %s is no IPv6 /64", p)
	}
	for i := range s.Translate.Prefixes {
		if s.Translate.Prefixes[i].Prefix().Overlaps(p) {
			return fmt.Errorf("the detour prefix %s overlaps pool6 %s; choose another", p, s.Translate.Prefixes[i].Prefix())
		}
	}
	return nil
}
