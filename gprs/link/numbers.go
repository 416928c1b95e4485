// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package link

import (
	"net/netip"
	"time"
)

// Ports of DHCPv6 (RFC 8415 section 7.2).
const (
	ClientPort = 546
	ServerPort = 547
)

// DHCPServers is the group of all servers of a link (RFC 8415 section 7.1).
var DHCPServers = netip.MustParseAddr("ff02::1:2")

// Messages from clients, and those to them (RFC 8415 section 7.3).
const (
	MessageSolicit            = 1
	MessageAdvertise          = 2
	MessageRequest            = 3
	MessageConfirm            = 4
	MessageRenew              = 5
	MessageRebind             = 6
	MessageReply              = 7
	MessageRelease            = 8
	MessageDecline            = 9
	MessageInformationRequest = 11
)

// Options of DHCPv6 (RFC 8415 section 21).
const (
	OptionClientID    = 1
	OptionServerID    = 2
	OptionIANA        = 3
	OptionIATA        = 4
	OptionRequest     = 6
	OptionPreference  = 7
	OptionElapsed     = 8
	OptionStatus      = 13
	OptionRapidCommit = 14
	OptionDNS         = 23 // RFC 3646 section 3
	OptionDomains     = 24 // RFC 3646 section 4
	OptionIAPD        = 25
	OptionPrefix      = 26
	OptionRefresh     = 32
	OptionExclude     = 67 // within that of a prefix (RFC 6603 section 4.2)
	OptionSolMaxRT    = 82
	OptionInfMaxRT    = 83
)

// Statuses of DHCPv6 (RFC 8415 section 21.13).
const (
	StatusNoAddresses  = 2
	StatusNoBinding    = 3
	StatusUseMulticast = 5
	StatusNoPrefixes   = 6
)

// A DUID has two octets that say of which kind it is, and 1 to 128 more (RFC 8415 section 11.1).
const (
	ShortestDUID = 2 + 1
	LongestDUID  = 2 + 128
)

// Times of DHCPv6 (RFC 8415 section 7.6): when information is asked for again where the server does not say it
// (IRT_DEFAULT), and how soon at the earliest (IRT_MINIMUM); how long a client waits at most before it repeats what nobody
// answered (SOL_MAX_RT, INF_MAX_RT).
const (
	RefreshDefault = 24 * time.Hour
	RefreshLeast   = 600 * time.Second
	MaxRepeat      = time.Hour
)

// MostPreferred is the preference that ends the wait for other servers (RFC 8415 section 18.2.1).
const MostPreferred = 255
