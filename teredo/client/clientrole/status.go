// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"cmp"
	"context"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/trace"
	"github.com/isthmus-net/isthmus/teredo/client"
)

// Status is the status of a client.
type Status struct {
	// State is initial, starting, qualified, off_line, key_refused or dormant; and in the
	// place of qualified standby beside native IPv6, device_down while someone has set the device down, or incomplete
	// while something is missing that the client has set up.
	State string `json:"state"`
	// Missing is what should be on the host and is not.
	Missing []string `json:"missing,omitempty"`
	// Address is the Teredo address, while there is one.
	Address netip.Addr `json:"address,omitzero"`
	// Mapped is the IPv4 address and port by which the server sees the client.
	Mapped netip.AddrPort `json:"mapped,omitzero"`
	// Local is the service socket's address towards the server.
	Local netip.AddrPort `json:"local,omitzero"`
	// Server is the server in use.
	Server netip.Addr `json:"server,omitzero"`
	// NAT is the kind of NAT in the words of RFC 4787.
	NAT string `json:"nat,omitempty"`
	// Symmetric reports that the mapping depends on the destination.
	Symmetric bool `json:"symmetric_nat"`
	// Authenticated reports that the server has proved to have the client's key.
	Authenticated bool `json:"authenticated"`
	// PortMapping reports the port at the gateway; empty where none is wanted.
	PortMapping *PortMappingStatus `json:"port_mapping,omitempty"`
	// RefreshInterval is the longest time between messages to the server.
	RefreshInterval string `json:"refresh_interval"`
	// Fallback is the relay for peers that no direct way leads to, and
	// FallbackBound reports whether it carries for this client now.
	Fallback      netip.AddrPort `json:"fallback,omitzero"`
	FallbackBound bool           `json:"fallback_bound"`
	// Interface is the TUN device.
	Interface string `json:"interface"`
	// DeviceDown reports that someone set the device down; until it is up the
	// host cannot use its address.
	DeviceDown bool `json:"device_down,omitempty"`
	// Unsolicited is the policy for unsolicited inbound packets.
	Unsolicited string `json:"unsolicited"`
	// Via is the interface by which packets to the server leave the host.
	Via string `json:"via,omitempty"`
	// Servers are ranked, the best first.
	Servers []RankedServer `json:"servers,omitempty"`
	// FastPath reports the fast path; it is that of all paths.
	FastPath FastPath `json:"fast_path"`
	// Paths are there for a client with several interfaces.
	Paths []PathStatus `json:"paths,omitempty"`
	// Peers, how many of them are trusted, and the bytes that wait for others.
	Peers        int `json:"peers"`
	TrustedPeers int `json:"trusted_peers"`
	QueuedBytes  int `json:"queued_bytes"`
	// RandomPorts are open beside the service port.
	RandomPorts int `json:"random_ports"`
}

// standbyState is that of a client whose address is for those alone who bind to it.
const standbyState = "standby"

// snapshot returns the engine's state.
func (c *Client) snapshot() (s client.Snapshot, stats client.Stats) {
	c.loop.Do(func(time.Time, *client.Out) { s, stats = c.engine.Snapshot(), c.engine.Stats() })
	return s, stats
}

// Status implements [role.Instance]; it returns a [Status].
func (c *Client) Status() any {
	s, _ := c.snapshot()
	kept := c.dev.kept()
	st := Status{
		State: s.State.String(), Address: s.Address, Mapped: s.Mapping, Local: s.Local, Server: s.Server,
		Symmetric: s.NAT.Symmetric(), Authenticated: s.Authenticated,
		Interface: c.cfg.Interface, DeviceDown: kept.Down, Unsolicited: string(c.cfg.Unsolicited),
		RefreshInterval: s.Interval.String(), Fallback: c.cfg.Fallback,
		Peers: s.Peers, TrustedPeers: s.Trusted, QueuedBytes: s.Queued, RandomPorts: s.RandomPorts,
		Via: c.viaNow(), Servers: serverRanking(s.Servers),
	}
	st.Missing = kept.All()
	if s.State == client.Qualified {
		if s.Standby {
			st.State = standbyState
		}
		st.State = cmp.Or(kept.Word(), st.State)
		st.NAT = s.NAT.String()
		st.FallbackBound = s.Fallback.Until.After(time.Now())
	}
	st.PortMapping = c.ports.status()
	st.FastPath = c.dev.fast.status()
	return st
}

