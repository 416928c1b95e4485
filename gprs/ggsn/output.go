// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// Socket is the number of one of the node's sockets, in [packet.Datagram] and for
// [Engine.HandleUDP]: three ports of Settings.Address4, then the same of Address6.
type Socket int

// The sockets.
const (
	SocketV0, SocketV0IPv6           Socket = iota, iota + ports // 3386, both planes of version 0
	SocketControl, SocketControlIPv6                             // 2123
	SocketUser, SocketUserIPv6                                   // 2152
	ports                            = 3
	// NumSockets is how many there are.
	NumSockets = 2 * ports
)

// Port returns the UDP port of the socket.
func (s Socket) Port() uint16 {
	return [ports]uint16{gtp.PortV0, gtp.PortControl, gtp.PortUser}[s%ports]
}

// IPv6 reports whether it is one of Address6.
func (s Socket) IPv6() bool { return s >= ports }

// of returns the socket of the same port for the family of a node.
func (s Socket) of(node netip.Addr) Socket {
	s %= ports
	if node.Is6() {
		s += ports
	}
	return s
}

// Output is what calls of the engine produce.
type Output struct {
	// Batch has datagrams, which leave by the [Socket] that is named, and packets for the
	// networks behind the node.
	packet.Batch
	// VRF are the networks of Batch.IP, one for each packet: see [APN.VRF].
	VRF    []uint8
	Events []Event
	// Records are charging records that were closed.
	Records []Record
	// Asks are Create Requests of which somebody has to say whether they are granted.
	Asks []Ask
}

// Reset empties it and keeps its memory.
func (o *Output) Reset() {
	o.Batch.Reset()
	clear(o.Events)
	clear(o.Records)
	clear(o.Asks)
	o.VRF, o.Events, o.Records, o.Asks = o.VRF[:0], o.Events[:0], o.Records[:0], o.Asks[:0]
}

// Device returns the network of a packet in Batch.IP.
func (o *Output) Device(packet int) int { return int(o.VRF[packet]) }

// sendIP appends a packet for a network.
func (o *Output) sendIP(vrf uint8, p []byte) {
	o.SendIP(p)
	o.VRF = append(o.VRF, vrf)
}

// Event is something that whoever runs the node may want to know.
type Event struct {
	Kind EventKind
	Time time.Time
	Peer netip.Addr // the node at the other end
	// Context is that of ContextCreated, ContextUpdated, ContextCounted and ContextDeleted, at that
	// time, and Age how long it has lasted then, whatever clock was set meanwhile; End says why it was
	// deleted. Last tells that its session has no other.
	Context ContextInfo
	Age     time.Duration
	End     End
	Last    bool
	// Port is that of the path, 2123, 2152 or 3386, which PathDown, PathUp and PathReleased are of.
	Port uint16
	// Contexts is how many a node had that PeerRestarted or PathReleased releases, or that need the
	// path which is up or down.
	Contexts int
}

// EventKind is what happened.
type EventKind uint8

// The kinds.
const (
	ContextCreated EventKind = iota
	ContextUpdated
	ContextCounted // its account is to be told how much it has carried until now
	ContextDeleted
	PeerRestarted // its restart counter has another value: its contexts are released
	PathDown      // it does not answer
	PathUp        // it answers again
	PathReleased  // it has not answered for so long that its contexts are released
	Drained       // all contexts of a [Engine.Drain] are gone
)

var eventNames = [...]string{
	"context_created", "context_updated", "context_counted", "context_deleted", "peer_restarted", "path_down", "path_up", "path_released", "drained",
}

// String returns the name of the kind.
func (k EventKind) String() string { return eventNames[k] }

// End is why a context ended.
type End uint8

// The reasons.
const (
	EndPeer         End = iota // the SGSN deleted it
	EndRecreated               // the SGSN created it anew
	EndPeerRestart             // the SGSN has restarted
	EndPath                    // the SGSN did not answer for too long
	EndErrorReport             // the other end of the user plane did not know it
	EndSessionLimit            // it lived as long as it may
	EndIdle                    // the terminal sent nothing for too long
	EndAdmin                   // an operator deleted it
	EndPeerUnknown             // the SGSN did not know it, when it was asked to change it
	EndSettings                // the settings no longer have what it needs
	EndStopped                 // the node stops
	EndRestart                 // a restart has lost others, so that SGSNs take all for lost
	numEnds
)

var endNames = [numEnds]string{
	"peer", "recreated", "peer_restart", "path", "error_indication", "session_limit", "idle", "admin", "peer_unknown", "settings", "stopped", "node_restart",
}

// String returns the name of the reason.
func (e End) String() string { return endNames[e] }

// NumEnds is the number of reasons, for an array of counters.
const NumEnds = int(numEnds)
