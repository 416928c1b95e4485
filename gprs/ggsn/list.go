// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// ContextInfo is one PDP context for people and accounts.
type ContextInfo struct {
	Version gtp.Version
	IMSI    gtp.IMSI // all ones if the terminal has none, or its TID is none of an IMSI
	TID     gtp.TID
	MSISDN  gtp.MSISDN
	NSAPI   uint8
	// Secondary contexts have a traffic flow template; Primary is the NSAPI of the context
	// that their session began with.
	Secondary bool
	Primary   uint8
	APN       string
	VRF       uint8
	Type      gtp.PDPType
	// Address4 and Prefix6 are not valid where the context has none.
	Address4    netip.Addr
	Prefix6     netip.Prefix
	InterfaceID [8]byte

	TEIDControl, TEIDData         uint32 // ours; of version 0 flow labels
	PeerControl, PeerUser         netip.Addr
	PeerTEIDControl, PeerTEIDData uint32
	ChargingID                    uint32
	QoS                           gtp.QoS
	Up, Down                      Traffic
	Created, LastSeen             time.Time // LastSeen: the last packet of the terminal, or the creation
}

// Selection chooses among contexts; what is not set matches all.
type Selection struct {
	IMSI    gtp.IMSI // zero: any
	NSAPI   *uint8
	APN     string
	Address netip.Prefix // of the terminal
	Peer    netip.Addr
	TEID    uint32 // ours, of the user plane
}

// PeerInfo is one node at the other end.
type PeerInfo struct {
	Address  netip.Addr
	Restart  uint8 // its counter, if Known
	Known    bool
	Down     bool
	Since    time.Time // when that changed last
	Contexts int
}
