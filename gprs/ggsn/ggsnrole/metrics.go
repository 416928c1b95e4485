// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
)

// Collect implements [role.Instance].
func (g *GGSN) Collect(emit func(role.Metric)) {
	var s ggsn.Stats
	var sizes ggsn.Sizes
	g.do(func(e *ggsn.Engine, _ time.Time, _ *ggsn.Output) { s, sizes = e.Stats(), e.Sizes() })
	up, down := g.fast.carried()
	s.Up, s.Down = s.Up.Plus(up), s.Down.Plus(down)
	collectControl(&s, emit)
	collectUser(&s, emit)
	emit(role.Level("contexts", "PDP contexts.", float64(sizes.Contexts)))
	emit(role.Level("sessions", "Terminals' sessions, of one context or more each.", float64(sizes.Sessions)))
	emit(role.Level("sgsns", "Nodes at the other end that are remembered.", float64(sizes.Peers)))
	emit(role.Level("requests_waiting", "Requests of the node that wait for an answer.", float64(sizes.Requests)))
	collectPools(emit, "pool_addresses", "Addresses and prefixes of the pools, by access point with the family, and what they are.", sizes.Pools)
	collectPools(emit, "pool_part_addresses", "The same of each part of a pool with named_pools.", sizes.Parts)
	emit(role.Level("delegated_prefixes", "Contexts with a delegated prefix.", float64(sizes.Delegated)))
	emit(role.Level("former_prefixes", "IPv6 prefixes that contexts had before, and have until their time is over.", float64(sizes.Former)))
	emit(role.Count("renumbered_total", "IPv6 prefixes that contexts got in place of those of a pool that was taken away.", s.Renumbered))
	emit(role.Count("renumber_waits_total", "Times that no prefix was free for one of these; the next advertisement tries again.", s.RenumberWaits))
	emit(role.Count("delegations_refused_total", "Prefixes that clients of DHCPv6 did not get, since those of their terminal come and go too often.", s.DelegationsRefused))
	emit(role.Count("named_pools_unknown_total", "Pools that RADIUS servers named and that an access point has not; the context was refused.", s.PoolsUnknown))
	emit(role.Count("pco_unanswered_total", "Protocol configuration options of terminals that get no answer here.", s.OptionsUnanswered))
	emit(role.Count("pco_unknown_total", "Protocol configuration options of terminals that the node does not know.", s.OptionsUnknown))
	for f := range ggsn.RouteFault(ggsn.NumRouteFaults) {
		emit(role.Metric{Name: "routes_refused_total", Kind: role.Counter, Help: "Networks behind terminals that RADIUS servers named and that were not given, by reason.", Reason: f.String(), Value: float64(s.RoutesRefused[f])})
	}
	g.radius.Load().collect(emit, &s, sizes.Waiting)
	g.accounts.Load().collect(emit)
	g.charges.collect(emit, &s)
	g.dynamic.Load().collect(emit)
	emit(role.Count("log_lines_lost_total", "Events that the log was too slow for.", g.events.Lost()))
	eachDropped(&s, func(reason string, n uint64) { emit(role.Dropped(reason, n)) })
	g.fast.Collect(emit)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cfg.collectAlarms(emit, "pool_alarm", "1 while more of a pool is taken, or rests, than pool_alarm has.", sizes.Pools)
	g.cfg.collectAlarms(emit, "pool_part_alarm", "The same of each part of a pool with named_pools.", sizes.Parts)
	loop.CollectPort(emit, "udp", g.sockets.stats())
	var tun port.Stats
	for _, n := range g.networks {
		tun = tun.Plus(n.device.Stats())
	}
	loop.CollectPort(emit, "tun", tun)
}

// collectPools reports how full pools are, or parts of them.
func collectPools(emit func(role.Metric), name, help string, pools []ggsn.PoolSize) {
	for _, p := range pools {
		for _, of := range []struct {
			what  string
			value uint64
		}{{"used", p.Used}, {"held", p.Held}, {"free", p.Free}, {"leaving", p.Leaving}} {
			if of.what == "leaving" && p.Part != "" {
				continue // such addresses are of no part any more
			}
			emit(role.Metric{Name: name, Kind: role.Gauge, Help: help, Reason: label(&p), Verdict: of.what, Value: float64(of.value)})
		}
	}
}

// collectAlarms reports which of them are too full.
func (s *Settings) collectAlarms(emit func(role.Metric), name, help string, pools []ggsn.PoolSize) {
	for _, p := range pools {
		on := 0.0
		if s.alarmed(&p) {
			on = 1
		}
		emit(role.Metric{Name: name, Kind: role.Gauge, Help: help, Reason: label(&p), Value: on})
	}
}

