// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate/siit"
)

// Status is the status of a stateless translator.
type Status struct {
	// State is starting, serving, device_down while someone has set the device down,
	// incomplete while something is missing that the translator has set up itself, or
	// blocked while this host lets no packet pass, for the reasons that Blocked has.
	State   string   `json:"state"`
	Blocked []string `json:"blocked,omitempty"`
	// Missing is what should be on the host and is not, be it to be set up by the translator
	// or, with route off, by others.
	Missing []string `json:"missing,omitempty"`
	// Interface is the TUN device.
	Interface string `json:"interface"`
	// Pool6 and Pool4 are what is translated beside the mappings.
	Pool6 []netip.Prefix `json:"pool6"`
	Pool4 []netip.Prefix `json:"pool4"`
	// Mappings is the number of explicit mappings.
	Mappings int     `json:"mappings"`
	Hairpin  Hairpin `json:"hairpin"`
	// Address4 and Address6 are the sources of ICMP errors, if there are any.
	Address4 netip.Addr `json:"address4,omitzero"`
	Address6 netip.Addr `json:"address6,omitzero"`
	// Workers is how many queues the device has, once it is open.
	Workers int `json:"workers"`
	// FastPath says which way plain packets take.
	FastPath driver.Status `json:"fast_path"`
}

// Status implements [role.Instance]; it returns a [Status].
func (s *SIIT) Status() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	passage := s.passage()
	st := Status{
		Blocked: passage.Closed, Interface: s.cfg.Interface, Pool6: slices.Clone(s.cfg.Pool6), Pool4: slices.Clone(s.cfg.Pool4),
		Mappings: len(s.mappings(&s.cfg, s.file)), Hairpin: s.cfg.Hairpin,
	}
	st.Address4, st.Address6 = s.own.Sources(&s.cfg.Translation)
	st.State, st.Missing = s.device.State(&passage)
	_, st.Workers = s.device.Stats()
	st.FastPath = s.fast.Status()
	return st
}

// stats are the engine's counters.
func (s *SIIT) stats() (st siit.Stats) {
	s.loop.Do(func(time.Time, *packet.Batch) { st = s.engine.Stats() })
	return st
}

// Collect implements [role.Instance].
func (s *SIIT) Collect(emit func(role.Metric)) {
	st := s.stats()
	emit(role.Count("from_ipv4_total", "Packets that the engine received from IPv4.", st.FromIPv4))
	emit(role.Count("from_ipv6_total", "Packets that the engine received from IPv6.", st.FromIPv6))
	emit(role.Count("to_ipv4_total", "Packets that the engine sent to IPv4.", st.ToIPv4))
	emit(role.Count("to_ipv6_total", "Packets that the engine sent to IPv6.", st.ToIPv6))
	emit(role.Count("hairpinned_total", "Packets that went from one IPv6 host to another.", st.Hairpinned))
	emit(role.Count("icmp_errors_total", "ICMP errors sent by the translator itself.", st.ErrorsSent))
	emit(role.Count("icmp_errors_suppressed_total", "ICMP errors not sent, by their rate or class.", st.ErrorsSuppressed))
	st.EachDropped(func(reason string, n uint64) { emit(role.Dropped(reason, n)) })
	s.fast.Collect(emit)
	tun, _ := s.device.Stats()
	loop.CollectPort(emit, "tun", tun)
}
