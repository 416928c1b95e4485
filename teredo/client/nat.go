// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import "net/netip"

// Mapping is a NAT's mapping behaviour in the words of RFC 4787 section 4.1, as
// far as two server addresses with one port can show it.
type Mapping uint8

const (
	// UnknownMapping: the secondary address was not asked or did not answer.
	UnknownMapping Mapping = iota
	// NoNAT: the mapped address and port are our own.
	NoNAT
	// EndpointIndependent: both server addresses see the same mapping.
	EndpointIndependent
	// EndpointDependent: the server addresses see different mappings, that is
	// address-dependent or address-and-port-dependent mapping ("symmetric").
	EndpointDependent
)

var mappingNames = [...]string{"unknown", "no NAT", "endpoint-independent mapping",
	"address-dependent or address-and-port-dependent mapping"}

// String returns the behaviour in the words of RFC 4787.
func (m Mapping) String() string { return mappingNames[m] }

// NAT is what the client knows of the NAT it is behind.
type NAT struct {
	Mapping Mapping
	// PortPreserved: the mapped port is the local one (RFC 4787 section 4.2.1).
	PortPreserved bool
}

// Symmetric is the Symmetric NAT flag of RFC 6081 section 5.3.1.
func (n NAT) Symmetric() bool { return n.Mapping == EndpointDependent }

// String describes the NAT.
func (n NAT) String() string {
	switch {
	case n.Mapping == NoNAT:
		return n.Mapping.String()
	case n.PortPreserved:
		return n.Mapping.String() + ", port preserved"
	default:
		return n.Mapping.String() + ", port not preserved"
	}
}

// kindOfNAT is what one mapping tells alone.
func kindOfNAT(local, mapping netip.AddrPort) NAT {
	n := NAT{PortPreserved: local.Port() == mapping.Port()}
	if local == mapping {
		n.Mapping = NoNAT
	}
	return n
}
