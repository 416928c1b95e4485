// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// Plane is one of the sockets of a GSN address.
type Plane int

// Planes. GTPv0 has one port for signalling and user packets.
const (
	PlaneV0 Plane = iota
	PlaneControl
	PlaneUser
	NumPlanes
)

// Port is the UDP port of the plane, ours and the peer's.
func (p Plane) Port() uint16 {
	return [NumPlanes]uint16{PlaneV0: gtp.PortV0, PlaneControl: gtp.PortControl, PlaneUser: gtp.PortUser}[p]
}

// version is the version of GTP that is spoken there.
func (p Plane) version() gtp.Version {
	if p == PlaneV0 {
		return gtp.V0
	}
	return gtp.V1
}

// Socket is the number that a batch has for a socket: of the address at a place in
// [Settings.Addresses], and a plane of it.
func Socket(address int, p Plane) int { return address*int(NumPlanes) + int(p) }

// planeOf takes the number apart.
func planeOf(socket int) (address int, p Plane) {
	return socket / int(NumPlanes), Plane(socket % int(NumPlanes))
}

// Settings of an [Engine].
type Settings struct {
	// Addresses are our GSN addresses, each of which is an SGSN to GGSNs; see [Engine.Move].
	Addresses []netip.Addr
	// Recovery is the restart counter that peers are told, unless there is NoRecovery: then
	// requests have none. A GGSN releases the contexts of an SGSN whose counter is another
	// than before.
	Recovery   uint8
	NoRecovery bool
	// T3Response is how long a response is waited for, and N3Requests how often a request is
	// sent, the first time included; 0: 5 s and 3.
	T3Response time.Duration
	N3Requests int
	// EchoInterval is how often GGSNs are asked whether they live, by each way to them; 0 is
	// never. More often than once a minute is not for networks in use.
	EchoInterval time.Duration
	// MaxContexts bounds the contexts at once; 0: 1000.
	MaxContexts int
	// UserSequence has G-PDUs of version 1 numbered.
	UserSequence bool
}

// Defaults of settings that are zero.
const (
	defaultT3       = 5 * time.Second
	defaultN3       = 3
	defaultContexts = 1000
)

// Attachment is a context that a terminal wants: all that a Create PDP Context Request says
// of it.
type Attachment struct {
	// Link is the number that packets of the terminal have; several contexts may share it.
	Link int
	// Local is the place of the SGSN's address in [Settings.Addresses].
	Local int
	// GGSN is whom to ask.
	GGSN    netip.Addr
	Version gtp.Version
	// Fallback has a GGSN that does not speak version 1, or does not answer by it, asked by
	// version 0.
	Fallback bool
	IMSI     gtp.IMSI
	// NSAPI is 5 to 15; 0: 5.
	NSAPI  uint8
	APN    gtp.APN
	Type   gtp.PDPType
	MSISDN gtp.MSISDN
	// Static4 and Static6 are addresses to ask for, of those that are valid.
	Static4, Static6 netip.Addr
	Selection        gtp.SelectionMode
	// QoS is what is asked for; empty: best effort.
	QoS gtp.QoS
	RAT gtp.Optional[gtp.RATType]
	// SingleBearer says that the network has no bearers of two addresses: a GGSN then gives
	// one (cause 130).
	SingleBearer bool
	// Delegate has the terminal ask for a prefix for networks behind it, by DHCPv6.
	Delegate bool
	// PCSCF asks for proxies of SIP, too.
	PCSCF bool
	// User and Password are told by Auth if User is not empty.
	User, Password string
	Auth           Auth
}

// key identifies the context.
func (a *Attachment) key() gtp.TID { return gtp.MakeTID(a.IMSI, a.NSAPI) }

// bestEffort is what is asked for by default: background traffic of any rate.
var bestEffort = gtp.Profile{
	Priority: 2, Delay: 4, Reliability: 3, Peak: 9, Precedence: 2, Mean: 31,
	Class: gtp.ClassBackground, DeliveryOrder: 2, ErroneousSDU: 3, MaxSDU: 0x96,
	MaxUp: 8640, MaxDown: 8640, ResidualBER: 7, SDUError: 4, HandlingPriority: 0,
}.QoS(12)
