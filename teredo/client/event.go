// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// State of the client (RFC 4380 section 5.2.1).
type State uint8

// States.
const (
	Initial   State = iota // not started, or waiting for a server or an IPv4 address
	Starting               // asking a server
	Qualified              // the address is usable
	OffLine                // no server answered; waiting to try again
	Refused                // a server refused our key, and no other served us; waiting to try again
	Dormant                // native IPv6 is there (RFC 4380 section 5.5), and Config.Standby is not set
)

var stateNames = [...]string{"initial", "starting", "qualified", "off_line", "key_refused", "dormant"}

// String returns the state in snake_case.
func (s State) String() string { return stateNames[s] }

// EventKind says what happened.
type EventKind uint8

const (
	// GotAddress: Address, Mapping, Server and MTU are set; the host may use the
	// address from now on.
	GotAddress EventKind = iota + 1
	// AddressChanged: as GotAddress, and Old is to be given up at once; Cause says
	// why.
	AddressChanged
	// AddressLost: Old is to be given up; Cause says why.
	AddressLost
	// NATDetermined: NAT is set.
	NATDetermined
	// ServerSilent: Server did not answer.
	ServerSilent
	// ServerRefused: Server says that our key is not valid.
	ServerRefused
	// WentOffLine: no server answered; Wait is the time to the next try.
	WentOffLine
	// SearchEnded: the search for the refresh interval is over; Wait is the interval.
	SearchEnded
	// Doubted: Server has not answered quick questions; the address may be dead.
	Doubted
	// Confirmed: the server was asked out of turn and Address still holds.
	Confirmed
	// StandbyChanged: native IPv6 has come or gone, as Standby says, and Address, if there is
	// one, holds: while it is a standby it is for those alone who bind to it.
	StandbyChanged
)

// Cause says why an address was lost or changed.
type Cause uint8

// Causes.
const (
	CauseServerSilent Cause = iota + 1
	CauseKeyRefused
	CauseServersChanged
	CauseNoIPv4
	CauseNativeIPv6
	CauseStopped
	CauseMappingChanged // the NAT shows this host by another address or port
	CauseLocalChanged   // the host's IPv4 address or its way out changed
	CauseBetterServer   // another server is nearer, or comes first
)

var causeNames = [...]string{"", "the server is silent", "the server refuses the key", "the server was changed",
	"the host has no IPv4 address", "the host has native IPv6", "the client was stopped",
	"the NAT's mapping changed", "the IPv4 address or its way out changed", "another server is better"}

// String returns the cause in words.
func (c Cause) String() string { return causeNames[c] }

// Event reports what changed. Kind says which other fields are set.
type Event struct {
	Kind    EventKind
	Address netip.Addr
	Old     netip.Addr
	Mapping netip.AddrPort // IPv4 address and port as the server sees them
	Server  netip.Addr
	MTU     int
	NAT     NAT
	Cause   Cause
	Wait    time.Duration
	Standby bool
}

// Out collects what calls produce.
type Out struct {
	packet.Batch
	Events []Event
	// Sockets are to be opened and closed before the datagrams are sent.
	Sockets []SocketChange
}

// Packets returns the packets of o.
func (o *Out) Packets() *packet.Batch { return &o.Batch }

// Reset empties o and keeps its memory.
func (o *Out) Reset() {
	o.Batch.Reset()
	clear(o.Events)
	o.Events = o.Events[:0]
	o.Sockets = o.Sockets[:0]
}