// Peers implements [role.PeerLister].
func (c *Client) Peers(limit int) (peers []role.Peer, total int) {
	c.loop.Do(func(time.Time, *client.Out) {
		total = c.engine.Peers(limit, func(p client.Peer) {
			peers = append(peers, role.Peer{
				Address: p.Address, Mapped: p.Mapped, Trusted: p.Trusted,
				LastReceived: p.Received, LastSent: p.Sent, Queued: p.Queued,
			})
		})
	})
	return peers, total
}

// Collect implements [role.Instance].
func (c *Client) Collect(emit func(role.Metric)) {
	snapshot, s := c.snapshot()
	qualified := 0.0
	if snapshot.State == client.Qualified {
		qualified = 1
	}
	emit(role.Level("qualified", "Whether the client has its Teredo address.", qualified))
	standby := 0.0
	if snapshot.Standby && snapshot.State == client.Qualified {
		standby = 1
	}
	emit(role.Level("standby", "Whether the client has its address for those alone who bind to it, beside native IPv6.", standby))
	emit(role.Level("peers", "Entries of the list of recent peers.", float64(snapshot.Peers)))
	emit(role.Level("trusted_peers", "Peers whose mapping is proved.", float64(snapshot.Trusted)))
	emit(role.Level("random_ports", "UDP ports open beside the service port.", float64(snapshot.RandomPorts)))
	emit(role.Level("queued_bytes", "Bytes that wait for a peer to be proved.", float64(snapshot.Queued)))
	for _, m := range []struct {
		name, help string
		value      uint64
	}{
		{"received_total", "UDP datagrams received.", s.Received},
		{"delivered_total", "IPv6 packets of peers given to the host.", s.Delivered},
		{"from_host_total", "IPv6 packets taken from the host.", s.FromStack},
		{"sent_total", "IPv6 packets of the host sent to peers.", s.Sent},
		{"solicitations_total", "Router solicitations sent.", s.Solicitations},
		{"advertisements_total", "Valid router advertisements received.", s.Advertisements},
		{"direct_bubbles_total", "Direct bubbles sent.", s.DirectBubbles},
		{"indirect_bubbles_total", "Indirect bubbles sent.", s.IndirectBubbles},
		{"bubbles_received_total", "Bubbles received.", s.BubblesReceived},
		{"echo_tests_total", "Echo requests sent to prove a relay.", s.EchoTests},
		{"discovery_bubbles_total", "Local discovery bubbles sent to the link.", s.DiscoveryBubbles},
		{"relayed_bubbles_total", "Bubbles sent to peers by relays.", s.RelayedBubbles},
		{"binding_requests_total", "Requests to relays to carry for this client.", s.BindingRequests},
		{"icmp_errors_total", "ICMPv6 errors given to the host.", s.ICMPErrors},
		{"random_ports_total", "UDP ports opened beside the service port.", s.RandomPorts},
		{"random_ports_refused_total", "UDP ports not opened, since all were in use or the system refused.", s.RandomPortsRefused},
		{"port_predictions_total", "Predictions of a port of the NAT begun.", s.PortPredictions},
		{"alternate_bubbles_total", "Bubbles sent to local addresses of clients behind the same NAT.", s.AlternateBubbles},
		{"peer_solicitations_total", "Direct questions to peers that were silent.", s.PeerSolicitations},
		{"evictions_total", "Peers that lost their place to others.", s.Evictions},
	} {
		emit(role.Count(m.name, m.help, m.value))
	}
	c.ports.collect(emit)
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	if conn != nil {
		loop.CollectPort(emit, "udp", conn.Stats())
	}
	if c.above == nil {
		c.dev.collect(emit)
	}
	for r, n := range s.Dropped {
		if name := client.Reason(r).String(); name != "" {
			emit(role.Dropped(name, n))
		}
	}
}

// Trace implements [role.Tracer]: it shows the packets of both paths.
func (c *Client) Trace(ctx context.Context, sampling trace.Sampling, emit func(*trace.Sample)) error {
	return c.dev.fast.Trace(ctx, sampling, emit, func(ctx context.Context, emit func(*trace.Sample)) error {
		return c.loop.Trace(ctx, c.name, sampling, emit)
	})
}

func (c *Client) eachDropped(f func(reason string, n uint64)) {
	s := c.engine.Stats()
	for r, n := range s.Dropped {
		f(client.Reason(r).String(), n)
	}
}
