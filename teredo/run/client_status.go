// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/teredo/client"
)

// ClientStatus is the status of a client.
type ClientStatus struct {
	// State is initial, starting, qualified, off_line or dormant.
	State string `json:"state"`
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
	// Symmetric tells that the mapping depends on the destination.
	Symmetric bool `json:"symmetric_nat"`
	// Interface is the TUN device.
	Interface string `json:"interface"`
	// DeviceDown tells that somebody set the device down; until it is up the
	// host cannot use its address.
	DeviceDown bool `json:"device_down,omitempty"`
	// Unsolicited is the policy for unsolicited inbound packets.
	Unsolicited string `json:"unsolicited"`
	// Via is the interface by which packets to the server leave the host.
	Via string `json:"via,omitempty"`
	// Servers are ranked, the best first.
	Servers []RankedServer `json:"servers,omitempty"`
	// Paths are there for a client with several interfaces.
	Paths []PathStatus `json:"paths,omitempty"`
	// Peers, how many of them are trusted, and the bytes that wait for others.
	Peers        int `json:"peers"`
	TrustedPeers int `json:"trusted_peers"`
	QueuedBytes  int `json:"queued_bytes"`
}

// snapshot returns the engine's state.
func (c *Client) snapshot() (s client.Snapshot, stats client.Stats) {
	c.loop.Do(func(time.Time, *client.Out) { s, stats = c.engine.Snapshot(), c.engine.Stats() })
	return s, stats
}

// Status implements [role.Instance]; it returns a [ClientStatus].
func (c *Client) Status() any {
	s, _ := c.snapshot()
	st := ClientStatus{
		State: s.State.String(), Address: s.Address, Mapped: s.Mapping, Local: s.Local, Server: s.Server,
		Symmetric: s.NAT.Symmetric(), Interface: c.cfg.Interface, DeviceDown: c.dev.down.Load(), Unsolicited: string(c.cfg.Unsolicited),
		Peers: s.Peers, TrustedPeers: s.Trusted, QueuedBytes: s.Queued,
		Via: c.viaNow(), Servers: serverRanking(s.Servers),
	}
	if s.State == client.Qualified {
		st.NAT = s.NAT.String()
	}
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
	emit(role.Level("peers", "Entries of the list of recent peers.", float64(snapshot.Peers)))
	emit(role.Level("trusted_peers", "Peers whose mapping is proved.", float64(snapshot.Trusted)))
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
		{"icmp_errors_total", "ICMPv6 errors given to the host.", s.ICMPErrors},
		{"evictions_total", "Peers that lost their place to others.", s.Evictions},
	} {
		emit(role.Count(m.name, m.help, m.value))
	}
	for r, n := range s.Dropped {
		if name := client.Reason(r).String(); name != "" {
			emit(role.Dropped(name, n))
		}
	}
}
