// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/sip/media/g711"
	"github.com/isthmus-net/isthmus/sip/media/sdes"
)

// None is no payload type.
const None = 0xff

// Types are payload types of one direction: the receiver's SDP gives them. What has None is
// not carried.
type Types struct {
	PCMU, PCMA uint8
	Events     uint8 // telephone-event (RFC 4733)
}

// DefaultTypes are the static ones of G.711 (RFC 3551 section 6), and the one of events
// that nearly everybody takes.
var DefaultTypes = Types{PCMU: 0, PCMA: 8, Events: 101}

// Of returns the payload type of a law.
func (t Types) Of(law g711.Law) uint8 {
	if law == g711.PCMA {
		return t.PCMA
	}
	return t.PCMU
}

// Set sets the payload type of a law.
func (t *Types) Set(law g711.Law, to uint8) {
	if law == g711.PCMA {
		t.PCMA = to
	} else {
		t.PCMU = to
	}
}

// AllDigits are the events 0 to 15: digits, star, pound, A to D.
const AllDigits = 0xffff

// Format is what both sides of a stream have agreed to carry.
type Format struct {
	Law g711.Law // of what is sent
	// Send are the types of what is sent, Receive those of what comes.
	Send, Receive Types
	// Digits are the events that the peer takes, a bit for each.
	Digits uint16
}

// Agreement is what both sides of a call have agreed on: what package offer makes of an
// offer and its answer.
type Agreement struct {
	// RTP and RTCP are where media and reports of ours go; zero: nowhere, since the peer
	// holds the call in the manner of RFC 2543.
	RTP, RTCP netip.AddrPort
	// Send and Receive are what both want.
	Send, Receive bool
	// Held says that the peer does not want to hear us.
	Held bool
	// Format has codecs and payload types.
	Format Format
	// Secure says that it is SRTP, with a key of ours and one of the peer.
	Secure             bool
	Sending, Receiving sdes.Attribute
}
