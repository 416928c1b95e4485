// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"time"

	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/teredo/relay"
)

// Collect implements [role.Instance].
func (r *Relay) Collect(emit func(role.Metric)) {
	var s relay.Stats
	var sizes relay.Sizes
	r.loop.Do(func(time.Time, *packet.Batch) { s, sizes = r.engine.Stats(), r.engine.Sizes() })
	emit(role.Count("from_ipv6_total", "Packets received from IPv6 hosts by the engine.", s.FromIPv6-s.HostMulticast))
	emit(role.Count("host_multicast_total", "Multicast packets of this host on the device, where no one listens.", s.HostMulticast))
	emit(role.Count("to_clients_total", "Packets sent to Teredo clients by the engine.", s.ToUDP))
	emit(role.Count("from_clients_total", "Datagrams received from Teredo clients by the engine.", s.FromUDP))
	emit(role.Count("to_ipv6_total", "Packets delivered to IPv6 hosts by the engine.", s.ToIPv6))
	emit(role.Count("bubbles_sent_total", "Bubbles sent through servers.", s.BubblesSent))
	emit(role.Count("bubbles_received_total", "Bubbles received from clients.", s.BubblesReceived))
	emit(role.Count("echo_copies_total", "Answers to connectivity tests sent through servers too.", s.EchoCopies))
	emit(role.Count("queued_total", "Packets that had to wait for their client.", s.Queued))
	emit(role.Count("flushed_total", "Waiting packets sent when their client answered.", s.Flushed))
	emit(role.Count("foreign_mappings_total", "Mappings of symmetric clients learnt by our key.", s.ForeignMappings))
	emit(role.Count("peers_unanswered_total", "Clients that answered no bubble.", s.PeersUnanswered))
	emit(role.Count("carried_total", "Packets carried from one client to another.", s.Carried))
	emit(role.Count("bindings_total", "Clients bound to be carried for, again or at another mapping.", s.Bindings))
	emit(role.Level("bound_clients", "Clients bound to be carried for.", float64(sizes.Bound)))
	emit(role.Count("icmpv6_errors_total", "ICMPv6 errors sent.", s.ErrorsSent))
	emit(role.Count("icmpv6_errors_suppressed_total", "ICMPv6 errors not sent, by their rate or for want of an address.", s.ErrorsSuppressed))
	emit(role.Count("peer_evictions_total", "Clients that lost their place to others.", sizes.Evictions))
	emit(role.Level("peers", "Clients in the table.", float64(sizes.Peers)))
	emit(role.Level("trusted_peers", "Clients with a proved mapping.", float64(sizes.Trusted)))
	emit(role.Level("foreign_peers", "Of these, clients whose mapping is not the one in their address.", float64(sizes.Foreign)))
	emit(role.Level("queued_bytes", "Bytes that wait for clients.", float64(sizes.QueuedBytes)))
	s.EachDropped(func(why relay.Reason, n uint64) { emit(role.Dropped(why.String(), n)) })
	r.fast.Collect(emit)

	r.mu.Lock()
	defer r.mu.Unlock()
	var udp port.Stats
	for _, conn := range r.conns {
		udp = udp.Plus(conn.Stats())
	}
	loop.CollectPort(emit, "udp", udp)
	loop.CollectPort(emit, "tun", r.device.Stats())
}