// label names a pool, or a part of it.
func label(p *ggsn.PoolSize) string {
	if p.Part == "" {
		return p.APN + " " + family(p.IPv6)
	}
	return p.APN + " " + family(p.IPv6) + " " + p.Part
}

// collectControl reports what was asked and answered.
func collectControl(s *ggsn.Stats, emit func(role.Metric)) {
	emit(role.Count("contexts_created_total", "PDP contexts created.", s.Created))
	emit(role.Count("contexts_updated_total", "PDP contexts updated.", s.Updated))
	for end := range ggsn.End(ggsn.NumEnds) {
		emit(role.Metric{Name: "contexts_ended_total", Kind: role.Counter, Help: "PDP contexts ended, by reason.", Reason: end.String(), Value: float64(s.Ended[end])})
	}
	for cause, n := range s.Answers {
		if n > 0 {
			emit(role.Metric{Name: "answers_total", Kind: role.Counter, Help: "Answers to requests of SGSNs, by cause.", Reason: causeLabel(gtp.Cause(cause)), Value: float64(n)})
		}
	}
	emit(role.Count("answers_repeated_total", "Answers sent again, since the request came again.", s.Repeated))
	emit(role.Count("requests_total", "Requests that the node sent.", s.Requests))
	emit(role.Count("requests_repeated_total", "Of these, those sent again.", s.Retries))
	emit(role.Count("requests_unanswered_total", "Requests of the node that nobody answered.", s.Unanswered))
	emit(role.Count("echoes_total", "Echo Requests answered.", s.Echoes))
	emit(role.Count("error_indications_sent_total", "Error Indications sent.", s.Indications))
	emit(role.Count("error_indications_received_total", "Error Indications received.", s.IndicationsReceived))
	emit(role.Count("versions_refused_total", "Answers of Version Not Supported.", s.VersionsRefused))
	emit(role.Count("sgsn_restarts_total", "SGSNs that have restarted.", s.Restarts))
	emit(role.Count("sgsn_restarts_doubted_total", "Restart counters of SGSNs lower than before, which one has to confirm when it is asked.", s.RestartsDoubted))
	emit(role.Count("paths_down_total", "SGSNs that did not answer any more.", s.PathsDown))
	emit(role.Count("elements_passed_over_total", "Elements of messages that mean nothing here.", s.ElementsPassedOver))
}

// causeLabel is the name of a cause in the form of other reasons.
func causeLabel(c gtp.Cause) string { return strings.ReplaceAll(strings.ToLower(c.String()), " ", "_") }

// collectUser reports what terminals sent and got.
func collectUser(s *ggsn.Stats, emit func(role.Metric)) {
	emit(role.Count("up_packets_total", "Packets from terminals.", s.Up.Packets))
	emit(role.Count("up_octets_total", "Octets of these.", s.Up.Octets))
	emit(role.Count("down_packets_total", "Packets to terminals.", s.Down.Packets))
	emit(role.Count("down_octets_total", "Octets of these.", s.Down.Octets))
	emit(role.Count("end_markers_total", "Ends of tunnels that were marked.", s.EndMarkers))
	for v := link.Verdict(1); int(v) < link.NumVerdicts; v++ {
		emit(role.Metric{Name: "link_messages_total", Kind: role.Counter, Help: "Messages of terminals to the router of their link, by what became of them.", Reason: v.String(), Value: float64(s.Link[v])})
	}
	emit(role.Count("router_advertisements_total", "Router advertisements that nobody asked for.", s.Adverts))
	emit(role.Count("icmp_errors_total", "ICMP errors sent.", s.ICMPErrors))
	emit(role.Count("icmp_errors_withheld_total", "ICMP errors not sent, by their rate.", s.ICMPLimited))
	emit(role.Count("ecn_odd_total", "G-PDUs of terminals whose ECN fields, outside and inside, no known tunnel makes. RFC 6040, section 4.2.", s.ECNOdd))
	emit(role.Count("mss_clamped_total", "TCP segments whose MSS was lowered.", s.Clamped))
}

// eachDropped calls f for every drop reason, in a fixed order.
func eachDropped(s *ggsn.Stats, f func(reason string, n uint64)) {
	for r := 1; r < ggsn.NumReasons; r++ {
		f(ggsn.Reason(r).String(), s.Dropped[r])
	}
}
