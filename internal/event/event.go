// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package event holds what roles tell each other. Roles never import one
// another: who sends such a value and who follows it is composed by the daemon,
// through the interfaces of internal/role.
package event

import (
	"net/netip"
	"time"
)

// AddressChange reports that the IPv6 address by which this host is to be reached
// came, went, or was replaced.
type AddressChange struct {
	// Instance is the name of the instance that had the address.
	Instance string `json:"instance"`
	// Old is the address before, New the one from now on; not valid: none. The
	// old one may still work for a while, if Cause is InterfaceChanged.
	Old netip.Addr `json:"old,omitzero"`
	New netip.Addr `json:"new,omitzero"`
	// Standby reports that New is for those alone who bind to it, since the host has IPv6
	// without a tunnel. When that comes or goes, Old and New are the same.
	Standby bool `json:"standby"`
	// Interface is the device that bears the addresses.
	Interface string `json:"interface"`
	// Via is the interface by which the packets leave the host, "" if unknown.
	Via string `json:"via,omitempty"`
	// Cause says why.
	Cause Cause `json:"cause"`
	// Time is when the new address was ready for use.
	Time time.Time `json:"time"`
}

// Cause says why an address changed, in snake_case.
type Cause string

// Causes.
const (
	// Qualified: the host had no address and has one now.
	Qualified Cause = "qualified"
	// MappingChanged: a NAT shows the host by another address or port.
	MappingChanged Cause = "mapping_changed"
	// LocalChanged: the host's own IPv4 address or its way out changed.
	LocalChanged Cause = "local_changed"
	// InterfaceChanged: another interface took over.
	InterfaceChanged Cause = "interface_changed"
	// ServerSilent: the server stopped to answer.
	ServerSilent Cause = "server_silent"
	// BetterServer: another server is nearer or comes first.
	BetterServer Cause = "better_server"
	// ServersChanged: the configuration names other servers.
	ServersChanged Cause = "servers_changed"
	// NoIPv4: the host has no IPv4 any more.
	NoIPv4 Cause = "no_ipv4"
	// NativeIPv6: the host has IPv6 without a tunnel.
	NativeIPv6 Cause = "native_ipv6"
	// NativeGone: the host has no IPv6 without a tunnel any more.
	NativeGone Cause = "native_gone"
	// Stopped: the instance ends.
	Stopped Cause = "stopped"
	// Other: none of these.
	Other Cause = "other"
)
